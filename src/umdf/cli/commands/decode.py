"""`umdf decode`: captures as JSON, FIX, a table or Parquet."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from umdf.cli.arguments import FastTemplatesOption, SbeSchemaOption, parse_path
from umdf.cli.output import DamagedError, Printer, counted, json_text, printer_of
from umdf.cli.text_table import fits, print_table, terminal_width
from umdf.errors import UsageError

if TYPE_CHECKING:
    from umdf.cli.decoding.files import DecodeCounts
    from umdf.cli.decoding.messages import DecodedBatch, DecodedMessage

EXAMPLES = (
    "umdf decode day.pcap --limit 20                   the first 20 messages, as a table",
    "umdf decode day/capture --json                    every capture in a directory",
    "umdf decode day.pcap.zst --format json --names    one JSON object per message, enum values by name",
    "umdf decode a.pcap b.pcap.gz --format fix --out day.fix",
    "umdf decode day.pcap --format parquet --out day   one Parquet file per template, in day/",
    "zcat day.pcap.gz | umdf decode -",
    "umdf decode day.pcap --sbe-schema b3-market-data-messages.xml --json",
    "umdf decode fast.bin --fast-templates templates-FIX.xml --format fix",
)
MAX_TABLE_ROWS = 100  # on a terminal, unless --limit says otherwise
MAX_WARNINGS = 10
COLUMNS = ("packet", "time (UTC)", "channel", "sequence", "msg", "message", "fields")
MIN_FIELDS_WIDTH = 20


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    FIX = "fix"
    PARQUET = "parquet"


class ProtocolName(StrEnum):
    AUTO = "auto"
    FAST = "fast"
    SBE = "sbe"


def decode(
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            parser=parse_path,
            help=(
                "Captures (pcap, pcapng), directories of captures, or raw FAST streams; may be compressed (.gz, .zst); "
                "- for stdin"
            ),
            metavar="FILE",
        ),
    ],
    protocol: Annotated[
        ProtocolName, typer.Option(help="Protocol of the packets; auto detects it per flow")
    ] = ProtocolName.AUTO,
    sbe_schema: SbeSchemaOption = None,
    fast_templates: FastTemplatesOption = None,
    format_: Annotated[Format, typer.Option("--format", help="Output format")] = Format.TABLE,
    out: Annotated[
        Path | None, typer.Option(help="Output file, or directory for parquet (default: stdout)", metavar="PATH")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            help=f"Maximum messages, 0 for all (default: {MAX_TABLE_ROWS} for a table on a terminal, otherwise all)",
            metavar="N",
            min=0,
        ),
    ] = None,
    names: Annotated[bool, typer.Option("--names", help="Show enum and set values by name (SBE only)")] = False,
    quarantine: Annotated[
        Path | None, typer.Option(help="File for quarantined messages, as JSON lines", metavar="FILE")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 4 if part of the input was damaged")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json; errors are JSON too")] = False,
) -> None:
    """Decode captures into messages.

    `--format json` prints one object per message: file, packet (its number in the file), ts_recv and ts_send
    (nanoseconds, UTC), channel, seq_version, sequence, msg_index, template_id, name and fields. Values are exact:
    integers and codes as sent, decimals as strings, SBE dates as 2026-11-13; absent fields are omitted.

    `--format fix` prints one tag=value line per message; tags 34 and 52 of an SBE message come from its packet header.

    Messages that cannot be decoded are quarantined and counted, and decoding continues.
    """
    from umdf.cli.decoding.fast_reader import FastReader
    from umdf.cli.decoding.files import AUTO, DecodeCounts, Readers, WireProtocol, decode_files
    from umdf.cli.decoding.sbe_reader import SbeReader
    from umdf.cli.replay import expand_captures
    from umdf.wire.fast.loader import load as load_templates
    from umdf.wire.sbe.loader import load as load_schema

    printer, counts = printer_of(ctx), DecodeCounts()
    format_ = _effective_format(ctx, format_, as_json)
    if format_ is Format.PARQUET and out is None:
        raise UsageError("--format parquet writes a directory", "add --out DIR")
    if format_ in (Format.FIX, Format.PARQUET) and _is_on_command_line(ctx, "names"):
        raise UsageError(f"--names cannot be used with --format {format_}", "remove one of them")
    paths = expand_captures(files)
    # A given schema is read now, so that its faults are reported even if no packet needs it.
    schema = load_schema(sbe_schema) if sbe_schema else None
    templates = load_templates(fast_templates) if fast_templates else None
    readers = Readers(lambda: SbeReader(schema or load_schema()), lambda: FastReader(templates or load_templates()))
    wire_protocol = {ProtocolName.AUTO: AUTO, ProtocolName.SBE: WireProtocol.SBE, ProtocolName.FAST: WireProtocol.FAST}[
        protocol
    ]
    with ExitStack() as stack:
        faults = stack.enter_context(quarantine.open("w")) if quarantine else None
        sink = stack.enter_context(_open_sink(printer, format_, out, names, limit, len(paths) > 1))
        for decoded in decode_files(paths, readers, wire_protocol, counts):
            counts.messages += sink.write_batch(decoded)
            _handle_quarantine(printer, counts, decoded, faults)
            if sink.is_full:
                break
    _print_summary(printer, counts)
    if strict and not counts.is_undamaged:
        raise DamagedError("part of the input was damaged")


def _is_on_command_line(ctx: typer.Context, name: str) -> bool:
    """Whether a flag was given on the command line, before or after `decode`; settings of a file are only defaults."""
    sources = (context.get_parameter_source(name) for context in (ctx, ctx.find_root()))
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


def _effective_format(ctx: typer.Context, format_: Format, as_json: bool) -> Format:
    is_explicit = _is_on_command_line(ctx, "format_")
    if is_explicit and format_ is not Format.JSON and _is_on_command_line(ctx, "as_json"):
        raise UsageError(f"--json cannot be used with --format {format_}", "remove one of them")
    return Format.JSON if as_json and not is_explicit else format_


def _handle_quarantine(printer: Printer, counts: DecodeCounts, decoded: DecodedBatch, faults: TextIO | None) -> None:
    counts.skipped.update(decoded.skip_reasons())
    counts.anomalies.update(decoded.anomalies())
    for fault in decoded.quarantine():
        counts.quarantined += 1
        if faults:
            faults.write(json.dumps(fault.as_json()) + "\n")
        if counts.quarantined <= MAX_WARNINGS:
            printer.warn(str(fault))
        elif counts.quarantined == MAX_WARNINGS + 1:
            printer.warn("more messages were quarantined; write them all with --quarantine FILE")


def _print_summary(printer: Printer, counts: DecodeCounts) -> None:
    for damage in counts.damaged:
        printer.warn(damage)
    for notice in counts.notices:
        printer.warn(notice)
    for reason, count in counts.skipped.most_common():
        printer.warn(f"{counted(count, 'message')} skipped: {reason}")
    for reason, count in counts.anomalies.most_common():
        printer.warn(f"{counted(count, 'message')} decoded with an anomaly: {reason}")
    if counts.quarantined:
        printer.warn(f"{counted(counts.quarantined, 'message')} quarantined, {counts.messages:,} decoded")
    if counts.packets and counts.unrecognised == counts.packets:
        printer.warn("no UMDF packets found; force a protocol with --protocol sbe or --protocol fast")
    elif counts.unrecognised:
        printer.warn(f"{counts.unrecognised} of {counts.packets} packets are not UMDF")


def _open_sink(
    printer: Printer, format_: Format, out: Path | None, names: bool, limit: int | None, has_several_files: bool
) -> Sink:
    if format_ is Format.PARQUET:
        assert out is not None
        return ParquetSink(out, limit or None)
    stream: TextIO = out.open("w", encoding="utf-8") if out else sys.stdout
    if format_ is Format.TABLE:
        return TableSink(printer, stream, limit, has_several_files)
    return LineSink(stream, names, limit or None, as_fix=format_ is Format.FIX)


class Sink(ABC):
    """Writes decoded messages; a context manager. `write_batch` returns how many it wrote."""

    def __init__(self, limit: int | None) -> None:
        self.remaining = limit

    @property
    def is_full(self) -> bool:
        return self.remaining == 0

    def reserve(self, count: int) -> int:
        count = count if self.remaining is None else min(count, self.remaining)
        self.remaining = None if self.remaining is None else self.remaining - count
        return count

    @abstractmethod
    def write_batch(self, decoded: DecodedBatch) -> int: ...

    def __enter__(self) -> Sink:
        return self

    @abstractmethod
    def __exit__(self, *error: Any) -> None: ...


class RowSink(Sink):
    """Writes messages one by one."""

    def __init__(self, stream: TextIO, names: bool, limit: int | None) -> None:
        super().__init__(limit)
        self.stream, self.names = stream, names

    def write_batch(self, decoded: DecodedBatch) -> int:
        count = 0
        for message in decoded.messages(self.names):
            if not self.reserve(1):
                break
            self.write_message(message)
            count += 1
        return count

    @abstractmethod
    def write_message(self, message: DecodedMessage) -> None: ...

    def __exit__(self, *error: Any) -> None:
        self.stream.flush()
        if self.stream is not sys.stdout:
            self.stream.close()


class LineSink(RowSink):
    def __init__(self, stream: TextIO, names: bool, limit: int | None, as_fix: bool) -> None:
        super().__init__(stream, names and not as_fix, limit)
        self.as_fix = as_fix

    def write_message(self, message: DecodedMessage) -> None:
        from umdf.wire.fix.text import format_fields

        self.stream.write(format_fields(message.fix()) if self.as_fix else json_text(message.as_json()))
        self.stream.write("\n")


class TableSink(RowSink):
    """On a terminal the first messages, as a drawn table if it fits; elsewhere tab-separated lines of all, batch by
    batch."""

    def __init__(self, printer: Printer, stream: TextIO, limit: int | None, has_several_files: bool) -> None:
        self.is_drawn = stream.isatty()
        self.max_rows = MAX_TABLE_ROWS if self.is_drawn and limit is None else None
        super().__init__(
            stream, True, self.max_rows + 1 if self.max_rows else limit or None
        )  # one more, to know whether there are more
        self.printer, self.has_several_files, self.row_count, self.file = printer, has_several_files, 0, ""
        # Not written yet. The file of a drawn table is its title: as a column it would be too wide.
        self.lines: list[tuple[str, ...]] = [("file", *COLUMNS) if has_several_files and not self.is_drawn else COLUMNS]

    def write_batch(self, decoded: DecodedBatch) -> int:
        count = super().write_batch(decoded)
        if not self.is_drawn:
            self.print_rows()
        return count

    def write_message(self, message: DecodedMessage) -> None:
        from umdf.units import utc_text

        self.row_count += 1
        if self.row_count - 1 == self.max_rows:  # it only shows that there are more
            return
        if self.is_drawn and message.file != self.file:
            if self.file:
                self.print_rows()
                self.lines = [COLUMNS]
            self.file = message.file
        time = "" if message.ts_recv is None else utc_text(message.ts_recv)[11:]
        channel = "" if message.channel is None else str(message.channel)
        numbers = str(message.packet), time, channel, str(message.sequence), str(message.msg_index)
        fields = " ".join(f"{name}={_short_text(value)}" for name, value in message.fields.items())
        source = (message.file,) if self.has_several_files and not self.is_drawn else ()
        self.lines.append((*source, *numbers, message.name, fields))

    def print_rows(self) -> None:
        if self.lines:  # tab-separated lines include the names of the columns
            title = self.file if self.has_several_files else ""
            width = terminal_width(self.stream)
            if width is None or fits(self.lines[0], self.lines[1:], width):
                print_table(self.lines[0], self.lines[1:], title=title, stream=self.stream)
            else:
                self.print_blocks(title, width)
            self.lines = []

    def print_blocks(self, title: str, width: int) -> None:
        """For a terminal that is too narrow for a table: a line for each message, and its fields below it."""
        from umdf.units import printable

        if title:
            print(printable(title), file=self.stream)
        for packet, time, channel, sequence, msg_index, name, fields in self.lines[1:]:
            place = f"packet {packet}  {time}  channel {channel or '?'}  sequence {sequence}:{msg_index}"
            lines = wrap(printable(fields), max(width - 2, MIN_FIELDS_WIDTH), break_on_hyphens=False)
            print(printable(f"{name}  {place}"), *(f"  {line}" for line in lines), sep="\n", file=self.stream)

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self.print_rows()
            if self.max_rows and self.row_count > self.max_rows:
                self.printer.warn(f"showing the first {self.max_rows} messages; use --limit 0 for all")
        super().__exit__(*error)


def _short_text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{len(value)}]" if value and isinstance(value[0], dict) else "|".join(map(str, value)) or "0"
    if isinstance(value, dict):
        return "-".join(map(str, value.values()))
    return str(value)


class ParquetSink(Sink):
    """A file per template, opened at its first message."""

    def __init__(self, directory: Path, limit: int | None) -> None:
        super().__init__(limit)
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.writers: dict[str, Any] = {}

    def write_batch(self, decoded: DecodedBatch) -> int:
        import pyarrow.parquet as pq

        count = self.reserve(decoded.count)
        for name, table in decoded.tables(count):
            if name not in self.writers:
                path = self.directory / f"{name}.parquet"
                self.writers[name] = pq.ParquetWriter(path, table.schema, compression="zstd")
            self.writers[name].write_batch(table)
        return count

    def __exit__(self, *error: Any) -> None:
        for writer in self.writers.values():
            writer.close()
