"""Statistics and trades a row at a time, in dictionaries: slow and obvious."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from market.event_builders import EventRow

from umdf.market import families as e
from umdf.market.families import CONDITIONS
from umdf.market.statistics import Statistics
from umdf.market.tape import LastPrice, TradeTotals

# 11.3, by the numbers of STATISTICS: 269 = 2, 3, 4, 4 with 286=5, 7, 8, 9, B.
RESET_TYPES = (100, 101, 1, 2, 5, 4, 13, 6)


class Reference:
    """The same rules, a row at a time, in dictionaries."""

    def __init__(self) -> None:
        self.held: dict[tuple[Any, ...], Any] = {}
        self.last: dict[tuple[int, str | None], dict[str, Any]] = {}
        self.trades: dict[tuple[int, str | None], list[dict[str, Any]]] = {}
        self.unknown_busts: dict[tuple[int, str | None], int] = {}

    def apply(self, happening: EventRow) -> None:
        family, row = happening
        who: Any = row.get("instrument_id")
        venue: Any = row.get("venue")
        if family == "statistics":
            kind = row["stat_type"]
            key: tuple[Any, ...] = (family, who, venue, kind)
            if kind == e.SETTLEMENT_PRICE:
                key += (row.get("open_close_settl_flag"), row.get("settl_price_type"))
            if kind == e.CLOSING_PRICE:
                key += (row.get("open_close_settl_flag"),)
            if kind == e.COMPOSITE_UNDERLYING:
                key += (row.get("underlying_id"),)
            self._set(key, row)
            if kind == e.LAST_PRICE:
                if row["action"] == "C":
                    self.last.pop((who, venue), None)
                else:
                    self.last[who, venue] = {**row, "is_trade": False, "is_busted": False}
        elif family == "imbalance":
            self._set((family, who), row)
        elif family == "price_band":
            self._set((family, who, row["entry_type"], row.get("price_band_type")), row)
        elif family == "trades" and row["action"] == "A":
            self._trade((who, venue), row)
        elif family == "trades":
            self._bust((who, venue), row["trade_id"])
        elif family == "snapshot":
            self._forget(lambda key: key[1] == who)
            self.last = {key: value for key, value in self.last.items() if key[0] != who}
        elif family == "control" and row["kind"] == "R":
            self._forget(lambda key: True)
            self.last = {}
        elif family == "status" and row.get("event") == 4:
            self._forget(lambda key: key[1] == who and key[0] == "statistics" and key[3] in RESET_TYPES)
            for kept in (self.last, self.trades, self.unknown_busts):
                for key in [key for key in kept if key[0] == who]:
                    del kept[key]

    def _set(self, key: tuple[Any, ...], row: Any) -> None:
        if row.get("action") == "C":
            self.held.pop(key, None)
        else:
            self.held[key] = row

    def _forget(self, chosen: Callable[[tuple[Any, ...]], bool]) -> None:
        self.held = {key: row for key, row in self.held.items() if not chosen(key)}

    def _trade(self, key: tuple[Any, ...], row: Any) -> None:
        self.trades.setdefault(key, []).append({**row, "busted": False})
        if row["conditions"] & (CONDITIONS["1"] | CONDITIONS["OUT_OF_SEQUENCE"]):
            return
        last = self.last.get(key)
        if last is not None and (row["ts_event"], row["trade_id"]) < (last["ts_event"], last["trade_id"]):
            return
        self.last[key] = {**row, "is_trade": True, "is_busted": False}

    def _bust(self, key: tuple[Any, ...], trade_id: int) -> None:
        if key in self.last and self.last[key]["trade_id"] == trade_id:
            self.last[key]["is_busted"] = True
        for seen in reversed(self.trades.get(key, [])):
            if seen["trade_id"] == trade_id and not seen["busted"]:
                seen["busted"] = True
                return
        self.unknown_busts[key] = self.unknown_busts.get(key, 0) + 1

    def counts(self) -> dict[tuple[int, str | None], TradeTotals]:
        found = {}
        for key in {*self.trades, *self.unknown_busts}:
            every = self.trades.get(key, [])
            left = [row for row in every if not row["busted"]]
            prices = [row["price"] for row in left]
            found[key] = TradeTotals(
                len(left),
                sum(row["size"] for row in left),
                sum(row["size"] * row["price"] for row in left),
                prices[0] if prices else None,
                max(prices, default=None),
                min(prices, default=None),
                len(every) - len(left),
                self.unknown_busts.get(key, 0),
            )
        return found


def current_values(statistics: Statistics) -> dict[tuple[Any, ...], dict[str, Any]]:
    """What the real one holds, by the reference's keys."""
    found = {}
    for name, current in statistics.latest.items():
        for who in range(1, 5):
            for key, values in current.values_of(who):
                venue = chr(key & 0xFF) if key & 0xFF else None
                if name == "imbalance":
                    found[name, who] = values
                elif name == "price_band":
                    found[name, who, venue, values.get("price_band_type")] = values
                else:
                    kind = key >> 8 & 0xFFFF
                    extra = {
                        e.SETTLEMENT_PRICE: ("open_close_settl_flag", "settl_price_type"),
                        e.CLOSING_PRICE: ("open_close_settl_flag",),
                        e.COMPOSITE_UNDERLYING: ("underlying_id",),
                    }.get(kind, ())
                    found[name, who, venue, kind, *(values.get(column) for column in extra)] = values
    return found


def assert_equal(statistics: Statistics, reference: Reference) -> None:
    held = current_values(statistics)
    assert held.keys() == reference.held.keys()
    for key, row in reference.held.items():
        for column in ("price", "size", "trade_count", "low_limit_price", "ts_event"):
            assert held[key].get(column) == row.get(column), (key, column)
    lasts: dict[Any, LastPrice] = {}
    counts: dict[Any, TradeTotals] = {}
    for who, venue, last, count in statistics.tape.all_venues():
        key = who, chr(venue) if venue else None
        if last is not None:
            lasts[key] = last
        if count.trades or count.busts or count.unknown_busts:
            counts[key] = count
    assert counts == reference.counts()
    assert lasts.keys() == reference.last.keys()
    for key, row in reference.last.items():
        for column in ("price", "size", "ts_event", "trade_id", "buyer", "seller", "is_trade", "is_busted"):
            assert getattr(lasts[key], column) == row.get(column), (key, column)
