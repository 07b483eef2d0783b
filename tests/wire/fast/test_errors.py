"""Every error code, each with the bytes or values that provoke it, and its place."""

from __future__ import annotations

from typing import Any

import pytest
from vectors.fast import field, one_field, template

from umdf.errors import EncodeError
from umdf.wire.fast.loader import loads
from umdf.wire.fast.message import Message
from umdf.wire.fast.reference.reader import Reader
from umdf.wire.fast.reference.transfer_encoding import FastError, Limits
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal

OPTIONAL = True
_SHARED = field("string", '<copy key="K"/>', name="First") + field("unicode", '<{} key="K"/>')
_SEQUENCE = '<sequence name="S"><uInt32 name="A"/></sequence>'
_NOTHING = '<sequence name="S"><uInt32 name="A"><constant value="1"/></uInt32></sequence>'
_ITSELF = "<templateRef/>"

# code, file, bytes, offset, field
FATAL = [
    ("D2", one_field("uInt32"), "c081 1000000080", 2, "Value"),
    ("D2", one_field("uInt32", optional=True), "c081 1000000081", 2, "Value"),
    ("D2", one_field("int32"), "c081 0800000080", 2, "Value"),
    ("D2", one_field("int32"), "c081 777f7f7fff", 2, "Value"),
    ("D2", one_field("int32", optional=True), "c081 0800000081", 2, "Value"),
    ("D2", one_field("uInt64"), "c081 02000000000000000080", 2, "Value"),
    ("D2", one_field("int64"), "c081 01000000000000000080", 2, "Value"),
    ("D2", one_field("uInt32"), "c081 0000000000000000000000000000000081", 2, "Value"),  # 17 bytes
    ("D2", one_field("uInt32", '<delta value="4294967295"/>'), "c081 81", 2, "Value"),
    ("D2", one_field("uInt32", "<delta/>"), "c081 ff", 2, "Value"),
    ("D2", one_field("decimal", '<delta value="9223372036854775807"/>'), "c081 80 81", 2, "Value"),
    ("D2", one_field("decimal"), "c081 0800000080 81", 2, "Value"),
    ("D2", template(_SEQUENCE), "c081 1000000080", 2, "S"),
    ("D2", one_field("byteVector"), "c081 1000000080", 2, "Value"),
    ("D2", one_field("uInt32"), "c0 1000000080 81", 1, ""),  # the template id
    ("D4", template(_SHARED.format("copy")), "e081 c1", 3, "Value"),
    ("D4", template(_SHARED.format("delta")), "e081 c1 80 80", 3, "Value"),
    ("D4", template(_SHARED.format("tail")), "f081 c1 80", 3, "Value"),
    ("D5", one_field("uInt32", "<copy/>"), "c081", 2, "Value"),
    ("D5", one_field("uInt32"), "80 81", 1, ""),  # no template id, and none before
    ("D6", one_field("string", "<tail/>"), "c081", 2, "Value"),
    ("D7", one_field("string", "<delta/>"), "c081 81 80", 2, "Value"),
    ("D7", one_field("string", "<delta/>"), "c081 fe 80", 2, "Value"),
    ("D7", one_field("byteVector", "<delta/>"), "c081 0800000080 80", 2, "Value"),
    ("D9", one_field("uInt32"), "c0 82 81", 1, ""),
    ("D9", template(_ITSELF), "c081 c0 83", 3, "templateRef"),
    ("T1", one_field("uInt32"), "", 0, ""),
    ("T1", one_field("uInt32"), "40", 0, ""),
    ("T1", one_field("uInt32"), "c0 01", 1, ""),
    ("T1", one_field("uInt32"), "c081 0102", 2, "Value"),
    ("T1", one_field("string"), "c081 4142", 2, "Value"),
    ("T1", one_field("decimal"), "c081 81 01", 3, "Value"),
    ("T1", one_field("byteVector"), "c081 83 4142", 2, "Value"),
    ("T1", template(_SEQUENCE), "c081 83 8182", 2, "S"),
    ("T1", template(_SEQUENCE), "c081 0800000080", 2, "S"),  # 2^31 entries
    ("T2", template(_NOTHING), "c081 0800000080", 2, "S"),
    ("T2", template(_ITSELF), "c081" + "80" * 100, 34, "templateRef" + ".templateRef" * 32),
    ("T2", one_field("uInt32"), "00" * 256 + "80", 0, ""),
    ("T2", one_field("string"), "40" * (1 << 20) + "c0", 0, ""),
]


@pytest.mark.parametrize(("code", "xml", "stream", "offset", "path"), FATAL, ids=lambda value: str(value)[:40])
def test_a_dynamic_error_has_a_code_and_an_offset(code: str, xml: bytes, stream: str, offset: int, path: str) -> None:
    with pytest.raises(FastError) as caught:
        Reader(loads(xml)).decode(bytes.fromhex(stream))
    error = caught.value
    assert (error.code, error.offset, error.field) == (code, offset, path), error
    assert error.reason and error.code in str(error)


