"""`umdf decode`: captures as JSON, FIX, a table or Parquet."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from umdf.cli.tables import show_table
from umdf.cli.voice import DamagedError, JsonFlag, Voice, voice_of
from umdf.errors import ConfigError

if TYPE_CHECKING:
    from umdf.cli.reading import Decoded, Tally
    from umdf.wire.sbe.view import Row

EXAMPLES = (
    "umdf decode day.pcap --limit 20                  the first messages, as a table",
    "umdf decode day.pcap.zst --format json --names   one object a message, codes by name",
    "umdf decode a.pcap b.pcap.gz --format fix --out day.fix",
    "umdf decode day.pcap --format parquet --out day  a Parquet file per template in day/",
    "umdf decode day.pcap --schema b3-market-data-messages.xml --json",
)
TABLE_ROWS = 100  # shown unless --limit says otherwise: a table is for people
FAULTS_SHOWN = 10


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
    files: Annotated[list[Path], typer.Argument(help="Captures: pcap, pcapng, also as .gz or .zst.", metavar="FILE…")],
    protocol: Annotated[ProtocolName, typer.Option(help="auto: by what the packets look like.")] = ProtocolName.AUTO,
    schema: Annotated[Path | None, typer.Option(help="The exchange's SBE schema (XML) instead of ours.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to print the messages.")] = Format.TABLE,
    out: Annotated[Path | None, typer.Option(help="Write here instead of stdout; for parquet a directory.")] = None,
    limit: Annotated[int | None, typer.Option(help="Stop after so many messages.", min=0)] = None,
    names: Annotated[bool, typer.Option("--names", help="Codes and set bits by their names.")] = False,
    quarantine: Annotated[Path | None, typer.Option(help="Write every quarantined message here (JSON lines).")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="End with 4 if anything was damaged.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Decode captures, message by message.

    JSON is one object a message: packet (its number in the file), channel, seq_version, sequence, msg_index,
    template_id, name and fields. Values are exact: integers and codes as sent, decimals as text; absent fields are left
    out. FIX is tag=value, a line a message. What cannot be decoded is quarantined and counted, and the rest goes on.
    """
    from umdf.cli.reading import ProtocolChoice, Tally, decode_files
    from umdf.wire.sbe.loader import load

    voice, tally = voice_of(ctx), Tally()
    format_ = Format.JSON if as_json else format_
    if format_ is Format.PARQUET and out is None:
        raise ConfigError("Parquet needs a directory", "say which with --out DIR")
    with ExitStack() as stack:
        loaded = load(schema)
        faults = stack.enter_context(quarantine.open("w")) if quarantine else None
        sink = stack.enter_context(_sink(format_, out, names, limit))
        for decoded in decode_files(files, loaded, ProtocolChoice(protocol), tally):
            tally.messages += sink.take(decoded)
            _report_quarantine(voice, tally, decoded, faults)
            if sink.is_full:
                break
    _report(voice, tally)
    if strict and not tally.is_sound:
        raise DamagedError("part of the input was damaged")


def _report_quarantine(voice: Voice, tally: Tally, decoded: Decoded, faults: TextIO | None) -> None:
    from umdf.cli.reading import quarantine

    for entry in decoded.batch.journal:
        if entry.skipped:
            tally.skipped[entry.reason] += 1
            continue
        tally.quarantined += 1
        found = quarantine(decoded, entry)
        if faults:
            faults.write(json.dumps(found) + "\n")
        if tally.quarantined <= FAULTS_SHOWN:
            place = f"{found['file']}: packet {found['packet']}, byte {found['offset']}"
            template = f", template {found['template_id']}" if found["template_id"] is not None else ""
            voice.warn(f"{place}{template}: {f'{entry.field}: ' if entry.field else ''}{entry.reason}")
        elif tally.quarantined == FAULTS_SHOWN + 1:
            voice.warn("more messages are quarantined; --quarantine FILE writes them all")


def _report(voice: Voice, tally: Tally) -> None:
    for damage in tally.damaged:
        voice.warn(damage)
    for reason, count in tally.skipped.most_common():
        voice.warn(f"{count} messages skipped: {reason}")
    if tally.quarantined:
        voice.warn(f"{tally.quarantined} messages quarantined, {tally.messages} decoded")
    if tally.packets and tally.unrecognised == tally.packets:
        voice.warn("no packet looks like Binary UMDF; --protocol sbe decodes them as such all the same")
    elif tally.unrecognised:
        voice.warn(f"{tally.unrecognised} of {tally.packets} packets are not Binary UMDF")


def _sink(format_: Format, out: Path | None, names: bool, limit: int | None) -> Sink:
    if format_ is Format.PARQUET:
        assert out is not None
        return ParquetSink(out, limit)
    if format_ is Format.TABLE:
        return TableSink(out, names, TABLE_ROWS if limit is None else limit)
    return LineSink(out, names, limit, as_fix=format_ is Format.FIX)


class Sink:
    """Where decoded messages go; a context manager. `take` says how many it took."""

    def __init__(self, limit: int | None) -> None:
        self.left = limit

    @property
    def is_full(self) -> bool:
        return self.left == 0

    def room(self, wanted: int) -> int:
        taken = wanted if self.left is None else min(wanted, self.left)
        self.left = None if self.left is None else self.left - taken
        return taken

    def take(self, decoded: Decoded) -> int:
        raise NotImplementedError

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, *error: Any) -> None: ...


