"""`umdf lake`: administration of a lake."""

from __future__ import annotations

import time
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from umdf.cli.arguments import LakeArgument
from umdf.cli.commands.lake_demo import DEMO_EXAMPLES, demo
from umdf.cli.commands.lake_forget import FORGET_EXAMPLES, forget
from umdf.cli.output import ExitCode, JsonFlag, exit_with, print_escaped, print_json, printer_of
from umdf.cli.text_table import print_table
from umdf.errors import UmdfError, UsageError

EXAMPLES = ("umdf lake status lake    tables, rows, files, what waits to be swept",)
STATUS_EXAMPLES = ("umdf lake status lake", "umdf lake status lake --json")
VERIFY_EXAMPLES = ("umdf lake verify lake", "umdf lake verify lake --deep    reads every byte")
COMPACT_EXAMPLES = ("umdf lake compact lake    joins small files", "umdf lake compact lake --tables mbo,trades")
REPROCESS_EXAMPLES = (
    "umdf lake reprocess lake    every day, from its captures, as this version makes it",
    "umdf lake reprocess lake --date 2026-11-13 --channel 72",
    "umdf lake reprocess lake --config channels.toml    with other numbers of channels",
)
VACUUM_EXAMPLES = ("umdf lake vacuum lake    deletes what commits older than a week have replaced",)
DDL_EXAMPLES = (
    "umdf lake ddl lake --catalogue umdf > tables.sql",
    "umdf lake ddl lake --dialect unity --catalogue main.umdf --location s3://bucket/lake",
    "umdf lake ddl lake --dialect hive",
    "umdf lake ddl lake --dialect trino --catalogue delta.umdf",
)
ACCEPT_EXAMPLES = ("umdf lake accept lake mbo    keeps what someone else did to a table",)
ABORT_EXAMPLES = ("umdf lake abort lake    drops a commit that was begun and cannot be finished",)
RESTORE_EXAMPLES = ("umdf lake restore lake mbo    takes a table back to the lake's last commit",)
UPGRADE_EXAMPLES = ("umdf lake upgrade lake    converts a lake of an older umdf to the layout of this one",)
PACK_EXAMPLES = (
    "umdf lake pack umdf-env.tar.gz    for `umdf ingest … --master URL --packed umdf-env.tar.gz`",
    "umdf lake pack umdf-env.tar.gz --leave-out deltalake    only the driver needs it",
)
DAY_S = 24 * 3600.0
MAX_REPAIRS = 3  # commands in one line

LakeRoot = LakeArgument
Table = Annotated[str, typer.Argument(help="Name of the table.", metavar="TABLE")]


class Dialect(StrEnum):
    SPARK = "spark"
    UNITY = "unity"
    HIVE = "hive"
    TRINO = "trino"


