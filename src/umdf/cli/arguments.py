"""Arguments and options that several commands share. Paths may be file: URLs, of which a plain Path loses a slash."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def parse_path(text: str | Path) -> Path:
    from umdf.lake.locations import local_path

    return local_path(text)


LakeArgument = Annotated[Path, typer.Argument(parser=parse_path, help="Lake directory", metavar="LAKE")]
TargetLakeOption = Annotated[
    Path, typer.Option(parser=parse_path, help="Lake directory, created if missing", metavar="LAKE")
]
SbeSchemaOption = Annotated[
    Path | None, typer.Option(help="SBE schema (XML) to use instead of the built-in one", metavar="FILE")
]
FastTemplatesOption = Annotated[
    Path | None, typer.Option(help="FAST templates (XML) to use instead of the built-in ones", metavar="FILE")
]
SymbolsOption = Annotated[str, typer.Option(help="Symbols, comma-separated (default: all)", metavar="SYMBOLS")]
StartOption = Annotated[
    str,
    typer.Option(
        help="Start of the range, inclusive: trading date or time (UTC unless it has an offset)", metavar="DATE|TIME"
    ),
]
EndOption = Annotated[str, typer.Option(help="End of the range, exclusive", metavar="DATE|TIME")]
TablesOption = Annotated[
    str, typer.Option(help="Tables to write, comma-separated (default: all but mbp_10)", metavar="TABLES")
]
ChannelsOption = Annotated[
    Path | None, typer.Option(help="Channel addresses (TOML), where detection is not enough", metavar="FILE")
]
WriterWaitOption = Annotated[float, typer.Option(help="Seconds to wait for another writer", metavar="SECONDS")]
NoSparkFlag = Annotated[bool, typer.Option("--no-spark", help="Use local worker processes instead of Spark")]


def split_list(text: str) -> list[str]:
    """The items of a comma-separated option."""
    return [item.strip() for item in text.split(",") if item.strip()]
