"""`umdf.Lake`: what is in a lake, for people who do research on it.

    lake = umdf.Lake("lake")
    lake.get_range("mbp-1", "PETR4", "2026-11-13", "2026-11-14").to_polars()
    lake.book_at("PETR4", "2026-11-13T13:05:00").levels()

The one rule: a lake is read at one commit, the last finished one when it was opened or refreshed. What is asked for
wrongly is one clear error before anything is read.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from umdf.errors import UsageError, require
from umdf.lake.query.continuous import roll_table
from umdf.lake.query.definitions import DefinitionsAt, definition_parts
from umdf.lake.query.joins import BY, QUOTES, TradesWithQuotes, quote_fields
from umdf.lake.query.moments import BookAt, book_at
from umdf.lake.query.names import DERIVED, among, columns_named, schema_named, time_of
from umdf.lake.query.prices import Style
from umdf.lake.query.ranges import Range, made_by
from umdf.lake.query.reading import Question
from umdf.lake.query.symbols import Catalogue, asked_symbols
from umdf.lake.query.times import Span, date_of, moment
from umdf.lake.schemas import tables
from umdf.lake.snapshot import Snapshot, open_snapshot

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from umdf.lake.query.sql import Registration

Symbols = str | int | Iterable[str] | Iterable[int] | None
_EMBEDDED: list[Any] = []  # the one Spark session that lakes without one share


class Lake:
    """A lake at one commit. `spark` is used for `to_spark` as it is; without it, one is started when it is needed."""

    def __init__(
        self, path: str | os.PathLike[str], spark: SparkSession | None = None, *, commit: int | None = None
    ) -> None:
        self._path, self._spark = path, spark
        self._open(commit)

    def _open(self, commit: int | None) -> None:
        require("deltalake", "umdf.Lake")
        self.snapshot: Snapshot = open_snapshot(self._path, commit)
        self.catalogue = Catalogue(self.snapshot)

    @property
    def path(self) -> str:
        return str(self.snapshot.home.root)

    @property
    def commit(self) -> int:
        """The number of the commit that is read; 0 is the empty lake."""
        return self.snapshot.number

    def refresh(self) -> Lake:
        """Move to the newest finished commit. Ranges that were made before stay where they were."""
        self._open(None)
        return self

    def __repr__(self) -> str:
        return f"<Lake {self.path} at commit {self.commit}>"

    def schemas(self) -> list[str]:
        """What `get_range` can be asked for and the lake has something of, stored or made on demand."""
        there = {name for name in tables() if self.snapshot.version(name) is not None}
        if {"mbo", "book_state"} <= there:
            there |= set(DERIVED)
        return [name for name in tables() if name in there]

    def dates(self) -> list[date]:
        """The trading dates, the oldest first."""
        return list(self.catalogue.dates)

    def symbols(self, date: Any = None) -> list[str]:
        """Symbols that were listed on a trading date, or ever."""
        if date is None:
            return self.catalogue.symbols(self.catalogue.dates)
        when = moment(date, "date")
        day = date_of(when) if isinstance(when, int) else when
        self.catalogue.check(Span(day, day.fromordinal(day.toordinal() + 1)))
        return self.catalogue.symbols([day])

    def get_range(
        self,
        schema: str,
        symbols: Symbols = None,
        start: Any = None,
        end: Any = None,
        *,
        stype_in: str = "raw",
        exclude_stale: bool = False,
        price_type: str = "decimal",
        pretty_ts: bool = True,
        columns: Sequence[str] | None = None,
    ) -> Range:
        """Rows of a schema. `start` is in the range, `end` is not; a date is a trading date, no zone is UTC.

        `exclude_stale` leaves out what may be wrong because something was lost before it (MAYBE_BAD_BOOK).
        """
        table, style, span = tables()[schema_named(schema)], Style(price_type, pretty_ts), Span.of(start, end)
        if span.has_times and time_of(table) is None:
            raise UsageError(f"{table.name} has no times", "give dates, such as 2026-11-13")
        if exclude_stale and "flags" not in table.schema.names:
            raise UsageError(f"{table.name} has no flags: nothing in it can be stale", "leave exclude_stale out")
        if symbols is not None and "instrument_id" not in table.schema.names:
            raise UsageError(f"{table.name} is not about instruments", "leave symbols out")
        named = columns_named(table, columns, _extra(stype_in, symbols))
        needed = [table.name, *(["mbo"] if table.name in DERIVED else [])]
        selection = self.catalogue.selection(symbols, stype_in, span, needed)
        question = Question(table, span, None if selection is None else selection.wanted, exclude_stale)
        maker = made_by(self.snapshot, question)
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
        price_type: str = "decimal",
        pretty_ts: bool = True,
        columns: Sequence[str] | None = None,
    ) -> Range:
        """Each trade with the last quote before it: the columns of `trades`, `quote_…`, and the levels of the quote.

        `by` "position" is the order of the feed, and exact; "ts_event" and "ts_recv" take the last earlier time.
        """
        table, style, span = tables()["trades"], Style(price_type, pretty_ts), Span.of(start, end)
        known = among("quotes", schema_named(quotes), QUOTES)
        among("by", by, BY)
        more = [*(field.name for field in quote_fields(known)), *_extra(stype_in, symbols)]
        named = columns_named(table, columns, more)
        selection = self.catalogue.selection(symbols, stype_in, span, ["trades"])
        question = Question(table, span, None if selection is None else selection.wanted, exclude_stale)
        maker = TradesWithQuotes(question, known, by)
        return Range(self.snapshot, question, selection, named, style, self._session, maker)

    def definitions(
        self,
        at: Any = None,
        symbols: Symbols = None,
        *,
        stype_in: str = "raw",
        price_type: str = "decimal",
        pretty_ts: bool = True,
        columns: Sequence[str] | None = None,
    ) -> Range:
        """The definitions in force at a moment, without those deleted by then; a date is the end of that day."""
        table, style = tables()["definition"], Style(price_type, pretty_ts)
        named = columns_named(table, columns, _extra(stype_in, symbols))
        parts, limit = definition_parts(self.catalogue, at)
        selection = self.catalogue.selection_of(symbols, stype_in, list(parts))
        question = Question(table, wanted=None if selection is None else selection.wanted)
        maker = DefinitionsAt(question, limit, parts)
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
    ) -> BookAt:
        """The book when everything that had come by a moment was applied; a date is the end of that day."""
        return book_at(self.catalogue, symbol, at, depth, channel, lending, stype_in)

    def rolls(self, continuous: str | Iterable[str], start: Any = None, end: Any = None) -> pa.Table:
        """Which contract a continuous name is on each trading date, and by which volume it was ranked."""
        span = Span.of(start, end)
        self.catalogue.check(span)
        return roll_table(self.catalogue, asked_symbols(continuous, "continuous"), span)

    def register(self, spark: SparkSession | None = None, database: str | None = None, **how: Any) -> Registration:
        """Every table as a temporary view of a session, for SQL: see umdf.lake.query.sql."""
        from umdf.lake.query.sql import register

        return register(self.snapshot, spark or self._session(), database, **how)

    def _session(self) -> SparkSession:
        if self._spark is not None:
            return self._spark
        if not _EMBEDDED:
            from umdf.lake.session import embedded, shut_down

            _EMBEDDED.append(embedded())
            atexit.register(shut_down, _EMBEDDED[0])
        return _EMBEDDED[0]


def _extra(stype_in: str, symbols: Symbols) -> list[str]:
    return ["continuous"] if stype_in == "continuous" and symbols is not None else []