class RowSink(Sink):
    """Takes messages one by one."""

    def __init__(self, out: Path | None, names: bool, limit: int | None) -> None:
        super().__init__(limit)
        self.names = names
        self.stream: TextIO = out.open("w", encoding="utf-8") if out else sys.stdout

    def take(self, decoded: Decoded) -> int:
        from umdf.wire.sbe.view import rows

        taken = 0
        for row in rows(decoded.batch, names=self.names):
            if not self.room(1):
                break
            self.show(decoded, row)
            taken += 1
        return taken

    def show(self, decoded: Decoded, row: Row) -> None:
        raise NotImplementedError

    def __exit__(self, *error: Any) -> None:
        self.stream.flush()
        if self.stream is not sys.stdout:
            self.stream.close()


class LineSink(RowSink):
    def __init__(self, out: Path | None, names: bool, limit: int | None, as_fix: bool) -> None:
        super().__init__(out, names and not as_fix, limit)
        self.as_fix = as_fix

    def show(self, decoded: Decoded, row: Row) -> None:
        if self.as_fix:
            from umdf.wire.fix.text import line
            from umdf.wire.sbe.view import fix_fields

            self.stream.write(line(fix_fields(row.node.block, row.fields)) + "\n")
        else:
            self.stream.write(json.dumps(message_object(decoded, row), ensure_ascii=False) + "\n")


def message_object(decoded: Decoded, row: Row) -> dict[str, Any]:
    """A message as `--format json` prints it."""
    batch, message = decoded.batch, decoded.batch.layout.message_of(row.node)
    return {
        "packet": decoded.number(row.packet),
        "channel": int(batch.channel[row.packet]),
        "seq_version": int(batch.seq_version[row.packet]),
        "sequence": int(batch.sequence[row.packet]),
        "msg_index": row.msg_index,
        "template_id": message.template_id,
        "name": message.name,
        "fields": row.fields,
    }


class TableSink(RowSink):
    def __init__(self, out: Path | None, names: bool, limit: int) -> None:
        super().__init__(out, True, limit)
        self.shown: list[tuple[str, ...]] = []

    def show(self, decoded: Decoded, row: Row) -> None:
        from umdf.units import utc_text

        found = message_object(decoded, row)
        fields = " ".join(f"{name}={_short(value)}" for name, value in row.fields.items())
        time = utc_text(int(decoded.packets.ts_ns[decoded.chosen[row.packet]]))[11:]
        keys = ("packet", "channel", "sequence", "msg_index", "name")
        packet, channel, sequence, index, name = (str(found[key]) for key in keys)
        self.shown.append((packet, time, channel, sequence, index, name, fields))

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            columns = ("packet", "time (UTC)", "channel", "sequence", "msg", "message", "fields")
            show_table(columns, self.shown, stream=self.stream)
            if self.is_full and self.stream is sys.stdout and sys.stdout.isatty():
                print(f"{len(self.shown)} messages shown; --limit says how many")
        super().__exit__(*error)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"[{len(value)}]" if value and isinstance(value[0], dict) else "|".join(map(str, value)) or "0"
    if isinstance(value, dict):
        return "-".join(map(str, value.values()))
    return str(value)


class ParquetSink(Sink):
    """A file per template, opened when its first message comes."""

    def __init__(self, directory: Path, limit: int | None) -> None:
        super().__init__(limit)
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.writers: dict[int, Any] = {}

    def take(self, decoded: Decoded) -> int:
        import numpy as np
        import pyarrow.parquet as pq

        from umdf.wire.sbe.export import readable

        batch, layout = decoded.batch, decoded.batch.layout
        nodes = [layout.roots[template_id] for template_id in batch.templates]
        places = [batch.packet(node).astype(np.int64) << 16 | batch.msg_index(node) for node in nodes]
        everything = np.sort(np.concatenate(places)) if places else np.empty(0, np.int64)
        taken = self.room(len(everything))
        last = everything[taken - 1] if taken else -1
        for template_id, place in zip(batch.templates, places, strict=True):
            table = batch.record_batch(template_id).slice(0, int((place <= last).sum()))
            if not table.num_rows:
                continue
            table = _with_packet(decoded, readable(table))
            if template_id not in self.writers:
                path = self.directory / f"{layout.roots[template_id].path}.parquet"
                self.writers[template_id] = pq.ParquetWriter(path, table.schema, compression="zstd")
            self.writers[template_id].write_batch(table)
        return taken

    def __exit__(self, *error: Any) -> None:
        for writer in self.writers.values():
            writer.close()


def _with_packet(decoded: Decoded, table: Any) -> Any:
    """The columns that say where a message came from, in front of its own."""
    import pyarrow as pa

    batch, packet = decoded.batch, table.column("packet").to_numpy()
    frame = decoded.chosen[packet]
    own = {
        "packet": decoded.packets.number[frame],
        "ts_recv": decoded.packets.ts_ns[frame],
        "sending_time": batch.sending_time[packet],
        "channel": batch.channel[packet],
        "seq_version": batch.seq_version[packet],
        "sequence": batch.sequence[packet],
    }
    fields = [pa.field(name, pa.from_numpy_dtype(column.dtype), nullable=False) for name, column in own.items()]
    arrays = [pa.array(column) for column in own.values()]
    schema = pa.schema(fields + list(table.schema)[1:], table.schema.metadata)
    return pa.RecordBatch.from_arrays(arrays + table.columns[1:], schema=schema)
