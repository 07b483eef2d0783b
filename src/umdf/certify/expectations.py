"""What must be seen: a small vocabulary of checks on messages, at the level of tags (books, snapshots: beside this).

    NewLevel(BID, 6)                      an order comes to the sixth place of the bids: 279=0, 269=0
    instrument_status(PAUSE, SEPARATES)   35=f with 326=2 and 1174=101

A check describes itself, and returns what is wrong with an observation, or nothing. Where the generations of books
differ in their wording, the generation of the observation selects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from umdf.certify.observation import INCREMENTAL, SECURITY_GROUP, Observation, Tags
from umdf.units import fix_decimal

POSITION = "position"
NEW = "0"  # 279


class Expectation(Protocol):
    @property
    def text(self) -> str:
        """What is expected, in one line."""
        ...

    def failure(self, seen: Observation) -> str | None:
        """What is wrong, None if it was seen."""
        ...


def price_text(price: int | None) -> str:
    return "no price" if price is None else fix_decimal(price, -9)


@dataclass(frozen=True)
class Trades:
    """A trade: 269=2; perhaps at the Closing price, perhaps with a condition (277)."""

    at_closing: bool = False
    condition: str = ""

    @property
    def text(self) -> str:
        price = " at the Closing price" if self.at_closing else ""
        return f"trade{price}: 279=0 269=2{f' 277={self.condition}' if self.condition else ''}"

    def failure(self, seen: Observation) -> str | None:
        trades = [entry for entry in seen.own_entries() if entry.get(269) == "2" and entry.get(279) == NEW]
        if not trades:
            return "no trade was received"
        prices = {entry.get(270, "") for entry in trades}
        if self.at_closing and prices != {price_text(seen.closing_price)}:
            return f"traded at {', '.join(sorted(prices))}, expected {price_text(seen.closing_price)}"
        if self.condition and not any(has_condition(entry, self.condition, seen.protocol) for entry in trades):
            return f"277={', '.join(entry.get(277, 'absent') for entry in trades)}, expected {self.condition}"
        return None


@dataclass(frozen=True)
class LegTrades:
    """Each leg of the strategy trades too (277=1)."""

    @property
    def text(self) -> str:
        return "trade of both legs: 279=0 269=2 277=1"

    def failure(self, seen: Observation) -> str | None:
        for leg in seen.leg_ids:
            trades = [e for e in seen.entries() if e.get(48) == str(leg) and e.get(269) == "2" and e.get(279) == NEW]
            if not trades:
                return f"no trade of the leg {leg} was received"
            if not any(has_condition(entry, "1", seen.protocol) for entry in trades):
                return f"the trade of the leg {leg} is not marked as one: 277={trades[0].get(277, 'absent')}"
        return None


CONDITION_BITS = {"R": 0, "X": 1, "L": 2, "2": 6}  # of the set in Binary


def has_condition(entry: Tags, condition: str, protocol: str) -> bool:
    """Whether a trade has a condition: letters separated by spaces, in Binary bits; a leg trade (1) has 829=102."""
    value = entry.get(277, "")
    if protocol == "sbe":
        if condition == "1":
            return entry.get(829) == "102"
        return value.isdigit() and bool(int(value) >> CONDITION_BITS[condition] & 1)
    return condition in value.split()


@dataclass(frozen=True)
class Message:
    """A message of the incremental stream (or another one) with these tags in one of its entries."""

    msg_type: str
    tags: tuple[tuple[int, str], ...] = ()
    stream: str = INCREMENTAL
    of: str = "channel"  # or instrument (48), or group (1151)

    @property
    def text(self) -> str:
        tags = "".join(f" {tag}={value}" if value else f" with {tag}" for tag, value in self.tags)
        return f"35={self.msg_type}{tags}"

    def failure(self, seen: Observation) -> str | None:
        found = [entry for entry in seen.entries(self.stream, self._type_of(seen)) if self._is_of(entry, seen)]
        if not found:
            whose = "" if self.of == "channel" else f" of the {self.of}"
            return f"no 35={self._type_of(seen)}{whose} on the {self.stream} stream"
        wanted = dict(self.tags)
        if any(all(_has(entry, tag, value) for tag, value in wanted.items()) for entry in found):
            return None
        shown = "; ".join(" ".join(f"{tag}={entry.get(tag, 'absent')}" for tag in wanted) for entry in found[-3:])
        expected = " ".join(f"{tag}={value or 'present'}" for tag, value in self.tags)
        return f"received {shown}, expected {expected}"

    def _type_of(self, seen: Observation) -> str:
        return "d" if self.msg_type == "y" and seen.protocol == "sbe" else self.msg_type  # SecurityDefinition_12

    def _is_of(self, entry: Tags, seen: Observation) -> bool:
        if self.of == "instrument":
            return entry.get(48) == str(seen.security_id)
        return self.of == "channel" or entry.get(SECURITY_GROUP) == seen.group


def _has(entry: Tags, tag: int, value: str) -> bool:
    """Codes are compared as numbers: 625 and 872 are texts in FIX/FAST."""
    found = entry.get(tag)
    if found is None or not value:
        return found is not None
    return int(found) == int(value) if found.isdigit() and value.isdigit() else found == value


def instrument_status(state: int, event: int | None = None) -> Message:
    """SecurityStatus of the instrument."""
    tags = ((326, str(state)),) if event is None else ((326, str(state)), (1174, str(event)))
    return Message("f", tags, of="instrument")


def group_phase(phase: int) -> Message:
    """SecurityStatus of the group."""
    return Message("f", ((625, str(phase)),), of="group")