# code, file, bytes, offset, value
REPORTED = [
    ("R1", one_field("decimal"), "c081 00c0 81", 2, Decimal(64, 1)),
    ("R1", one_field("decimal", "<delta/>"), "c081 7fbf 81", 2, Decimal(-65, 1)),
    ("R1", one_field("decimal", "<exponent><delta/></exponent>"), "c081 00c0 81", 2, Decimal(64, 1)),
    ("R2", one_field("unicode"), "c081 82 41c3", 2, "A\udcc3"),
    ("R2", one_field("unicode", "<tail/>"), "e081 81 ff", 2, "\udcff"),
    ("R2", one_field("unicode", "<delta/>"), "c081 80 81 80", 2, "\udc80"),
    ("R6", one_field("uInt32"), "c081 0081", 2, 1),
    ("R6", one_field("uInt32"), "c081 00000000000000000000000000000081", 2, 1),  # 16 bytes
    ("R6", one_field("int32"), "c081 0081", 2, 1),
    ("R6", one_field("int32"), "c081 7fff", 2, -1),
    ("R6", one_field("uInt32", "<delta/>"), "c081 0081", 2, 1),
    ("R6", one_field("uInt32", optional=True), "c081 0080", 2, None),
    ("R6", one_field("uInt32"), "c0 0081 81", 1, 1),
    ("R7", one_field("uInt32", "<copy/>" + "<!-- two bits -->"), "6080 81 81", 0, 1),
    ("R8", one_field("uInt32"), "e0 81 81", 0, 1),
    ("R8", one_field("uInt32"), "4081 81 81", 0, 1),
    ("R9", one_field("string"), "c081 00c1", 2, "A"),
    ("R9", one_field("string", optional=True), "c081 00c1", 2, "A"),
    ("R9", one_field("string", optional=True), "c081 0000c1", 2, "A"),
]


@pytest.mark.parametrize(("code", "xml", "stream", "offset", "value"), REPORTED, ids=lambda value: str(value)[:40])
def test_reportable_errors_are_reported_and_the_message_is_decoded(
    code: str, xml: bytes, stream: str, offset: int, value: Any
) -> None:
    data = bytes.fromhex(stream)
    message, end = Reader(loads(xml)).decode(data)
    assert (message.values.get("Value"), end) == (value, len(data))
    reports = {(report.code, report.offset) for report in message.reports}
    # A map that ends in seven zeros has them for nobody, here.
    assert reports == ({(code, offset)} | ({("R8", offset)} if code == "R7" else set()))


def test_an_overlong_map_whose_bits_are_all_needed_is_only_overlong() -> None:
    fields = "".join(field("uInt32", '<default value="1"/>', name=f"F{index}") for index in range(7))
    message, _ = Reader(loads(template(fields))).decode(bytes.fromhex("4080 81"))
    assert [report.code for report in message.reports] == ["R7"]


def test_values_from_a_dictionary_are_not_reported_again() -> None:
    reader = Reader(loads(one_field("unicode", "<copy/>")), "never")
    first, _ = reader.decode(bytes.fromhex("e081 81ff"))
    second, _ = reader.decode(bytes.fromhex("c081"))
    assert ([report.code for report in first.reports], second.reports) == (["R2"], [])
    assert second.values == first.values


def test_an_exponent_out_of_range_is_reported_of_every_decimal_that_has_it() -> None:
    templates = loads(one_field("decimal", "<exponent><increment/></exponent>"))
    reader, codes = Reader(templates, "never"), []
    for stream in ("e081 bf 81", "c081 81", "c081 81"):
        message, _ = reader.decode(bytes.fromhex(stream))
        codes.append((message.values["Value"].exponent, [report.code for report in message.reports]))
    assert codes == [(63, []), (64, ["R1"]), (65, ["R1"])]


def test_reports_that_came_before_an_error_are_not_lost() -> None:
    templates = loads(template(field("uInt32", name="A") + field("uInt32", name="B")))
    with pytest.raises(FastError) as caught:
        Reader(templates).decode(bytes.fromhex("c081 0081"))
    assert caught.value.code == "T1"
    assert [(report.code, report.field) for report in caught.value.reports] == [("R6", "A")]


def test_the_place_in_nested_sequences_is_named() -> None:
    templates = loads(template('<sequence name="S"><sequence name="N"><uInt32 name="A"/></sequence></sequence>'))
    with pytest.raises(FastError) as caught:
        Reader(templates).decode(bytes.fromhex("c081 82 80 82 81 1000000080"))
    assert caught.value.field == "S[1].N[1].A"


def test_repeated_strings_are_limited_by_combined_bytes() -> None:
    templates = loads(template('<sequence name="S"><string name="A"><delta/></string></sequence>'))
    data = bytes.fromhex("c081 0f a0".replace(" ", "")) + b"\x80" + b"A" * 9999 + b"\xc1" + b"\x80\x80" * 1951
    assert len(Reader(templates, limits=Limits(combined_bytes=10_000 * 2000)).decode(data)[0].values["S"]) == 1952
    with pytest.raises(FastError, match="T2"):
        Reader(templates, limits=Limits(combined_bytes=10_000 * 1000)).decode(data)


