"""One Binary message as the slow reference sees it: values of the view, converted one at a time by plain Python."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

Fields = dict[str, Any]
Event = dict[str, Any]

LAST, SNAPSHOT, MAYBE_BAD_BOOK, IMPLIED, RECOVERY, OUT_OF_RANGE = 128, 32, 4, 256, 512, 1024
UNKNOWN, IM = 1 << 30, 1 << 26
SUB_TYPES = {101: 17, 102: 18, 103: 19, 104: 20, 105: 21, 106: 22, 107: 23, 108: 24, 109: 25}  # code → bit

STATISTICS = {15: (1, "4"), 16: (2, "4"), 17: (11, "5"), 24: (5, "7"), 25: (4, "8"), 27: (100, "2")}
STATISTICS |= {28: (3, "6"), 29: (9, "C"), 56: (13, "9")}
ENTRY_TYPES = {template: entry for template, (_, entry) in STATISTICS.items()}
ENTRY_TYPES |= {3: "c", 9: "J", 11: "J", 19: "A", 21: "h", 22: "g", 53: "2", 54: "2", 55: "s", 57: "u"}
ACTIONS = {9: 0, 11: 0, 17: 0, 21: 0, 22: 0, 27: 0, 28: 0, 29: 0, 51: 2, 53: 0, 54: 0, 55: 0, 56: 0, 57: 2}


class Message:
    """One message, and what went wrong while its values were read."""

    def __init__(self, template: int, fields: Fields) -> None:
        self.template, self.fields = template, fields
        self.flags = 0

    def whole(self, name: str, low: int = -(1 << 63) + 1, high: int = (1 << 63) - 1) -> int | None:
        value = self.fields.get(name)
        if value is None:
            return None
        if value >= 1 << 63:
            value -= 1 << 64
        return self.fitted(value, low, high)

    def small(self, name: str) -> int | None:
        return self.whole(name, -127, 127)

    def fitted(self, value: int, low: int = -(1 << 63) + 1, high: int = (1 << 63) - 1) -> int | None:
        if low <= value <= high:
            return value
        self.flags |= OUT_OF_RANGE
        return None

    def price(self, name: str) -> int | None:
        text = self.fields.get(name)
        return None if text is None else self.fitted(int(Decimal(text).scaleb(9)))

    def seconds(self, name: str) -> int | None:
        value = self.fields.get(name)
        return None if value is None else self.fitted(value * 10**9)

    def event_flags(self) -> int:
        bits = self.fields.get("matchEventIndicator", 0)
        return (bits >> 7 & 1) * LAST | (bits >> 4 & 1) * IMPLIED | (bits >> 5 & 1) * RECOVERY

    def conditions(self) -> int:
        raw, sub_type = self.fields.get("tradeCondition", 0), self.fields.get("trdSubType")
        out = raw & 0x7FFF | (UNKNOWN if raw & 0x8000 else 0)
        if sub_type is not None:
            out |= 1 << SUB_TYPES[sub_type] if sub_type in SUB_TYPES else UNKNOWN
        return out | (IM if self.event_flags() & IMPLIED else 0)

    def update_action(self) -> int | None:
        return ACTIONS[self.template] if self.template in ACTIONS else self.small("mDUpdateAction")

    def entry_type(self) -> str | None:
        return ENTRY_TYPES.get(self.template) or self.char("mDEntryType")

    def char(self, name: str) -> str | None:
        value = self.fields.get(name)
        return None if value in (None, "\0") else value

    def common(self) -> Event:
        time = "mDEntryTimestamp" if "mDEntryTimestamp" in self.fields else "transactTime"
        return {
            "instrument_id": self.whole("securityID"),
            "ts_event": self.whole(time),
            "rpt_seq": self.whole("rptSeq"),
        }
