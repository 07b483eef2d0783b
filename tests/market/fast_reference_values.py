"""Values of FAST messages in plain Python: by tag, and converted with Decimal and datetime, for `fast_reference`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from umdf.market import families as e
from umdf.wire.fast.templates import Decimal as WireDecimal
from umdf.wire.fast.templates import Segment, Sequence

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BAD = object()
I8, I16, I32, I64 = ((1 << bits - 1) for bits in (8, 16, 32, 64))


class Tags:
    """The values of a segment by tag; groups as lists of the same."""

    def __init__(self, segment: Segment, values: Mapping[str, Any], above: Tags | None = None) -> None:
        self.values: dict[int, Any] = {}
        self.groups: dict[int, list[Tags]] = {}
        self.above = above
        for instruction in segment.instructions:
            value = values.get(instruction.name)
            if value is None:
                continue
            if isinstance(instruction, Sequence):
                assert instruction.length.id is not None
                self.groups[instruction.length.id] = [Tags(instruction.body, entry, self) for entry in value]
            elif instruction.id is not None:
                self.values[instruction.id] = value

    def get(self, tag: int) -> Any:
        return self.values.get(tag)

    def group(self, tag: int) -> list[Tags]:
        return self.groups.get(tag, [])


class ValueReader:
    """Converts values; remembers whether one did not fit."""

    def __init__(self) -> None:
        self.is_out_of_range = False

    def _fits(self, value: Any, limit: int) -> int | None:
        if value is None:
            return None
        if value is BAD or not -limit < value < limit:
            self.is_out_of_range = True
            return None
        return int(value)

    def number(self, value: Any, limit: int = I64) -> int | None:
        return self._fits(whole(value), limit)

    def scaled(self, value: Any, decimals: int) -> int | None:
        if value is None or value == "":
            return None
        if isinstance(value, WireDecimal):
            exact = Decimal(value.mantissa).scaleb(value.exponent + decimals) if abs(value.exponent) < 64 else None
        else:
            exact = Decimal(value).scaleb(decimals)
        if exact is None or exact != exact.to_integral_value():
            self.is_out_of_range = True
            return None
        return self._fits(int(exact), I64)

    def price(self, value: Any) -> int | None:
        return self.scaled(value, 9)

    def char(self, value: Any, absent: str | None = None) -> str | None:
        text = "" if value is None else str(value)
        if not text:
            return absent
        if len(text) > 1:
            self.is_out_of_range = True
            return None
        return text

    def days(self, value: Any) -> int | None:
        if value is None or value == "":
            return None
        try:
            text = f"{int(value):08}"
            return (date(int(text[:-4]), int(text[-4:-2]), int(text[-2:])) - date(1970, 1, 1)).days
        except ValueError:
            self.is_out_of_range = True
            return None

    def stamp(self, value: Any) -> int | None:
        if value is None or value == "":
            return None
        try:
            text = str(value)
            text = text + "000" if len(text) == 14 else text
            if len(text) != 17:
                raise ValueError(text)
            moment = datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            return ns(moment) + int(text[14:]) * 1_000_000
        except ValueError:
            self.is_out_of_range = True
            return None

    def moment(self, day: Any, time: Any, otherwise: int | None) -> int | None:
        """A date and a time; a missing date is `otherwise` (in days)."""
        days = self.days(day) if day not in (None, "") else otherwise
        failed = days is None
        if time is None or time == "":
            return None
        text = str(time).zfill(9) if isinstance(time, int) else time
        text = text + "000" if len(text) == 6 else text
        text = text.zfill(9)
        hours, minutes, seconds, ms = int(text[:-7]), int(text[-7:-5]), int(text[-5:-3]), int(text[-3:])
        if failed or hours > 23 or minutes > 59 or seconds > 60:
            self.is_out_of_range = True
            return None
        return (days or 0) * 86_400_000_000_000 + ((hours * 60 + minutes) * 60 + seconds) * 10**9 + ms * 10**6

    def words(self, value: Any) -> int | None:
        if value is None:
            return None
        words = {word: bit for word, bit in e.CONDITIONS.items() if word not in LONG}
        bits = 0
        for word in value.split():
            bits |= words.get(word, 1 << 30)
        return bits


LONG = ("OUT_OF_SEQUENCE", "REGULAR", "BLOCK", "UNKNOWN")


def ns(moment: datetime) -> int:
    return int((moment - EPOCH) / timedelta(microseconds=1)) * 1000


def whole(value: Any) -> Any:
    """A value of any type as an integer: None, BAD or the number."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return int(value) if value.isascii() and value.removeprefix("-").isdigit() else BAD
    if isinstance(value, WireDecimal):
        exact = Decimal(value.mantissa).scaleb(value.exponent)
        return int(exact) if exact == exact.to_integral_value() else BAD
    return value - (1 << 64) if value >= 1 << 63 else value


def tail_digits(value: Any) -> Any:
    if not isinstance(value, str):
        return whole(value)
    digits = ""
    for letter in reversed(value):
        if not letter.isdigit():
            break
        digits = letter + digits
    return int(digits) if digits else BAD


def or_default(reader: ValueReader, value: Any, default: int | None) -> int | None:
    """A small number; one that was not sent is the default, one that does not fit is not."""
    own = ValueReader()
    number = own.number(value, I8)
    reader.is_out_of_range |= own.is_out_of_range
    return default if number is None and not own.is_out_of_range else number
