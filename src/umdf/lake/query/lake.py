"""`umdf.Lake`: queries on a lake, for research.

    lake = umdf.Lake("lake")
    lake.get_range("mbp-1", "PETR4", "2026-11-13", "2026-11-14").to_polars()
    lake.book_at("PETR4", "2026-11-13T13:05:00").levels()

Invariant: a lake is read at one commit, the last finished one when it was opened or refreshed. An
invalid request is one clear error before anything is read.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from umdf.errors import UsageError, require
from umdf.lake.commit.day_continuity import continued_days
from umdf.lake.commit.lake_snapshot import LakeSnapshot, open_snapshot
from umdf.lake.query.book_at import BookAt, book_at
from umdf.lake.query.continuous import roll_table
from umdf.lake.query.definitions import DefinitionsAsOf, partitions_in_force
from umdf.lake.query.joins import JOIN_ORDERS, QUOTE_TABLES, TradesWithQuotes, quote_fields
from umdf.lake.query.name_lookup import DERIVED_DEPTHS, check_choice, resolve_columns, resolve_schema, time_column
from umdf.lake.query.price_styles import OutputFormat
from umdf.lake.query.query_times import compared_time
from umdf.lake.query.ranges import Range, derived_rows_of
from umdf.lake.query.symbols import InstrumentCatalog, parse_symbols
from umdf.lake.query.table_reader import Query
from umdf.lake.query.times import TimeRange, parse_time, to_trading_date
from umdf.lake.schemas import tables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from umdf.lake.query.sql import Registration

Symbols = str | int | Iterable[str] | Iterable[int] | None
JOINED_TABLES = frozenset(("ohlcv_1s", "ohlcv_1m", "ohlcv_1h", "ohlcv_1d", "day_statistics"))  # with the flag JOINED
_SHARED_SESSIONS: list[Any] = []  # the Spark session shared by lakes without one


class Lake:
    """A lake at one commit. `to_spark` uses the session `spark` unchanged; without it, one is started when needed."""

    def __init__(
        self, path: str | os.PathLike[str], spark: SparkSession | None = None, *, commit: int | None = None
    ) -> None:
        self._path, self._spark = path, spark
        self._open(commit)

    def _open(self, commit: int | None) -> None:
        require("deltalake", "umdf.Lake")
        self.snapshot: LakeSnapshot = open_snapshot(self._path, commit)
        self.catalog = InstrumentCatalog(self.snapshot)

    @property
    def path(self) -> str:
        return str(self.snapshot.paths.root)

    @property
    def commit(self) -> int:
        """The number of the commit that is read; 0 is the empty lake."""
        return self.snapshot.number

    def refresh(self) -> Lake:
        """Move to the newest finished commit. Existing ranges stay at their commit."""
        self._open(None)
        return self

    def __repr__(self) -> str:
        return f"<Lake {self.path} at commit {self.commit}>"

    def schemas(self) -> list[str]:
        """The schemas of `get_range` for which the lake has rows, stored or derived."""
        there = {name for name in tables() if self.snapshot.version(name) is not None}
        if {"mbo", "book_state"} <= there:
            there |= set(DERIVED_DEPTHS)
        return [name for name in tables() if name in there]

    def dates(self) -> list[date]:
        """The trading dates, oldest first."""
        return list(self.catalog.dates)

    def symbols(self, date: Any = None) -> list[str]:
        """The symbols listed on a trading date, or on any."""
        if date is None:
            return self.catalog.symbols(self.catalog.dates)
        when = parse_time(date, "date")
        day = to_trading_date(when) if isinstance(when, int) else when
        self.catalog.check_has_dates(TimeRange(day, day.fromordinal(day.toordinal() + 1)))
        return self.catalog.symbols([day])

    def get_range(
        self,
        schema: str,
        symbols: Symbols = None,
        start: Any = None,
        end: Any = None,
        *,
        stype_in: str = "raw",
        exclude_stale: bool = False,
        time: str = "auto",
        price_type: str = "decimal",
        pretty_ts: bool = True,
        columns: Sequence[str] | None = None,
    ) -> Range:
        """Rows of a schema. `start` is inclusive, `end` exclusive; a date is a trading date, times are UTC by default.

        `time` is what they are compared with: "receive" time, "exchange" time (ts_send), or "auto": receive time, but
        exchange time on channel-days with a recording whose clock is off.
        `exclude_stale` skips rows that may be wrong because messages were lost before (MAYBE_BAD_BOOK).
        """
        table, style, span = (
            tables()[resolve_schema(schema)],
            OutputFormat(price_type, pretty_ts),
            TimeRange.parse(start, end),
        )
        if span.has_times and time_column(table) is None:
            raise UsageError(f"{table.name} has no timestamps", "use dates, for example 2026-11-13")
        compared = compared_time(self.snapshot, time, table)
        if exclude_stale and "flags" not in table.schema.names:
            raise UsageError(f"exclude_stale does not apply to {table.name}", "omit it")
        if symbols is not None and "instrument_id" not in table.schema.names:
            raise UsageError(f"symbols do not apply to {table.name}", "omit them")
        named = resolve_columns(table, columns, _extra_columns(stype_in, symbols))
        needed = [table.name, *(["mbo"] if table.name in DERIVED_DEPTHS else [])]
        selection = self.catalog.select(symbols, stype_in, span, needed)
        continued = continued_days(self.snapshot) if exclude_stale and table.name in JOINED_TABLES else frozenset()
        filters = None if selection is None else selection.filters
        question = Query(table, span, filters, exclude_stale, compared, continued)
        maker = derived_rows_of(self.snapshot, question)
        return Range(self.snapshot, question, selection, named, style, self._session, maker)

    def trades_with_quotes(
        self,
        symbols: Symbols = None,
        start: Any = None,
        end: Any = None,
        *,
        quotes: str = "mbp_1",
        by: str = "position",
        stype_in: str = "raw",
        exclude_stale: bool = False,
        time: str = "auto",
        price_type: str = "decimal",
        pretty_ts: bool = True,
        columns: Sequence[str] | None = None,
    ) -> Range:
        """Each trade with the last quote before it: the columns of `trades`, `quote_…`, and the levels of the quote.

        `by` "position" uses wire order and is exact; "ts_event" and "ts_recv" use the last earlier time.
        """
        table, style, span = tables()["trades"], OutputFormat(price_type, pretty_ts), TimeRange.parse(start, end)
        known = check_choice("quotes", resolve_schema(quotes), QUOTE_TABLES)
        check_choice("by", by, JOIN_ORDERS)
        more = [*(field.name for field in quote_fields(known)), *_extra_columns(stype_in, symbols)]
        named = resolve_columns(table, columns, more)
        selection = self.catalog.select(symbols, stype_in, span, ["trades"])
        compared = compared_time(self.snapshot, time, table)
        question = Query(table, span, None if selection is None else selection.filters, exclude_stale, compared)
        maker = TradesWithQuotes(question, known, by)
        return Range(self.snapshot, question, selection, named, style, self._session, maker)

    def definitions(
        self,
        at: Any = None,
        symbols: Symbols = None,
        *,
        stype_in: str = "raw",
        time: str = "auto",
        price_type: str = "decimal",
        pretty_ts: bool = True,
        columns: Sequence[str] | None = None,
    ) -> Range:
        """The definitions in force at a time, without those deleted by then; a date means the end of that day. `time`
        is as in `get_range`."""
        table, style = tables()["definition"], OutputFormat(price_type, pretty_ts)
        named = resolve_columns(table, columns, _extra_columns(stype_in, symbols))
        compared = compared_time(self.snapshot, time, table)
        parts, limit = partitions_in_force(self.catalog, at, compared)
        selection = self.catalog.select_in(symbols, stype_in, list(parts))
        question = Query(table, filters=None if selection is None else selection.filters, time=compared)
        maker = DefinitionsAsOf(question, limit, parts)
        return Range(self.snapshot, question, selection, named, style, self._session, maker)

    def book_at(
        self,
        symbol: str | int,
        at: Any,
        depth: int | None = None,
        *,
        channel: int | None = None,
        lending: bool = False,
        stype_in: str = "raw",
        time: str = "auto",
    ) -> BookAt:
        """The book after everything received by a time, or sent by then; a date means the end of that day. `time` is as
        in `get_range`; by "receive" time, a book is not trusted if the clock of its recording is off."""
        return book_at(self.catalog, symbol, at, depth, channel, lending, stype_in, time)

    def continuous_contracts(self, symbols: str | Iterable[str], start: Any = None, end: Any = None) -> pa.Table:
        """The contract of a continuous symbol on each trading date, and the volume that ranked it."""
        span = TimeRange.parse(start, end)
        self.catalog.check_has_dates(span)
        return roll_table(self.catalog, parse_symbols(symbols, "continuous"), span)

    def register_views(
        self, spark: SparkSession | None = None, database: str | None = None, **options: Any
    ) -> Registration:
        """Register every table as a temporary view of a session, for SQL: see umdf.lake.query.sql."""
        from umdf.lake.query.sql import register

        return register(self.snapshot, spark or self._session(), database, **options)

    def _session(self) -> SparkSession:
        if self._spark is not None:
            return self._spark
        if not _SHARED_SESSIONS:
            from umdf.lake.runtime.session import start_session, stop_session

            _SHARED_SESSIONS.append(start_session())
            atexit.register(stop_session, _SHARED_SESSIONS[0])
        return _SHARED_SESSIONS[0]


def _extra_columns(stype_in: str, symbols: Symbols) -> list[str]:
    return ["continuous"] if stype_in == "continuous" and symbols is not None else []
