"""The encoding of single values in a FAST stream: stop-bit entities, strings, byte vectors (FAST 1.1, section 10).

`Cursor` reads, the functions below it write; both know types and NULL, neither knows templates or operators.
Errors: the specification's codes, and two of ours where it has none: T1, the data end inside an
item; T2, one of our `Limits` is exceeded. The offset of an error is the first byte of its item.
"""

from __future__ import annotations

from dataclasses import dataclass

from umdf.wire.fast.templates import RANGES, UINT32


@dataclass(frozen=True)
class Limits:
    """Limits on the cost of hostile data. Everything else is bounded by the length of the data."""

    presence_map_bytes: int = 256
    integer_bytes: int = 16  # more is D2; ten hold every valid value and delta, the rest is padding (R6)
    entries: int = 1 << 20  # of all sequences of a message
    empty_entries: int = 1 << 16  # of a sequence whose entries need not take a single byte
    nesting: int = 32  # nested groups, sequences and dynamic references
    combined_bytes: int = 1 << 22  # of texts that are not sent as they are: a byte of the stream can repeat thousands


@dataclass(frozen=True)
class Report:
    """A reportable error, R1 to R9: it is reported, and decoding continues."""

    code: str
    offset: int
    field: str  # where in the message: MDEntries[2].MDEntryPx
    reason: str


class FastError(Exception):
    """A message that cannot be decoded any further. Callers turn it into a quarantine row; users never see it."""

    def __init__(self, code: str, offset: int, field: str, reason: str) -> None:
        super().__init__(f"{code} at byte {offset}, {field or 'message'}: {reason}")
        self.code = code
        self.offset = offset
        self.field = field
        self.reason = reason
        self.reports: list[Report] = []  # reportable errors before it


