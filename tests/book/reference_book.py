"""Books as the specification tells them: slow, obvious, sharing nothing with the engine.

A row is a dict of what it carries (absent is None, chars are text). A side is a list of entries, each a dict; where the
book is by price the list is sorted again after every change.
"""

from __future__ import annotations

from typing import Any

LAST, SNAPSHOT, IMPLIED, RECOVERY = 128, 32, 256, 512
DELETE_FROM, OVERLAY = 4, 5
WORDS = {
    "nothing": 0, "added": 1, "changed": 2, "deleted": 3, "cleared": 4, "replaced": 5, "old": 6, "unknown order": -1,
    "duplicate order": -2, "other side": -3, "other price": -4, "other size": -5, "unknown price": -6,
    "duplicate price": -7, "bad position": -8, "other generation": -9, "no order id": -10, "bad size": -11,
    "bad side": -12, "unknown action": -13, "no instrument": -14, "unnamed level": -15, "rpt_seq skips": -16,
}  # fmt: skip

Entry = dict[str, Any]
View = list[tuple[int | None, int, int | None]]


class ImpossibleError(Exception):
    pass


class ReferenceBook:
    def __init__(self) -> None:
        self.sides: dict[str, list[Entry]] = {"B": [], "A": []}
        self.rpt_seq: int | None = None
        self.stale: tuple[str, int] | None = None  # why, since which row
        self.said: int | None = None
        self.depth = 10
        self.aggregated = self.by_position = False

    def empty(self, rpt_seq: int | None) -> None:
        self.sides = {"B": [], "A": []}
        self.rpt_seq, self.stale = rpt_seq, None

    def levels(self, side: str) -> View:
        """Neighbours at one price together; in a price-depth book every entry is a level."""
        found: View = []
        for entry in self.sides[side]:
            if self.aggregated:
                found.append((entry["price"], entry["size"], entry["order_count"]))
            elif found and found[-1][0] == entry["price"]:
                found[-1] = (entry["price"], found[-1][1] + entry["size"], (found[-1][2] or 0) + 1)
            else:
                found.append((entry["price"], entry["size"], 1))
        return found

    def view(self, depth: int) -> tuple[View, View]:
        return self.levels("B")[:depth], self.levels("A")[:depth]

    def apply(self, row: Entry, number: int) -> str:
        flags = row.get("flags") or 0
        if row["action"] == "R" and row["side"] == "N":
            self.empty(row.get("rpt_seq") if flags & SNAPSHOT else None)
            return "cleared"
        rpt_seq = row.get("rpt_seq")
        if rpt_seq is not None and not flags & SNAPSHOT:
            if self.rpt_seq is not None and rpt_seq <= self.rpt_seq:
                return "old"
            if self.rpt_seq is not None and rpt_seq != self.rpt_seq + 1:
                self.mark("rpt_seq skips", number)
            self.rpt_seq = rpt_seq
        try:
            return self.change(row, flags)
        except ImpossibleError as impossible:
            self.mark(str(impossible), number)
            return str(impossible)

    def mark(self, reason: str, number: int) -> None:
        if self.stale is None:
            self.stale = (reason, number)

    def change(self, row: Entry, flags: int) -> str:
        action, side, update_action = row["action"], row["side"], row.get("update_action")
        if action in "TNF":
            return "nothing"
        if action not in "AMCR":
            raise ImpossibleError("unknown action")
        if side not in ("B", "A"):
            raise ImpossibleError("bad side")
        if action == "R" and update_action != DELETE_FROM:
            self.sides[side] = []
            return "cleared"
        position = row.get("position") or 0
        if not self.sides["B"] and not self.sides["A"]:
            self.by_position = position > 0
            if self.said is None:
                self.aggregated = update_action == OVERLAY or row.get("order_id") is None
                if update_action == OVERLAY:
                    self.depth = 1
            else:
                self.aggregated = self.said > 0
                self.depth = self.said or self.depth
        if self.aggregated:
            return self.change_level(row, flags, position)
        if update_action == OVERLAY:
            raise ImpossibleError("unknown action")
        if self.by_position:
            return self.change_by_position(row, position)
        if position > 0:
            raise ImpossibleError("other generation")
        if update_action == DELETE_FROM:
            raise ImpossibleError("bad position")
        return self.change_order(row, flags)

    # Orders by price and id: no price first, best price first, implied last, smaller id first.

    def change_order(self, row: Entry, flags: int) -> str:
        action, side, order_id = row["action"], row["side"], row.get("order_id")
        if order_id is None:
            raise ImpossibleError("no order id")
        found = [(s, e) for s in "BA" for e in self.sides[s] if e["order_id"] == order_id]
        if action == "A":
            if (row.get("size") is None) or row["size"] < 0:
                raise ImpossibleError("bad size")
            outcome = "added"
            if found:
                if not flags & RECOVERY:
                    raise ImpossibleError("duplicate order")
                if found[0][0] != side:
                    raise ImpossibleError("other side")
                self.sides[side].remove(found[0][1])
                outcome = "replaced"
            self.sides[side].append(entry_of(row))
            sign = -1 if side == "B" else 1
            self.sides[side].sort(
                key=lambda e: (
                    e["price"] is not None, sign * (e["price"] or 0), bool(e["flags"] & IMPLIED), e["order_id"]
                )
            )  # fmt: skip
            return outcome
        if not found:
            raise ImpossibleError("unknown order")
        if found[0][0] != side:
            raise ImpossibleError("other side")
        return self.change_entry(row, side, found[0][1])

    def change_entry(self, row: Entry, side: str, entry: Entry) -> str:
        """A CHANGE or a DELETE of an entry that is there."""
        if row.get("price") is not None and row["price"] != entry["price"]:
            raise ImpossibleError("other price")
        if row["action"] == "C":
            self.sides[side] = [e for e in self.sides[side] if e is not entry]
            return "deleted"
        check_numbers(row)
        if row.get("prev_size") is not None and row["prev_size"] != entry["size"]:
            raise ImpossibleError("other size")
        entry["size"] = row["size"]
        if self.aggregated and row.get("order_count") is not None:
            entry["order_count"] = row["order_count"]
        if self.by_position and not self.aggregated and row.get("order_id") is not None:
            entry["order_id"] = row["order_id"]
        return "changed"

    # Orders by position.

    def change_by_position(self, row: Entry, position: int) -> str:
        side = self.sides[row["side"]]
        adds = row["action"] == "A" and row.get("update_action") != DELETE_FROM
        if not 1 <= position <= len(side) + adds:
            raise ImpossibleError("bad position")
        if adds:
            check_numbers({**row, "order_count": None})
            side.insert(position - 1, entry_of(row))
            return "added"
        if row.get("update_action") == DELETE_FROM:
            del side[:position]
            return "deleted"
        return self.change_entry({**row, "order_count": None}, row["side"], side[position - 1])

    # Prices.

    def change_level(self, row: Entry, flags: int, position: int) -> str:
        side, update_action, price = self.sides[row["side"]], row.get("update_action"), row.get("price")
        overlay, delete_from = update_action == OVERLAY, update_action == DELETE_FROM
        adds = row["action"] == "A" and not overlay and not delete_from
        named = position > 0
        if self.depth == 1:
            if not named and not adds:
                position = 1
        elif self.by_position:
            if not named:
                raise ImpossibleError("bad position")
        elif named:
            raise ImpossibleError("other generation")
        elif delete_from:
            raise ImpossibleError("bad position")
        unknown = "bad position" if named else "unknown price"

        if overlay and price is None and row.get("size") is None:
            if position == 0 and len(side) > 1:
                raise ImpossibleError("unnamed level")
            place = max(position - 1, 0)
            if place >= len(side):
                return "nothing"
            del side[place]
            return "deleted"

        if position > 0:
            entry = side[position - 1] if position <= len(side) else None
            if adds or (overlay and entry is None):
                if position > len(side) + 1:
                    raise ImpossibleError(unknown)
                entry = None
        else:
            entry = next((e for e in side if e["price"] == price), None)
        if entry is None:
            if not adds and not overlay:
                raise ImpossibleError(unknown)
            check_numbers(row)
            new = entry_of(row)
            if position > 0:
                side.insert(position - 1, new)
            else:
                side.append(new)
                sign = -1 if row["side"] == "B" else 1
                side.sort(key=lambda e: (e["price"] is not None, sign * (e["price"] or 0)))
            dropped = side[self.depth :]
            del side[self.depth :]
            return "nothing" if any(e is new for e in dropped) else "added"
        if delete_from:
            del side[:position]
            return "deleted"
        if adds or overlay:
            check_numbers(row)
            if adds and not flags & RECOVERY:
                raise ImpossibleError("duplicate price")
            entry.update(entry_of(row))
            return "replaced"
        return self.change_entry(row, row["side"], entry)