def lake(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Look after a lake."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), end="")
        exit_with(ExitCode.DONE)
    if as_json:
        settings, name = ctx.default_map or {}, str(ctx.invoked_subcommand)
        ctx.default_map = {**settings, name: {**settings.get(name, {}), "as_json": True}}


def status(root: LakeRoot, as_json: JsonFlag = False) -> None:
    """Tables with their rows, files and bytes; a writer at work, an unfinished commit, files that can be swept."""
    from umdf.lake.admin.lake_status import status as status_of

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
        print(f"commit {result.pending} was begun and will be finished by the next writer")
    for damage in result.pending_damage:
        print(
            f"commit {result.pending} cannot be finished: {damage.table}/{damage.path} {damage.reason}; {damage.repair}"
        )
    for table in result.tables:
        if table.damage:
            print(table.damage)
    if result.writer is not None:
        print_escaped(f"being written: {result.writer.owner}")
    for what, files in (("orphans", result.orphans), ("replaced files", result.removed)):
        if files.files:
            print(f"{files.files} {what}, {files.bytes / 1e6:,.1f} MB")
    for path in result.unknown:
        print_escaped(f"not ours: {path}")


def verify(
    ctx: typer.Context,
    root: LakeRoot,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every file: compare it with its digest, and check its rows.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Every file of the last commit, and of one that was begun, is there, with the size and rows it should have."""
    from umdf.lake.admin.lake_status import count_without_digest
    from umdf.lake.admin.lake_status import verify as verify_lake
    from umdf.lake.commit.log import pending_number
    from umdf.lake.layout import open_lake_paths

    damages = verify_lake(root, deep)
    if deep and (unknown := count_without_digest(root)):
        why = "an older umdf or someone else has written them"
        printer_of(ctx).warn(f"{unknown} files have no digest to be compared with: {why}")
    if as_json:
        print_json([asdict(damage) for damage in damages])
    elif damages:
        print_table(("table", "file", "what"), [(damage.table, damage.path, damage.reason) for damage in damages])
    else:
        pending = pending_number(open_lake_paths(root))
        print(f"sound; commit {pending} was begun and will be finished by the next writer" if pending else "sound")
    if damages:
        repairs = list(dict.fromkeys(damage.repair for damage in damages))
        more = f"; and {len(repairs) - MAX_REPAIRS} more" if len(repairs) > MAX_REPAIRS else ""
        raise UmdfError(f"{len(damages)} files are damaged", "; ".join(repairs[:MAX_REPAIRS]) + more)


def compact(
    root: LakeRoot,
    tables: Annotated[str, typer.Option(help="Tables, with commas between them; else all.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Join the small files of each channel and day."""
    from umdf.lake.admin.compaction import compact as compact_lake
    from umdf.lake.commit.writer import open_writer

    names = [name.strip() for name in tables.split(",") if name.strip()] or None
    with open_writer(_require_lake(root), "compact") as writer:
        marker = compact_lake(writer, names)
    _print_result({"commit": marker.number if marker else None}, "nothing to join" if marker is None else "", as_json)


def vacuum(
    root: LakeRoot,
    days: Annotated[float, typer.Option(help="Commits younger than this stay readable.", min=0)] = 7.0,
    as_json: JsonFlag = False,
) -> None:
    """Delete orphans, and the files that older commits have replaced."""
    from umdf.lake.commit import vacuum
    from umdf.lake.commit.writer import open_writer

    with open_writer(_require_lake(root), "vacuum") as writer:
        orphans, replaced = vacuum.delete_orphans(writer), vacuum.vacuum(writer, days * DAY_S)
    result = {"files": orphans.files + replaced.files, "bytes": orphans.bytes + replaced.bytes}
    _print_result(result, "", as_json)


def reprocess(
    ctx: typer.Context,
    root: LakeRoot,
    date: Annotated[str | None, typer.Option(help="Only this trading date.", metavar="YYYY-MM-DD")] = None,
    channel: Annotated[int | None, typer.Option(help="Only this channel.")] = None,
    cores: Annotated[int | None, typer.Option(help="Cores of this machine to use; else all.", min=1)] = None,
    config: Annotated[
        Path | None, typer.Option(help="Groups and ports of channels (TOML), from now on.", metavar="FILE")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Without Spark, in processes of our own.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make days again from their captures, which must still be where they were, with the rules of this version.

    Readers see the old rows until all new ones are there. Use it after an update that makes a table better, or when a
    table was damaged. --config takes the place of the configuration that the lake was made with, in every day.
    """
    from umdf.cli.commands.ingest import open_runner, print_outcome, progress_bars
    from umdf.cli.spark_options import spark_session_options
    from umdf.cli.time_options import parse_trading_date
    from umdf.lake.commit.repair import rebuild_lost_logs
    from umdf.lake.commit.writer import open_writer
    from umdf.lake.ingest import IngestSettings, ingest_captures
    from umdf.lake.plan.input_paths import read_channel_config
    from umdf.lake.plan.inputs import known_days

    if config is not None and (date is not None or channel is not None):
        raise UsageError("--config is of the whole lake", "leave --date and --channel out")
    settings = IngestSettings(channel_config=read_channel_config(config), is_config_replaced=config is not None)
    printer, started_s, date_filter = printer_of(ctx), time.monotonic(), parse_trading_date(date)
    spark_options = spark_session_options(None, cores, None, None, plain)
    with open_writer(_require_lake(root), "reprocess", check=False) as writer:
        for name in rebuild_lost_logs(writer):
            printer.warn(f"the log of table {name} was damaged, and was made again: earlier commits of it are lost")
        writer.refuse_foreign_changes()
        days = known_days(writer, date_filter.isoformat() if date_filter else None, channel)
        with open_runner(root, spark_options, plain) as run, progress_bars(printer) as stage:
            outcome = ingest_captures([], writer, run, settings, stage, rebuild=days)
    print_outcome(outcome, time.monotonic() - started_s, as_json)


def ddl(
    root: LakeRoot,
    dialect: Annotated[Dialect, typer.Option(help="Whose SQL.")] = Dialect.SPARK,
    catalogue: Annotated[str, typer.Option(help="Name of the schema, or catalogue.schema.")] = "umdf",
    location: Annotated[
        str | None, typer.Option(help="The lake as they reach it; else its path.", metavar="URL")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Statements that make every stored table known to a catalogue: Spark, Unity Catalog, Hive or Trino."""
    from umdf.lake.admin.lake_status import ddl as ddl_of

    text = ddl_of(root, dialect.value, catalogue, location)
    print_json({"ddl": text}) if as_json else print(text)


def accept(root: LakeRoot, table: Table, as_json: JsonFlag = False) -> None:
    """Keep what someone else has done to a table."""
    from umdf.lake.commit import writer

    with writer.open_writer(_require_lake(root), "accept", check=False) as lake_writer:
        _print_result({"commit": writer.accept(lake_writer, table).number}, "", as_json)


def restore(root: LakeRoot, table: Table, as_json: JsonFlag = False) -> None:
    """Take a table back to where the lake's last commit left it."""
    from umdf.lake.commit import writer

    with writer.open_writer(_require_lake(root), "restore", check=False) as lake_writer:
        _print_result({"commit": writer.restore(lake_writer, table).number}, "", as_json)


def abort(root: LakeRoot, as_json: JsonFlag = False) -> None:
    """Drop a commit that was begun and not finished, for example because one of its files is damaged.

    Tables that it has changed already are taken back; its captures can be ingested again. Without an unfinished commit
    there is nothing to do.
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
    cores: Annotated[int | None, typer.Option(help="CPU cores to use (default 1).", min=1)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Convert a lake of an older umdf: rename columns and values to those of this version.

    The files of tables with renamed columns are written anew, with the same rows; no captures and no Spark are needed.
    Readers of the old version see the old lake until everything is done. The old files stay until `umdf lake vacuum`.
    """
    from umdf.lake.admin.upgrade import upgrade as upgrade_lake
    from umdf.lake.layout import LAYOUT
    from umdf.lake.runtime.local_runner import LocalRunner

    with LocalRunner(cores or 1) as runner:
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
    out: Annotated[Path, typer.Argument(help="The archive to write: .tar.gz, .tgz or .tar.", metavar="FILE")],
    leave_out: Annotated[str, typer.Option(help="Packages that workers have already, with commas.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Pack what the workers of a cluster run: this umdf, what it requires, and its kernels, compiled.

    Workers need the same Python at the same path, and processors of the same kind (else kernels are compiled there).
    """
    from umdf.lake.runtime.environment_archive import SPARK_PACKAGES, write_archive
    from umdf.warmup import warm_all

    warm_all()
    archive = write_archive(out, {*SPARK_PACKAGES, *(name.strip() for name in leave_out.split(",") if name.strip())})
    if as_json:
        print_json(asdict(archive))
        return
    print(f"{archive.path}: {archive.bytes / 1e6:,.1f} MB, {len(archive.packages)} packages, {archive.kernels} kernels")
    print(f"for workers with {archive.python}")


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
    (reprocess, REPROCESS_EXAMPLES),
    (forget, FORGET_EXAMPLES),
    (vacuum, VACUUM_EXAMPLES),
    (ddl, DDL_EXAMPLES),
    (accept, ACCEPT_EXAMPLES),
    (restore, RESTORE_EXAMPLES),
    (abort, ABORT_EXAMPLES),
    (upgrade, UPGRADE_EXAMPLES),
    (pack, PACK_EXAMPLES),
)
