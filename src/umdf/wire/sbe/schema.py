"""The layout of SBE messages: the small checked model of an XML file (see `loader`).

Nothing here knows a template of the exchange: layouts are data. Offsets count from the start of the field's
block (the message's root block, or one entry of a group).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

# Primitive types of SBE 1.0 with their size; floats are not part of this feed.
SIZES = {"char": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8}

DATE = "LocalMktDate"
REQUIRED, OPTIONAL, CONSTANT = "required", "optional", "constant"


@dataclass(frozen=True)
class Part:
    """A range of bytes with one value: a whole plain field, or one member of a composite."""

    name: str  # the member's name; "" where the field has only one part
    primitive: str
    offset: int
    length: int = 1  # more than 1 only for char: a fixed-length text
    null: int | None = None  # the value that means absent; None: every value counts
    null_before: int | None = None  # of a required one: what means absent in traffic older than the schema serves

    @property
    def size(self) -> int:
        return SIZES[self.primitive] * self.length


@dataclass(frozen=True)
class Field:
    """A field of a block. A constant one has a value and no parts: it is not sent (reference 4.1)."""

    name: str
    tag: int
    type: str  # the name of its declared type
    presence: str
    parts: tuple[Part, ...] = ()
    constant: int | str | None = None
    exponent: int | None = None  # of a decimal: the part is the mantissa
    time_unit: int | None = None  # of a timestamp: 0 seconds, 3 ms, 6 µs, 9 ns since the epoch
    semantic: str = ""  # the FIX type where the file states one: Price, LocalMktDate, MonthYear, Boolean …
    codes: Mapping[int | str, str] = field(default_factory=dict)  # of an enum: code → name (char codes as text)
    bits: Mapping[int, str] = field(default_factory=dict)  # of a set: bit number → name
    since: int = 0
    until: int | None = None  # the last version that carries it (our own files only); None: still sent
    description: str = ""

    @property
    def offset(self) -> int:
        return self.parts[0].offset if self.parts else 0

    @property
    def end(self) -> int:
        return max((part.offset + part.size for part in self.parts), default=0)

    @property
    def is_set(self) -> bool:
        return bool(self.bits)

    @property
    def is_date(self) -> bool:
        """Days since 1970-01-01: by the FIX type in the file, or the name of the type."""
        return self.semantic == DATE or self.type.startswith(DATE)

    def in_version(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)


@dataclass(frozen=True)
class Data:
    """Variable-length bytes after the block and the groups: a length, then that many bytes."""

    name: str
    tag: int
    type: str
    length_size: int  # 1, 2 or 4 bytes, little-endian
    encoding: str = "UTF-8"
    since: int = 0
    description: str = ""


@dataclass(frozen=True)
class Block:
    """Fields at fixed offsets, then groups, then variable data, in this order on the wire."""

    name: str
    block_length: int
    fields: tuple[Field, ...]
    groups: tuple[Group, ...]
    data: tuple[Data, ...]

    @cached_property
    def sent_fields(self) -> tuple[Field, ...]:
        """The fields that are sent, in order of offset."""
        return tuple(sorted((f for f in self.fields if f.parts), key=lambda f: f.offset))

    def block_length_of(self, version: int) -> int:
        """The length of the block as that version sends it."""
        if all(f.since <= version for f in self.sent_fields):
            return self.block_length
        return max((f.end for f in self.sent_fields if f.since <= version), default=0)


@dataclass(frozen=True)
class Group(Block):
    """A repeating group: a header (length of an entry's block, number of entries), then the entries."""

    tag: int = 0
    length_size: int = 2  # bytes of blockLength, at the start of the header
    count_size: int = 1  # bytes of numInGroup, right after it
    since: int = 0
    description: str = ""


@dataclass(frozen=True)
class Message(Block):
    template_id: int = 0
    since: int = 0
    semantic: str = ""  # the FIX MsgType where the file states it
    description: str = ""


@dataclass(frozen=True)
class Schema:
    """Serves traffic of the versions `oldest` to `version`: older traffic may have had other fields, and may not have
    required what is required now; newer traffic may have more than the schema knows."""

    id: int
    version: int
    oldest: int
    semantic_version: str
    package: str
    description: str
    messages: Mapping[int, Message]  # by template id
    source: str  # the file it was read from

    def message_by_name(self, name: str) -> Message:
        return next(m for m in self.messages.values() if m.name == name)


class OtherVersions:
    """Traffic of versions that a schema does not serve, and a notice about it: one, however much there is."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.range: tuple[int, int] | None = None  # the lowest and the highest version

    def add(self, found: tuple[int, int] | None) -> None:
        """Those of some more messages."""
        if found is not None:
            lowest, highest = self.range or found
            self.range = min(lowest, found[0]), max(highest, found[1])

    def notices(self) -> list[str]:
        if self.range is None:
            return []
        (lowest, highest), schema = self.range, self._schema
        what = ["fields that had another name or place then are absent"] if lowest < schema.oldest else []
        what += ["what is newer than the schema is not decoded"] if highest > schema.version else []
        traffic, served = _versions(lowest, highest), _versions(schema.oldest, schema.version)
        return [f"the traffic is of {traffic}, the schema {schema.source} of {served}: {' and '.join(what)}"]


def _versions(lowest: int, highest: int) -> str:
    return f"version {lowest}" if lowest == highest else f"versions {lowest} to {highest}"
