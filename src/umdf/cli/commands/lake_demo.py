"""`umdf lake demo`: a small example lake, from a synthetic session with some loss."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from umdf.cli.output import JsonFlag, print_json
from umdf.errors import UmdfError, require

DEMO_EXAMPLES = ("umdf lake demo demo", "umdf lake demo demo --messages 500000", "umdf lake demo demo --json")
INSTRUMENTS, MINUTES = 20, 20
LOSS = 0.004  # of each line; little is lost on both

NEXT_STEPS = (
    ("list its tables", "umdf lake status {lake}"),
    ("read rows", "umdf query {lake} --schema trades --symbols {symbol} --limit 10"),
    (
        "run SQL",
        'umdf query {lake} "SELECT symbol, volume FROM day_statistics ORDER BY 2 DESC"',
    ),
    ("draw a chart", "umdf query {lake} --schema ohlcv_1m --symbols {symbol} --chart chart.html"),
    ("write a report", "umdf report {lake}"),
)


def demo(
    directory: Annotated[Path, typer.Argument(help="Directory to create", metavar="DIR")],
    messages: Annotated[int, typer.Option(help="Approximate number of messages", metavar="N", min=5_000)] = 60_000,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed produces the same session", metavar="N")] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Build a small example lake in DIR/lake, from a simulated session in DIR/day.

    Twenty minutes of some twenty instruments on both lines, with some packet loss, so that gaps and recovered books are
    in it. Takes about ten seconds and does not need Spark.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UmdfError(f"{directory} already exists", "use a new or empty directory")
    require("deltalake", "a lake")
    started_s = time.monotonic()
    result = _build(directory, messages, seed)
    result["seconds"] = round(time.monotonic() - started_s, 1)
    commands = [(what, command.format(**result)) for what, command in NEXT_STEPS]
    if as_json:
        print_json(result | {"next": [command for _, command in commands]})
        return
    summary = f"{result['events']:,} events, {result['instruments']} instruments, {result['gaps']} gaps"
    print(f"{result['lake']}: {summary} ({result['seconds']} s)\n\nNext steps:")
    for what, command in commands:
        print(f"  # {what}\n  {command}")


def _build(directory: Path, messages: int, seed: int) -> dict[str, Any]:
    from umdf.exchange.bulk.capture import write_capture
    from umdf.exchange.bulk.settings import BulkSettings
    from umdf.lake.commit.writer import open_writer
    from umdf.lake.ingest import ingest_captures
    from umdf.lake.ingest_settings import IngestSettings
    from umdf.lake.query.lake import Lake
    from umdf.lake.runtime.local_runner import LocalRunner

    rate = max(messages // (MINUTES * 60), 10)
    write_capture(BulkSettings(messages, INSTRUMENTS, loss=LOSS, seed=seed, rate=rate, roll_s=300), directory / "day")
    root = directory / "lake"
    with open_writer(root, "demo") as writer, LocalRunner() as run:
        outcome = ingest_captures(sorted((directory / "day" / "capture").glob("*.pcap")), writer, run, IngestSettings())
    rows = Lake(root).get_range("day_statistics", columns=["symbol", "trade_count"]).to_arrow().to_pylist()
    most_traded = max(rows, key=lambda row: row["trade_count"] or 0)
    return {"lake": str(root), "day": str(directory / "day"), "symbol": most_traded["symbol"],
            "events": outcome.rows["mbo"], "instruments": len(rows), "gaps": outcome.gaps,
            "messages": outcome.messages}  # fmt: skip