def check_numbers(row: Entry) -> None:
    if row.get("size") is None or row["size"] < 0 or (row.get("order_count") or 0) < 0:
        raise ImpossibleError("bad size")


def entry_of(row: Entry) -> Entry:
    entry = {name: row.get(name) for name in ("price", "size", "order_id", "firm", "ts_insert", "order_count")}
    return {**entry, "flags": row.get("flags") or 0}


class ReferenceBooks:
    """All books of a channel, and the rows of their best levels."""

    def __init__(self) -> None:
        self.books: dict[tuple[int, bool], ReferenceBook] = {}
        self.rows = 0
        self.pending: list[tuple[int, bool]] = []

    def book(self, instrument_id: int, lending: bool = False) -> ReferenceBook:
        return self.books.setdefault((instrument_id, lending), ReferenceBook())

    def apply(self, row: Entry, depth: int = 1, per: str = "event") -> tuple[int, list[dict[str, Any]]]:
        """What the row came to, and the rows of the best `depth` levels that it makes."""
        number, self.rows = self.rows, self.rows + 1
        before = {key: book.view(depth) for key, book in self.books.items()}
        if row.get("instrument_id") is None:
            outcome = self.apply_to_channel(row)
        else:
            outcome = self.book(row["instrument_id"], row.get("venue") == "L").apply(row, number)
        for key, book in self.books.items():
            if before.get(key, ([], [])) != book.view(depth) and key not in self.pending:
                self.pending.append(key)
        made = []
        flags = row.get("flags") or 0
        if per == "event" or flags & LAST:
            for key in self.pending:
                bids, asks = self.books[key].view(depth)
                stale = 4 if self.books[key].stale else 0
                made.append({"row": number, "key": key, "flags": flags | stale, "bids": bids, "asks": asks})
            self.pending = []
        return WORDS[outcome], made

    def apply_to_channel(self, row: Entry) -> str:
        if row["action"] == "R":
            for book in self.books.values():
                book.empty(None)
            return "cleared"
        return "nothing" if row["action"] in "TNF" else "no instrument"
