"""Worked examples of FAST, as bytes and values: the rows of the FAST 1.1 appendix and of the exchange's messaging
specification, section 3.1 (with its slips corrected).

Each case is one stream read with a kept dictionary: the first message carries the template id, later ones reuse it.
Every case serves both directions, and every decoder and encoder there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from umdf.wire.fast.templates import Decimal

ABSENT = None


@dataclass(frozen=True)
class Case:
    name: str
    field: str  # the template's only field, named Value
    template_id: int
    stream: bytes
    values: tuple[Any, ...]  # of the field, message after message; ABSENT where it has none

    @property
    def xml(self) -> bytes:
        return templates(f'<template name="T" id="{self.template_id}">{self.field}</template>')

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [{} if value is ABSENT else {"Value": value} for value in self.values]


def templates(content: str) -> bytes:
    return f'<templates xmlns="http://www.fixprotocol.org/ns/fast/td/1.1">{content}</templates>'.encode()


def field(type: str, operator: str = "", optional: bool = False, name: str = "Value") -> str:
    """The XML of a field: `field("uInt32", '<copy value="1"/>')`."""
    tag, charset = ("string", ' charset="unicode"') if type == "unicode" else (type, "")
    presence = ' presence="optional"' if optional else ""
    return f'<{tag} name="{name}"{charset}{presence}>{operator}</{tag}>'


def template(content: str, others: str = "") -> bytes:
    """A file whose template 1 has this content."""
    return templates(f'<template name="T" id="1">{content}</template>{others}')


def one_field(type: str, operator: str = "", optional: bool = False) -> bytes:
    """A file whose template 1 has one field, Value."""
    return template(field(type, operator, optional))


OPTIONAL = True


def _case(name: str, xml: str, stream: str, *values: Any) -> Case:
    content = bytes.fromhex(stream)
    return Case(name, xml, content[1] & 0x7F, content, values)


def _plain(name: str, xml: str, stream: str, *values: Any) -> Case:
    """A field alone, as the appendix prints it: the bytes of each message get the map and the id they need."""
    bytes_of = [bytes.fromhex(part) for part in stream.split()]
    content = b"\xc0\x81" + bytes_of[0] + b"".join(b"\x80" + part for part in bytes_of[1:])
    return Case(name, xml, 1, content, values)


_PARTS = "<exponent><copy/></exponent><mantissa><{}/></mantissa>"

APPENDIX = [
    _case("decimal mandatory", field("decimal"), "c081823945a3", Decimal(2, 942755)),
    _case("decimal mandatory, longer mantissa", field("decimal"), "c08181043f34de", Decimal(1, 9427550)),
    _case("decimal mandatory, negative exponent", field("decimal"), "c081fe3945a3", Decimal(-2, 942755)),
    _case("decimal optional", field("decimal", optional=True), "c082833945a3", Decimal(2, 942755)),
    _case("decimal optional, negative", field("decimal", optional=True), "c082fe463add", Decimal(-2, -942755)),
    _case("decimal optional, sign extension", field("decimal", optional=True), "c082fd7f3fff", Decimal(-3, -8193)),
    _case("decimal optional copy", field("decimal", "<copy/>", OPTIONAL), "e083fe3945a3", Decimal(-2, 942755)),
    _case(
        "decimal optional, exponent copy, mantissa delta",
        field("decimal", _PARTS.format("delta"), OPTIONAL),
        "e084fe3945a3",
        Decimal(-2, 942755),
    ),
    _case("uInt32 mandatory constant 7", field("uInt32", '<constant value="7"/>'), "c085", 7),
    _case("uInt32 optional constant 7, absent", field("uInt32", '<constant value="7"/>', OPTIONAL), "c086", ABSENT),
    _case("uInt32 optional constant 7", field("uInt32", '<constant value="7"/>', OPTIONAL), "e086", 7),
    _case("uInt32 mandatory default 7, not sent", field("uInt32", '<default value="7"/>'), "c087", 7),
    _case("uInt32 mandatory default 7", field("uInt32", '<default value="7"/>'), "e08781", 1),
    _case("uInt32 optional default without value", field("uInt32", "<default/>", OPTIONAL), "c088", ABSENT),
    _case("string mandatory copy", field("string", "<copy/>"), "e089434dc580a04953c5", "CME", "CME", "ISE"),
    _case(
        "string optional copy",
        field("string", "<copy/>", OPTIONAL),
        "c08aa0434dc5a080a0434dc5",
        *(ABSENT, "CME", ABSENT, "CME"),
    ),
    _case("uInt32 mandatory increment 1", field("uInt32", '<increment value="1"/>'), "e08b808080a08480", 0, 1, 2, 4, 5),
    _case(
        "int32 mandatory delta", field("int32", "<delta/>"), "c08c3945a380fb80fb8080", 942755, 942750, 942745, 942745
    ),
    _case(
        "decimal mandatory delta",
        field("decimal", "<delta/>"),
        "c08dfe3945a38080fc8080fb",
        *(Decimal(-2, 942755), Decimal(-2, 942751), Decimal(-2, 942746)),
    ),
    _case(
        "string mandatory delta",
        field("string", "<delta/>"),
        "c08f80474548b680824db680fd45d380ff52d3",
        *("GEH6", "GEM6", "ESM6", "RSESM6"),
    ),
]

# The appendix's other rows. Two slips in it: -8193 is 7f3fff (not 733fff), and the mantissa that follows a present
# exponent is mandatory, so 942755 is 3945a3 (not 3945a4).
MORE_OF_THE_APPENDIX = [
    _plain("int32 optional", field("int32", optional=True), "3945a4 463add 80", 942755, -942755, ABSENT),
    _plain("int32 mandatory", field("int32"), "3945a3 7c1b1b9d 004081 7f3fff", 942755, -7942755, 8193, -8193),
    _plain("int32 64 needs a sign byte", field("int32"), "00c0 c0", 64, -64),
    _plain("uInt32 optional", field("uInt32", optional=True), "80 81 82 3945a4", ABSENT, 0, 1, 942755),
    _plain("uInt32 mandatory", field("uInt32"), "80 81 3945a3", 0, 1, 942755),
    _plain("uInt32 optional, the greatest", field("uInt32", optional=True), "1000000080", (1 << 32) - 1),
    _plain("uInt64 optional, the greatest", field("uInt64", optional=True), "02000000000000000080", (1 << 64) - 1),
    _plain(
        "int64 optional, both ends",
        field("int64", optional=True),
        "01000000000000000080 7f000000000000000080",
        *((1 << 63) - 1, -(1 << 63)),
    ),
    _plain("uInt32 delta wider than the type", field("uInt32", "<delta/>"), "0f7f7f7fff 7000000092", (1 << 32) - 1, 17),
    _plain("string optional", field("string", optional=True), "80 4142c3 0080 000080", ABSENT, "ABC", "", "\0"),
    _plain("string mandatory", field("string"), "4142c3 80 0080 0000c1", "ABC", "", "\0", "\0A"),
    _plain("byteVector optional", field("byteVector", optional=True), "80 84414243 81", ABSENT, b"ABC", b""),
    _plain("byteVector mandatory", field("byteVector"), "83414243 80", b"ABC", b""),
    _plain(
        "decimal delta with an initial value",
        field("decimal", '<delta value="12000"/>'),
        "fe09ae 8085 8085",
        *(Decimal(1, 1210), Decimal(1, 1215), Decimal(1, 1220)),
    ),
    _case(
        "decimal optional, both parts copy",
        field("decimal", _PARTS.format("copy"), OPTIONAL),
        "f081fe3945a3" + "903945a8" + "a080",
        *(Decimal(-2, 942755), Decimal(-2, 942760), ABSENT),
    ),
]

MESSAGING_SPECIFICATION = [
    _plain("3.1.3 SendingTime", field("uInt64"), "2355721c731d1ec8", 20081007091208008),
    _plain("3.1.3 23.45", field("decimal"), "fe12a9", Decimal(-2, 2345)),
    _plain("3.1.4 BM&FBovespa", field("string"), "424d2646426f7665737" + "0e1", "BM&FBovespa"),
    _plain("3.1.4 123456", field("uInt32"), "0744c0", 123456),
    _plain("3.1.4 ação", field("unicode"), "8661c3a7c3a36f", "ação"),
    _case("3.1.10 constant", field("string", '<constant value="X"/>'), "c081", "X"),
    _case(
        "3.1.10 default",
        field("string", '<default value="BVMF"><!-- Possible values --></default>'),
        "c081" + "a058434dc5",
        *("BVMF", "XCME"),
    ),
    _case("3.1.10 copy", field("string", "<copy/>"), "e081" + "4252cc" + "80" + "80", "BRL", "BRL", "BRL"),
    _plain("3.1.10 delta", field("string", "<delta/>"), "804141504c483631b9 844a3636b0", "AAPLH619", "AAPLJ660"),
    _plain(
        "3.1.10 delta, optional",
        field("string", "<delta/>", OPTIONAL),
        "814141504c483631b9 854a3636b0",
        "AAPLH619",
        "AAPLJ660",
    ),
    _case(
        "3.1.10 increment", field("int64", "<increment/>", OPTIONAL), "e08183" + "80" + "a088" + "a080", 2, 3, 7, ABSENT
    ),
    _case(
        "3.1.10 tail",
        field("string", "<tail/>", OPTIONAL),
        "e0814141504c483631b9" + "a04a3636b0" + "80",
        *("AAPLH619", "AAPLJ660", "AAPLJ660"),
    ),
]


def fast_vectors() -> list[Case]:
    return APPENDIX + MORE_OF_THE_APPENDIX + MESSAGING_SPECIFICATION
