"""`umdf lake`: administration of a lake."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from umdf.cli.arguments import LakeArgument, NoSparkFlag, split_list
from umdf.cli.commands.lake_demo import DEMO_EXAMPLES, demo
from umdf.cli.commands.lake_forget import FORGET_EXAMPLES, forget
from umdf.cli.output import ExitCode, JsonFlag, exit_with, print_escaped, print_json, printer_of
from umdf.cli.spark_options import CoresOption, spark_session_options
from umdf.cli.text_table import print_table
from umdf.errors import UmdfError, UsageError

EXAMPLES = ("umdf lake status lake    tables, rows, files and files to clean up",)
STATUS_EXAMPLES = ("umdf lake status lake", "umdf lake status lake --json")
VERIFY_EXAMPLES = ("umdf lake verify lake", "umdf lake verify lake --deep    also checks digests and rows")
COMPACT_EXAMPLES = ("umdf lake compact lake    merge small files", "umdf lake compact lake --tables mbo,trades")
REBUILD_EXAMPLES = (
    "umdf lake rebuild lake    all days",
    "umdf lake rebuild lake --date 2026-11-13 --channel 72",
    "umdf lake rebuild lake --channels channels.toml    with another channel configuration",
)
VACUUM_EXAMPLES = ("umdf lake vacuum lake    keep one week of history", "umdf lake vacuum lake --retention-days 30")
DDL_EXAMPLES = (
    "umdf lake ddl lake --catalog umdf > tables.sql",
    "umdf lake ddl lake --dialect unity --catalog main.umdf --location s3://bucket/lake",
    "umdf lake ddl lake --dialect hive",
    "umdf lake ddl lake --dialect trino --catalog delta.umdf",
)
ACCEPT_EXAMPLES = ("umdf lake accept lake mbo    keep the other tool's version of mbo",)
ABORT_EXAMPLES = ("umdf lake abort lake    roll back an unfinished commit",)
RESTORE_EXAMPLES = ("umdf lake restore lake mbo    discard the other tool's changes to mbo",)
UPGRADE_EXAMPLES = ("umdf lake upgrade lake    convert a lake of an older umdf",)
PACK_EXAMPLES = (
    "umdf lake pack umdf-env.tar.gz    for `umdf ingest … --environment umdf-env.tar.gz`",
    "umdf lake pack umdf-env.tar.gz --exclude deltalake    only the driver needs it",
)
DAY_S = 24 * 3600.0
MAX_REPAIRS = 3  # commands in one line

LakeRoot = LakeArgument
Table = Annotated[str, typer.Argument(help="Table name", metavar="TABLE")]


class Dialect(StrEnum):
    SPARK = "spark"
    UNITY = "unity"
    HIVE = "hive"
    TRINO = "trino"


def lake(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Manage a lake."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")
        exit_with(ExitCode.DONE)
    if as_json:
        settings, name = ctx.default_map or {}, str(ctx.invoked_subcommand)
        ctx.default_map = {**settings, name: {**settings.get(name, {}), "as_json": True}}


def status(root: LakeRoot, as_json: JsonFlag = False) -> None:
    """Show tables with their rows, files and sizes, the current writer, an unfinished commit, and files that can be
    deleted.
    """
    from umdf.lake.admin.lake_status import status as status_of
    from umdf.lake.recording.capture_clock import offset_text

    result = status_of(root)
    if as_json:
        print_json(asdict(result))
        return
    rows = [
        (
            table.name,
            f"{table.rows:,}",
            f"{table.files:,}",
            f"{table.bytes / 1e6:,.1f} MB",
            table.changed_by or ("damaged" if table.damage else ""),
        )
        for table in result.tables
        if table.version is not None
    ]
    print_table(("table", "rows", "files", "size", "changed by"), rows)
    print(f"commit {result.marker.number} ({result.producer}, lake {result.lake_id[:8]})")
    if result.pending is not None and not result.pending_damage:
        print(f"commit {result.pending} is unfinished; the next writer will finish it")
    for damage in result.pending_damage:
        print(
            f"commit {result.pending} cannot be finished: {damage.table}/{damage.path} {damage.reason}; {damage.repair}"
        )
    for table in result.tables:
        if table.damage:
            print(table.damage)
    if result.writer is not None:
        print_escaped(f"current writer: {result.writer.owner}")
    for what, files in (("orphans", result.orphans), ("replaced files", result.removed)):
        if files.files:
            print(f"{files.files} {what}, {files.bytes / 1e6:,.1f} MB")
    for path in result.unknown:
        print_escaped(f"unknown file: {path}")
    for clock in result.clocks:
        where = f"channel {clock.channel_id} on {clock.trading_date}, line {clock.line}"
        print(f"{where}: the capture clock is {offset_text(clock.offset_ns)} (BAD_TS_RECV)")


def verify(
    ctx: typer.Context,
    root: LakeRoot,
    deep: Annotated[bool, typer.Option("--deep", help="Read every file and check its digest and rows")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check that every file of the last commit, and of an unfinished one, exists with the right size and row count."""
    from umdf.lake.admin.lake_status import count_without_digest
    from umdf.lake.admin.lake_status import verify as verify_lake
    from umdf.lake.commit.log import pending_number
    from umdf.lake.layout import open_lake_paths

    damages = verify_lake(root, deep)
    if deep and (unknown := count_without_digest(root)):
        why = "written by an older umdf or another tool"
        printer_of(ctx).warn(f"{unknown} files have no stored digest ({why}): only size and rows were checked")
    if as_json:
        print_json([asdict(damage) for damage in damages])
    elif damages:
        print_table(("table", "file", "damage"), [(damage.table, damage.path, damage.reason) for damage in damages])
    else:
        pending = pending_number(open_lake_paths(root))
        note = f"; commit {pending} is unfinished, the next writer will finish it" if pending else ""
        print(f"no damage found{note}")
    if damages:
        repairs = list(dict.fromkeys(damage.repair for damage in damages))
        more = f"; and {len(repairs) - MAX_REPAIRS} more" if len(repairs) > MAX_REPAIRS else ""
        raise UmdfError(f"{len(damages)} damaged files", "; ".join(repairs[:MAX_REPAIRS]) + more)


