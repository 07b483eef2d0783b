"""Checks of books: what changes on which side and level, and the entries (279, 269, 270, 271) that say so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from umdf.certify.expectations import NEW, POSITION, price_text
from umdf.certify.observation import (
    ASK,
    BID,
    MBO,
    SIDE_CODES,
    SIDE_NAMES,
    TOB,
    BookRow,
    BookState,
    Observation,
    Tags,
    order_id_of,
)

CHANGE, DELETE, DELETE_THRU, DELETE_FROM, OVERLAY = "1", "2", "3", "4", "5"  # 279
NEW_ACTIONS = {MBO: (NEW,), "MBP": (NEW,), TOB: (NEW, OVERLAY)}
CHANGE_ACTIONS = {MBO: (CHANGE,), "MBP": (CHANGE,), TOB: (CHANGE, OVERLAY)}
ORDINALS = {1: "top", 2: "2nd level", 3: "3rd level"}


def row_text(row: BookRow) -> str:
    order = f", order {row.order_id}" if row.order_id is not None else ""
    return f"{row.size} at {price_text(row.price)}{order}"


def side_text(rows: Iterable[BookRow]) -> str:
    return "; ".join(map(row_text, rows)) or "nothing"


def place_text(side: int, level: int) -> str:
    return f"{ORDINALS.get(level, f'{level}th level')} of {SIDE_NAMES[side]}"


def _of_side(seen: Observation, side: int) -> list[Tags]:
    return [entry for entry in seen.own_entries() if entry.get(269) == SIDE_CODES[side]]


def _action_text(entries: list[Tags]) -> str:
    found = [f"279={entry.get(279)} 269={entry.get(269)} 270={entry.get(270, 'absent')}" for entry in entries]
    return f"received {', '.join(found[:8])}{' …' if len(found) > 8 else ''}" if found else "no entry was received"


def _is_row(entry: Tags, row: BookRow, seen: Observation) -> bool:
    """Whether an entry is of a row of the book: its order, or its price."""
    if seen.book_type == MBO:
        return order_id_of(entry) == row.order_id
    return entry.get(270) == (None if row.price is None else price_text(row.price))


@dataclass(frozen=True)
class NewLevel:
    """An order (MBO) or a price (MBP, TOB) comes to a place of a side."""

    side: int
    level: int = 1
    is_priced: bool = True

    @property
    def text(self) -> str:
        tail = "" if self.is_priced else ", without 270"
        return f"new {place_text(self.side, self.level)}: 279=0 269={SIDE_CODES[self.side]}{tail}"

    def failure(self, seen: Observation) -> str | None:
        found = self._new_row(seen)
        if found is None:
            return (
                f"nothing new on the {place_text(self.side, self.level)}; it is {side_text(seen.after.side(self.side))}"
            )
        if self.is_priced != (found.price is not None):
            return f"the new {place_text(self.side, self.level)} has {price_text(found.price)}"
        entries = _of_side(seen, self.side)
        matching = [
            entry for entry in entries if entry.get(279) in NEW_ACTIONS[seen.book_type] and _is_row(entry, found, seen)
        ]
        if not matching:
            return f"no entry 279={' or '.join(NEW_ACTIONS[seen.book_type])} of it: {_action_text(entries)}"
        if found.price is not None and matching[-1].get(270) != price_text(found.price):
            return f"270={matching[-1].get(270)}, and the book has {price_text(found.price)}"
        if self.side == BID and found.price is None and matching[-1].get(270) is not None:
            return f"270={matching[-1].get(270)} of an order without a price"
        position = matching[-1].get(290)
        if seen.generation == POSITION and position != str(self.level):
            return f"290={position}, expected {self.level}"
        return None

    def _new_row(self, seen: Observation) -> BookRow | None:
        for before, after in seen.changes():
            rows = after.side(self.side)
            known = {row.key for row in before.side(self.side)}
            if len(rows) >= self.level and rows[self.level - 1].key not in known:
                return rows[self.level - 1]
        return None


@dataclass(frozen=True)
class TopIs:
    """Another order or price is the best one now, whatever has made it so."""

    side: int

    @property
    def text(self) -> str:
        return f"another best {SIDE_NAMES[self.side]}"

    def failure(self, seen: Observation) -> str | None:
        for before, after in seen.changes():
            first, second = before.side(self.side)[:1], after.side(self.side)[:1]
            if second and (not first or first[0].key != second[0].key):
                return None
        return f"the best {SIDE_NAMES[self.side]} is still {side_text(seen.after.side(self.side)[:1])}"


@dataclass(frozen=True)
class Deleted:
    """The order or price of a place is deleted."""

    side: int
    level: int = 1

    @property
    def text(self) -> str:
        return f"{place_text(self.side, self.level)} deleted: 279=2 269={SIDE_CODES[self.side]}"

    def failure(self, seen: Observation) -> str | None:
        for before, after in seen.changes():
            rows, left = before.side(self.side), {row.key for row in after.side(self.side)}
            if len(rows) >= self.level and rows[self.level - 1].key not in left:
                return self._entry_failure(seen, rows[self.level - 1])
        return f"the {place_text(self.side, self.level)} was not deleted: {side_text(seen.after.side(self.side))}"

    def _entry_failure(self, seen: Observation, row: BookRow) -> str | None:
        entries = _of_side(seen, self.side)
        for entry in entries:
            # An Overlay with neither price nor size removes the level of a top-of-book channel.
            is_emptied = seen.book_type == TOB and entry.get(279) == OVERLAY and 270 not in entry and 271 not in entry
            if is_emptied or (
                entry.get(279) == DELETE and (_is_row(entry, row, seen) or self._is_position(entry, seen))
            ):
                return None
        return f"no entry 279=2 of {row_text(row)}: {_action_text(entries)}"

    def _is_position(self, entry: Tags, seen: Observation) -> bool:
        return seen.generation == POSITION and entry.get(290) == str(self.level)


@dataclass(frozen=True)
class SizeChanged:
    """The quantity of a price rises or falls."""

    side: int
    level: int = 1
    rises: bool = True

    @property
    def text(self) -> str:
        verb = "increases" if self.rises else "decreases"
        return f"quantity of the {place_text(self.side, self.level)} {verb}: 269={SIDE_CODES[self.side]} 271"

    def failure(self, seen: Observation) -> str | None:
        for before, after in seen.changes():
            first, second = before.side(self.side), after.side(self.side)
            if len(first) < self.level or len(second) < self.level:
                continue
            old, new = first[self.level - 1], second[self.level - 1]
            if old.key == new.key and old.size != new.size and (new.size > old.size) == self.rises:
                return self._entry_failure(seen, new)
        verb = "rise" if self.rises else "fall"
        place = place_text(self.side, self.level)
        return f"the quantity of the {place} did not {verb}: {side_text(seen.after.side(self.side))}"

    def _entry_failure(self, seen: Observation, row: BookRow) -> str | None:
        entries, actions = _of_side(seen, self.side), CHANGE_ACTIONS[seen.book_type]
        for entry in entries:
            if entry.get(279) in actions and _is_row(entry, row, seen) and entry.get(271) == str(row.size):
                return None
        return f"no entry 279={' or '.join(actions)} with 271={row.size}: {_action_text(entries)}"


@dataclass(frozen=True)
class Requeued:
    """An order loses its priority: DELETE, and NEW with a new id (13.4)."""

    side: int
    has_new_price: bool = False

    @property
    def text(self) -> str:
        return f"{SIDE_NAMES[self.side]} order deleted and entered again with a new id: 279=2, 279=0, another 37"

    def failure(self, seen: Observation) -> str | None:
        entries = _of_side(seen, self.side)
        if any(entry.get(279) == CHANGE for entry in entries):
            return f"a CHANGE keeps the order id: {_action_text(entries)}"
        old = {row.key: row for row in seen.before.side(self.side)}
        new = {row.key: row for row in seen.after.side(self.side)}
        gone, come = [old[key] for key in old.keys() - new.keys()], [new[key] for key in new.keys() - old.keys()]
        if len(gone) != 1 or len(come) != 1:
            return f"{len(gone)} orders were deleted and {len(come)} are new, expected one of each"
        actions = [entry.get(279) for entry in entries]
        if DELETE not in actions or NEW not in actions or actions.index(DELETE) > actions.index(NEW):
            return f"no DELETE followed by a NEW: {_action_text(entries)}"
        changed = gone[0].price != come[0].price
        return None if changed == self.has_new_price else f"its price is {price_text(come[0].price)}"


@dataclass(frozen=True)
class Unchanged:
    """The book does not change, and no entry of it is sent."""

    @property
    def text(self) -> str:
        return "no update of the book: no entry 269=0 or 1"

    def failure(self, seen: Observation) -> str | None:
        entries = [*_of_side(seen, BID), *_of_side(seen, ASK)]
        if entries or seen.before != seen.after:
            return f"the book was updated: {_action_text(entries)}"
        return None


@dataclass(frozen=True)
class RemovedFromTop:
    """Orders leave the top of a side: by Delete From (279=4) in books by position; else one by one, or Delete Thru."""

    side: int = BID

    @property
    def text(self) -> str:
        return f"{SIDE_NAMES[self.side]} deleted from the top: 279=4 (by position), 279=2 or 3 (by price and priority)"

    def failure(self, seen: Observation) -> str | None:
        entries = _of_side(seen, self.side)
        actions = {entry.get(279) for entry in entries}
        allowed = {DELETE, DELETE_THRU}
        if seen.generation == POSITION:
            allowed = {DELETE_FROM} if seen.book_type == MBO else {DELETE_FROM, DELETE, DELETE_THRU}
        if seen.book_type == TOB:
            allowed |= {OVERLAY, DELETE_FROM}
        if not actions & allowed:
            return f"no entry 279={' or '.join(sorted(allowed))}: {_action_text(entries)}"
        if not any(self._is_removed(*pair) for pair in seen.changes()):
            return f"the {SIDE_NAMES[self.side]} side still has its best order: {side_text(seen.after.side(self.side))}"
        return None

    def _is_removed(self, before: BookState, after: BookState) -> bool:
        rows, left = before.side(self.side), {row.key for row in after.side(self.side)}
        return bool(rows) and rows[0].key not in left