class Cursor:
    """An offset in the data, and the name of the item at it."""

    def __init__(self, data: bytes, offset: int = 0, limits: Limits | None = None) -> None:
        self.data = data
        self.offset = offset
        self.limits = limits or Limits()
        self.path: list[str | int] = []
        self.reports: list[Report] = []

    @property
    def field(self) -> str:
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return text.removeprefix(".")

    @property
    def remaining(self) -> int:
        return len(self.data) - self.offset

    def error(self, code: str, reason: str, offset: int | None = None) -> FastError:
        return FastError(code, self.offset if offset is None else offset, self.field, reason)

    def report(self, code: str, reason: str, offset: int) -> None:
        self.reports.append(Report(code, offset, self.field, reason))

    def unsigned(self, type: str = UINT32, nullable: bool = False) -> int | None:
        start = self.offset
        groups = self._integer_groups()
        if len(groups) > 1 and groups[0] == 0:
            self.report("R6", f"{len(groups)} bytes for an integer that needs fewer", start)
        return self._check_range(_join_groups(groups), type, nullable, start)

    def signed(self, type: str | None, nullable: bool = False) -> int | None:
        """A signed integer; without a type a delta, which has no bounds of its own (6.3.7.1)."""
        start = self.offset
        groups = self._integer_groups()
        if len(groups) > 1 and groups[0] == (0x7F if groups[1] & 0x40 else 0):
            self.report("R6", f"{len(groups)} bytes for an integer that needs fewer", start)
        value = _join_groups(groups)
        if groups[0] & 0x40:
            value -= 1 << (7 * len(groups))
        if type is None:
            return None if nullable and value == 0 else value - (nullable and value > 0)
        return self._check_range(value, type, nullable, start)

    def _check_range(self, value: int, type: str, nullable: bool, start: int) -> int | None:
        if nullable:
            if value == 0:
                return None
            value -= value > 0  # (10.6.1)
        low, high = RANGES[type]
        if not low <= value <= high:
            raise self.error("D2", f"{value} is outside {type}, {low} to {high}", start)
        return value

    def _integer_groups(self) -> bytes:
        """The groups of seven bits of one integer."""
        start, most = self.offset, self.limits.integer_bytes
        for end in range(start, min(start + most, len(self.data))):
            if self.data[end] & 0x80:
                self.offset = end + 1
                return bytes((*self.data[start:end], self.data[end] & 0x7F))
        if self.remaining < most:
            raise self.error("T1", "the data end in the middle of an integer")
        raise self.error("D2", f"an integer of more than {most} bytes")

    def ascii(self, nullable: bool = False) -> str | None:
        start, end = self.offset, self.offset
        while end < len(self.data) and not self.data[end] & 0x80:
            end += 1
        if end == len(self.data):
            raise self.error("T1", "the data end in the middle of a string")
        self.offset = end + 1
        text = bytes((*self.data[start:end], self.data[end] & 0x7F))
        zeros = 0  # of the preambles (10.6.3)
        if nullable and text[0] == 0:
            zeros, text = 1, text[1:]
            if not text:
                return None
        if text[0] == 0:
            zeros, text = zeros + 1, text[1:]
        if zeros and text and text[0] != 0:
            self.report("R9", "overlong string: zeros before its first character", start)
        return text.decode("ascii")

    def vector(self, nullable: bool = False) -> bytes | None:
        start = self.offset
        length = self.unsigned(UINT32, nullable)
        if length is None:
            return None
        if length > self.remaining:
            raise self.error("T1", f"{length} bytes announced, {self.remaining} left", start)
        self.offset += length
        return bytes(self.data[self.offset - length : self.offset])

    def presence_map(self) -> PresenceMap:
        start, most = self.offset, self.limits.presence_map_bytes
        for end in range(start, min(start + most, len(self.data))):
            if self.data[end] & 0x80:
                self.offset = end + 1
                groups = bytes((*self.data[start:end], self.data[end] & 0x7F))
                if len(groups) > 1 and groups[-1] == 0:
                    self.report("R7", "overlong presence map: it ends in seven zeros", start)
                return PresenceMap(start, groups)
        if self.remaining < most:
            raise self.error("T1", "the data end in the middle of a presence map")
        raise self.error("T2", f"a presence map of more than {most} bytes")

    def check_presence_map(self, bits: PresenceMap, needed: int) -> None:
        """R8: whole bytes, or set bits, after the last one that the template can use."""
        surplus = len(bits.groups) > max(1, (needed + 6) // 7)
        if surplus or any(bits.bit(index) for index in range(needed, 7 * len(bits.groups))):
            self.report("R8", f"a presence map with more than the {needed} bits that are needed", bits.offset)


class PresenceMap:
    """Seven bits per byte, most significant first, then zeros without end (10.5)."""

    def __init__(self, offset: int = 0, groups: bytes = b"") -> None:
        self.offset = offset
        self.groups = groups
        self.next_bit = 0

    def bit(self, index: int) -> bool:
        byte, bit = divmod(index, 7)
        return byte < len(self.groups) and bool(self.groups[byte] & (0x40 >> bit))

    def next(self) -> bool:
        self.next_bit += 1
        return self.bit(self.next_bit - 1)


def write_presence_map(bits: list[bool]) -> bytes:
    """As short as the last set bit allows."""
    groups = bytearray(max(1, (len(bits) + 6) // 7))
    for index, bit in enumerate(bits):
        groups[index // 7] |= bit * (0x40 >> index % 7)
    while len(groups) > 1 and groups[-1] == 0:
        groups.pop()
    return _with_stop_bit(groups)


def write_unsigned(value: int | None, nullable: bool = False) -> bytes:
    if value is None:
        return b"\x80"
    value += nullable
    groups = bytearray([value & 0x7F])
    while value := value >> 7:
        groups.append(value & 0x7F)
    return _with_stop_bit(groups[::-1])


def write_signed(value: int | None, nullable: bool = False) -> bytes:
    if value is None:
        return b"\x80"
    value += nullable and value >= 0
    groups = bytearray([value & 0x7F])
    # The top bit of the first group is the sign (10.6.1.1).
    while value >> 6 not in (0, -1):
        value >>= 7
        groups.append(value & 0x7F)
    return _with_stop_bit(groups[::-1])


def write_ascii(text: str | None, nullable: bool = False) -> bytes:
    if text is None:
        return b"\x80"
    content = bytearray(text.encode("ascii"))
    if not content or content[0] == 0:
        content[:0] = bytes(1 + nullable)
    return _with_stop_bit(content)


def write_vector(content: bytes | None, nullable: bool = False) -> bytes:
    if content is None:
        return b"\x80"
    return write_unsigned(len(content), nullable) + content


def _join_groups(groups: bytes) -> int:
    value = 0
    for group in groups:
        value = value << 7 | group
    return value


def _with_stop_bit(groups: bytearray) -> bytes:
    groups[-1] |= 0x80
    return bytes(groups)