def compact(
    root: LakeRoot,
    tables: Annotated[
        str, typer.Option(help="Tables to compact, comma-separated (default: all)", metavar="TABLES")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Merge the small files of each channel-day."""
    from umdf.lake.admin.compaction import compact as compact_lake
    from umdf.lake.commit.writer import open_writer

    with open_writer(_require_lake(root), "compact") as writer:
        marker = compact_lake(writer, split_list(tables) or None)
    _print_result(
        {"commit": marker.number if marker else None}, "nothing to compact" if marker is None else "", as_json
    )


def vacuum(
    root: LakeRoot,
    retention_days: Annotated[
        float, typer.Option(help="Days of history to keep readable", metavar="DAYS", min=0)
    ] = 7.0,
    as_json: JsonFlag = False,
) -> None:
    """Delete orphaned files, and files that only old commits refer to."""
    from umdf.lake.commit import vacuum
    from umdf.lake.commit.writer import open_writer

    with open_writer(_require_lake(root), "vacuum") as writer:
        orphans, replaced = vacuum.delete_orphans(writer), vacuum.vacuum(writer, retention_days * DAY_S)
    result = {"files": orphans.files + replaced.files, "bytes": orphans.bytes + replaced.bytes}
    _print_result(result, "", as_json)


def rebuild(
    ctx: typer.Context,
    root: LakeRoot,
    date: Annotated[str | None, typer.Option(help="Only this trading date (YYYY-MM-DD)", metavar="DATE")] = None,
    channel: Annotated[int | None, typer.Option(help="Only this channel", metavar="N")] = None,
    channels: Annotated[
        Path | None, typer.Option(help="Channel addresses (TOML), replacing the lake's", metavar="FILE")
    ] = None,
    cores: CoresOption = None,
    no_spark: NoSparkFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Rebuild channel-days from their captures.

    Use it after an upgrade that improves a table, or when a table is damaged. The captures must still be where they
    were ingested from. Readers see the old rows until the rebuild is committed. --channels replaces the channel
    configuration of the whole lake.
    """
    from umdf.cli.commands.ingest import open_runner, print_outcome, progress_bars
    from umdf.cli.time_options import parse_trading_date
    from umdf.lake.commit.repair import rebuild_lost_logs
    from umdf.lake.commit.writer import open_writer
    from umdf.lake.ingest import ingest_captures
    from umdf.lake.ingest_settings import IngestSettings
    from umdf.lake.plan.input_paths import read_channel_config
    from umdf.lake.plan.inputs import known_days

    if channels is not None and (date is not None or channel is not None):
        raise UsageError("--channels applies to the whole lake", "remove --date and --channel")
    settings = IngestSettings(channel_config=read_channel_config(channels), is_config_replaced=channels is not None)
    printer, started_s, date_filter = printer_of(ctx), time.monotonic(), parse_trading_date(date)
    spark_options = spark_session_options(None, cores, None, None, no_spark)
    with open_writer(_require_lake(root), "rebuild", check=False) as writer:
        for name in rebuild_lost_logs(writer):
            printer.warn(f"the log of table {name} was damaged and has been rebuilt; its earlier commits are lost")
        writer.refuse_foreign_changes()
        days = known_days(writer, date_filter.isoformat() if date_filter else None, channel)
        with open_runner(root, spark_options, no_spark) as run, progress_bars(printer) as stage:
            outcome = ingest_captures([], writer, run, settings, stage, rebuild=days)
    print_outcome(outcome, time.monotonic() - started_s, as_json)


def ddl(
    root: LakeRoot,
    dialect: Annotated[Dialect, typer.Option(help="SQL dialect")] = Dialect.SPARK,
    catalog: Annotated[str, typer.Option(help="Target schema, as SCHEMA or CATALOG.SCHEMA", metavar="NAME")] = "umdf",
    location: Annotated[
        str | None, typer.Option(help="Lake location as seen by the catalog (default: its path)", metavar="URL")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print CREATE TABLE statements that register the lake's tables in Spark, Unity Catalog, Hive or Trino."""
    from umdf.lake.admin.lake_status import ddl as ddl_of

    text = ddl_of(root, dialect.value, catalog, location)
    print_json({"ddl": text}) if as_json else print(text)


def accept(root: LakeRoot, table: Table, as_json: JsonFlag = False) -> None:
    """Accept a change that another tool made to a table."""
    from umdf.lake.commit import writer

    with writer.open_writer(_require_lake(root), "accept", check=False) as lake_writer:
        _print_result({"commit": writer.accept(lake_writer, table).number}, "", as_json)


def restore(root: LakeRoot, table: Table, as_json: JsonFlag = False) -> None:
    """Restore a table to the lake's last commit."""
    from umdf.lake.commit import writer

    with writer.open_writer(_require_lake(root), "restore", check=False) as lake_writer:
        _print_result({"commit": writer.restore(lake_writer, table).number}, "", as_json)


def abort(root: LakeRoot, as_json: JsonFlag = False) -> None:
    """Abort an unfinished commit, for example if one of its files is damaged.

    Tables that it already changed are rolled back; its captures can be ingested again. Does nothing if no commit is
    unfinished.
    """
    from umdf.lake.commit import log
    from umdf.lake.commit.writer import open_writer
    from umdf.lake.layout import open_lake_paths

    pending = log.pending_number(open_lake_paths(root))
    with open_writer(root, "abort", abort=True) as writer:
        aborted = pending if pending and log.is_aborted(writer.paths, pending) else None
        _print_result(
            {"aborted": aborted, "commit": writer.snapshot.number},
            "" if aborted else "no commit is unfinished",
            as_json,
        )


def upgrade(
    root: LakeRoot,
    cores: CoresOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Convert a lake to the layout of this version.

    Tables with renamed columns are rewritten with the same rows; neither captures nor Spark are needed. Readers of the
    old version see the old lake until the upgrade is complete. The old files stay until `umdf lake vacuum`.
    """
    from umdf.lake.admin.upgrade import upgrade as upgrade_lake
    from umdf.lake.layout import LAYOUT
    from umdf.lake.runtime.local_runner import LocalRunner

    with LocalRunner(cores or len(os.sched_getaffinity(0))) as runner:
        result = upgrade_lake(root, run_tasks=runner)
    if result is None:
        current: dict[str, Any] = {"layout": LAYOUT, "commit": None}
        _print_result(current, f"{root} has layout {LAYOUT} already: nothing to do", as_json)
    elif as_json:
        print_json(asdict(result))
    else:
        print(
            f"{root}: layout {result.old_layout} → {result.layout}; {result.files:,} files of "
            f"{len(result.tables)} tables rewritten ({result.rows:,} rows, {result.bytes / 1e6:,.1f} MB); "
            f"commit {result.commit}"
        )
        print("the old files stay until `umdf lake vacuum` deletes them")


def pack(
    out: Annotated[Path, typer.Argument(help="Archive to write (.tar.gz, .tgz or .tar)", metavar="FILE")],
    exclude: Annotated[
        str, typer.Option(help="Packages that the workers already have, comma-separated", metavar="PACKAGES")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Build an environment archive for cluster workers: umdf, its dependencies and compiled kernels.

    Workers need the same Python at the same path. On a different CPU type, kernels are compiled again.
    """
    from umdf.lake.runtime.environment_archive import SPARK_PACKAGES, archive_opener, write_archive
    from umdf.warmup import warm_all

    archive_opener(out)  # an error now, not after minutes of compiling
    warm_all()
    archive = write_archive(out, {*SPARK_PACKAGES, *split_list(exclude)})
    if as_json:
        print_json(asdict(archive))
        return
    print(f"{archive.path}: {archive.bytes / 1e6:,.1f} MB, {len(archive.packages)} packages, {archive.kernels} kernels")
    print(f"workers must run {archive.python}")


def _require_lake(root: Path) -> Path:
    """The root, if it is a lake: only an ingest creates one."""
    from umdf.lake.layout import open_lake_paths

    open_lake_paths(root)
    return root


def _print_result(result: dict[str, Any], message: str, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        print(message or ", ".join(f"{name} {value:,}" for name, value in result.items()))


SUBCOMMANDS = (
    (demo, DEMO_EXAMPLES),
    (status, STATUS_EXAMPLES),
    (verify, VERIFY_EXAMPLES),
    (compact, COMPACT_EXAMPLES),
    (rebuild, REBUILD_EXAMPLES),
    (forget, FORGET_EXAMPLES),
    (vacuum, VACUUM_EXAMPLES),
    (ddl, DDL_EXAMPLES),
    (accept, ACCEPT_EXAMPLES),
    (restore, RESTORE_EXAMPLES),
    (abort, ABORT_EXAMPLES),
    (upgrade, UPGRADE_EXAMPLES),
    (pack, PACK_EXAMPLES),
)
