"""One export: what is requested, where it goes, and its result.

Invariant: everything that an export skips is counted and reported, by table and reason.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umdf import __version__
from umdf.errors import UmdfError, UsageError
from umdf.lake.export import output
from umdf.lake.export.instrument_days import ExportDay, ExportRequest, InstrumentDay, export_days
from umdf.lake.export.order_flow import UntrustedDataError
from umdf.lake.query.name_lookup import resolve_schema

if TYPE_CHECKING:
    from umdf.lake.query.lake import Lake


@dataclass(frozen=True)
class Options:
    """Options of some formats only."""

    publisher_id: int = 65_000  # Databento
    price_type: str = "float"
    wide_integers: bool = False
    levels: int = 10  # LOBSTER
    round_prices: bool = False


@dataclass
class ExportReport:
    """The result of an export."""

    format: str
    out: str = ""
    commit: int = 0
    files: int = 0
    rows: Counter[str] = field(default_factory=Counter)  # by kind in the target format
    left_out: Counter[str] = field(default_factory=Counter)  # by table and reason
    skipped: list[str] = field(default_factory=list)  # instruments and dates, with --exclude-stale

    def to_json(self) -> dict[str, Any]:
        counters = {"rows": dict(self.rows), "left_out": dict(self.left_out)}
        return {**vars(self), **counters}


@dataclass(frozen=True)
class ExportJob:
    """An export in progress."""

    days: Sequence[ExportDay]
    tables: Sequence[str]
    options: Options
    directory: Path
    report: ExportReport

    def instrument_days(self) -> Iterator[InstrumentDay]:
        return (instrument_day for day in self.days for instrument_day in day.instrument_days())

    def new_file(self, name: str) -> Path:
        path = self.directory / name
        assert path.parent == self.directory and not path.exists(), name  # names are unique per instrument
        return path

    def count(self, what: str, rows: int) -> None:
        if rows:
            self.report.rows[what] += rows

    def count_left_out(self, why: str, rows: int) -> None:
        if rows:
            self.report.left_out[why] += rows

    def skip_instrument(self, instrument_day: InstrumentDay, error: UntrustedDataError) -> None:
        """An instrument-day that may be wrong: an error, or with --exclude-stale skipped completely."""
        if not instrument_day.day.request.exclude_stale:
            raise error
        self.report.skipped.append(str(instrument_day))


@dataclass(frozen=True)
class Format:
    module: str
    title: str
    tables: tuple[str, ...]  # those that it can represent
    default_tables: tuple[str, ...]

    @property
    def write(self) -> Callable[[ExportJob], None]:
        return import_module(self.module).write


_BARS = ("ohlcv_1s", "ohlcv_1m", "ohlcv_1h", "ohlcv_1d")
FORMATS: Mapping[str, Format] = {
    "databento": Format(
        "umdf.lake.export.databento",
        "Databento's Parquet",
        ("mbo", "mbp_1", "mbp_10", "trades", "tbbo", "bbo_1s", "bbo_1m", *_BARS, "statistics", "status", "definition"),
        ("trades",),
    ),
    "lobster": Format("umdf.lake.export.lobster", "LOBSTER", ("mbo",), ("mbo",)),
    "nautilus": Format(
        "umdf.lake.export.nautilus",
        "a Nautilus catalog",
        ("mbo", "mbp_1", "trades", *_BARS, "definition"),
        ("mbp_1", "trades", "definition"),
    ),
}


def export(
    lake: Lake,
    format: str,
    out: str | os.PathLike[str],
    schemas: Sequence[str] = (),
    request: ExportRequest = ExportRequest(),  # noqa: B008
    options: Options = Options(),  # noqa: B008
    force: bool = False,
) -> ExportReport:
    """Write a range of a lake in another format; the directory appears when it is complete."""
    export_format = FORMATS.get(format)
    if export_format is None:
        raise UsageError(f"unknown format: {format!r}", f"use {', '.join(FORMATS)}")
    tables = (
        tuple(dict.fromkeys(resolve_schema(schema, export_format.tables) for schema in schemas))
        or export_format.default_tables
    )
    for table in tables:
        if table not in export_format.tables:
            raise UsageError(
                f"{export_format.title} cannot represent {table}", f"it supports {', '.join(export_format.tables)}"
            )
    output.check_replaceable(Path(out).absolute(), force)
    selected_days = export_days(lake, request)
    report = ExportReport(format, str(out), lake.commit)
    with output.atomic_directory(Path(out), force) as made:
        export_format.write(ExportJob(selected_days, tables, options, made, report))
        if not report.rows:
            raise _nothing_exported_error(report, tables, request)
        report.files = sum(1 for path in made.rglob("*") if path.is_file())
        output.write_metadata(made, {"producer": f"umdf {__version__}", "schemas": list(tables), **report.to_json()})
    return report


def _nothing_exported_error(report: ExportReport, tables: Sequence[str], asked: ExportRequest) -> UmdfError:
    if report.skipped:
        return UmdfError(
            "nothing to export: all selected instruments may be wrong", f"skipped: {', '.join(report.skipped)}"
        )
    if report.left_out:
        why = ", ".join(f"{rows:,} {reason}" for reason, rows in report.left_out.items())
        return UmdfError(f"nothing to export: skipped {why}", "select other instruments or schemas")
    return UmdfError(f"nothing to export: no rows of {', '.join(tables)} {asked.span}", "use another range")
