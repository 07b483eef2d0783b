"""The part of Thrift's compact protocol that writing the headers and footer of a Parquet file needs.

    fields((1, number(3)), (4, text("price")))[1]  ->  the bytes of a struct

A value is a pair of its kind and its bytes. A field of a struct adds its number before it; None omits it.
"""

from __future__ import annotations

from collections.abc import Sequence

Value = tuple[int, bytes]
I8, I32, I64, BINARY, LIST, STRUCT = 3, 5, 6, 8, 9, 12
TRUE: Value = (1, b"")
_SMALL = [bytes([value]) for value in range(128)]


def varint(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    found = bytearray()
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def i32(value: int, thrift_type: int = I32) -> Value:
    return thrift_type, varint(value << 1 if value >= 0 else (-value << 1) - 1)


def i8(value: int) -> Value:
    """The only integer that is written without variable-length encoding."""
    return I8, bytes([value])


def i64(value: int) -> Value:
    return i32(value, I64)


def binary(value: str | bytes) -> Value:
    content = value.encode() if isinstance(value, str) else value
    return BINARY, varint(len(content)) + content


def list_of(values: Sequence[Value]) -> Value:
    """A list of values of the same kind."""
    kind, count = values[0][0] if values else STRUCT, len(values)
    head = _SMALL[count << 4 | kind] if count < 8 else bytes([0xF0 | kind]) + varint(count)
    return LIST, head + b"".join([content for _, content in values])


def struct(*members: tuple[int, Value | None], prefix: tuple[int, bytes] = (0, b"")) -> Value:
    """A struct; fields are in order of their numbers. `prefix`: the first fields, already encoded."""
    last, first = prefix
    parts = [first]
    for field_id, value in members:
        if value is not None:
            parts += [bytes([field_id - last << 4 | value[0]]), value[1]]
            last = field_id
    return STRUCT, b"".join([*parts, b"\0"])