def test_all_entries_of_a_message_count_together() -> None:
    inner = '<sequence name="N"><uInt32 name="A"><constant value="1"/></uInt32></sequence>'
    templates = loads(template(f'<sequence name="S">{inner}</sequence>'))
    data = bytes.fromhex("c081 83 8a 8a 8a")
    assert len(Reader(templates, limits=Limits(entries=33)).decode(data)[0].values["S"]) == 3
    with pytest.raises(FastError, match="T2"):
        Reader(templates, limits=Limits(entries=32)).decode(data)


def test_a_block_of_no_bytes_is_refused() -> None:
    templates = loads(one_field("uInt32"))
    with pytest.raises(FastError, match="D12"):
        Reader(templates).decode_block(b"\x80")
    with pytest.raises(FastError, match="T1"):
        Reader(templates).decode_block(b"\x84\xc0\x81\x81")
    with pytest.raises(EncodeError, match="D12"):
        Writer(templates).encode_block([])


_CONSTANT_EXPONENT = '<exponent><constant value="2"/></exponent>'

# code, file, value
REFUSED: list[tuple[str, bytes, Any]] = [
    ("D1", one_field("uInt32"), 1.5),
    ("D1", one_field("uInt32"), True),
    ("D1", one_field("uInt32"), None),
    ("D1", one_field("decimal"), (1, 2, 3)),
    ("D1", template('<sequence name="Value"/>'), {}),
    ("D1", template('<group name="Value"/>'), 1),
    ("D1", template('<group name="Value"/>'), {"Other": 1}),
    ("D3", one_field("decimal", _CONSTANT_EXPONENT), Decimal(-2, 1)),
    ("D3", one_field("string", '<tail value="ABCD"/>'), "AB"),
    ("D10", one_field("uInt32"), b"1"),
    ("D10", one_field("byteVector"), 1),
    ("D10", one_field("byteVector"), Decimal(0, 1)),
    ("D11", one_field("uInt32"), "one"),
    ("D11", one_field("uInt32"), "-1"),
    ("D11", one_field("decimal"), "1."),
    ("D11", one_field("byteVector"), "abc"),
    ("R1", one_field("decimal"), Decimal(64, 1)),
    ("R1", one_field("decimal"), Decimal(0, 1 << 63)),
    ("R2", one_field("unicode"), "\ud800"),
    ("R3", one_field("string"), "ação"),
    ("R4", one_field("uInt32"), -1),
    ("R4", one_field("int32"), 1 << 31),
    ("R4", one_field("uInt64"), "18446744073709551616"),
    ("R5", one_field("uInt32"), Decimal(-1, 15)),
]


@pytest.mark.parametrize(("code", "xml", "value"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_written_is_refused_with_field_and_code(code: str, xml: bytes, value: Any) -> None:
    with pytest.raises(EncodeError) as caught:
        Writer(loads(xml)).encode(1, {} if value is None else {"Value": value})
    assert str(caught.value).startswith("T: Value")
    assert f": {code}: " in str(caught.value)
    text = f"{value.mantissa}e{value.exponent}" if isinstance(value, Decimal) else str(value)
    if code != "D3" and value is not None and b"<group" not in xml and b"<sequence" not in xml:
        assert text in str(caught.value) or repr(value) in str(caught.value)


def test_unknown_templates_are_refused_by_the_writer() -> None:
    templates = loads(template(_ITSELF, '<template name="U" id="2"/>'))
    with pytest.raises(EncodeError, match="message: D9: unknown template 3"):
        Writer(templates).encode(3, {})
    foreign = loads(template("", '<template name="V" id="4"/>')).by_id[4]
    with pytest.raises(EncodeError, match="templateRef: D9"):
        Writer(templates).encode(1, {"templateRef": Message(foreign, {})})
    with pytest.raises(EncodeError, match="templateRef: D1"):
        Writer(templates).encode(1, {"templateRef": {}})


@pytest.mark.parametrize(
    ("type", "value", "converted"),
    [
        ("uInt32", " 42\n", 42),
        ("int64", "-0", 0),
        ("uInt32", Decimal(1, 15), 150),
        ("decimal", 1500, Decimal(2, 15)),
        ("decimal", "-12.50", Decimal(-1, -125)),
        ("string", 42, "42"),
        ("string", Decimal(-2, -5), "-0.05"),
        ("string", Decimal(2, 5), "500"),
        ("string", b"\x0a\xff", "0aff"),
        ("byteVector", "0A fF", b"\x0a\xff"),
    ],
)
def test_values_of_another_type_are_converted_where_nothing_is_lost(type: str, value: Any, converted: Any) -> None:
    templates = loads(one_field(type))
    message, _ = Reader(templates).decode(Writer(templates).encode(1, {"Value": value}))
    assert message.values == {"Value": converted}
