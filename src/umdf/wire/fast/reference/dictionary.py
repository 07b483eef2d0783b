"""Previous values: the state of operators between fields, and between messages if the feed keeps it (6.3.1).

An entry is UNDEFINED, EMPTY, or a value with its type; reader and writer update it by the same calls, so that both
ends stay in sync.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple

from umdf.wire.fast.templates import ASCII, BYTES, DECIMAL, INCREMENT, RANGES, UNICODE, Decimal, Field, Value

Reset = Literal["message", "never"]  # when all entries become undefined: before each message, or never


class State(Enum):
    UNDEFINED = "undefined"
    EMPTY = "empty"


UNDEFINED, EMPTY = State.UNDEFINED, State.EMPTY


class Assigned(NamedTuple):
    type: str
    value: Value


Entry = State | Assigned


class Dictionary:
    """All dictionaries of a template set, one entry for each slot, and the template id's (10)."""

    def __init__(self, slots: int) -> None:
        self.entries: list[Entry] = [UNDEFINED] * slots
        self.template_id: int | None = None

    def reset(self) -> None:
        self.entries = [UNDEFINED] * len(self.entries)
        self.template_id = None

    def copy(self) -> Dictionary:
        other = Dictionary(0)
        other.entries, other.template_id = list(self.entries), self.template_id
        return other

    def entry(self, field: Field) -> Entry:
        assert field.operator.slot is not None
        return self.entries[field.operator.slot]

    def assign(self, field: Field, value: Value | None) -> None:
        """The new previous value; None is the state empty."""
        assert field.operator.slot is not None
        self.entries[field.operator.slot] = EMPTY if value is None else Assigned(field.type, value)


def successor(field: Field, value: Value) -> Value:
    """The value of a copy or increment field that is not sent, given the previous value."""
    if field.operator.kind != INCREMENT:
        return value
    assert isinstance(value, int)
    low, high = RANGES[field.type]
    return low if value == high else value + 1  # (6.3.6)


def initial_base(type: str) -> Value:
    """The base of delta and tail without a previous or initial value (6.3.7, 6.3.8)."""
    return {DECIMAL: Decimal(0, 0), ASCII: "", UNICODE: "", BYTES: b""}.get(type, 0)


def to_bytes(value: Value) -> bytes:
    """A string or byte vector as the bytes that delta and tail work on (6.3.7.4)."""
    assert isinstance(value, str | bytes)
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def from_bytes(content: bytes, type: str) -> str | bytes:
    """The reverse. Bytes that are not UTF-8 stay recognizable, and can be sent again unchanged."""
    return content if type == BYTES else content.decode("utf-8", "surrogateescape")
