"""`umdf explain`: every header and field of one packet."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.arguments import FastTemplatesOption, SbeSchemaOption, parse_path
from umdf.cli.commands.decode import ProtocolName
from umdf.cli.output import JsonFlag, print_escaped, print_json
from umdf.cli.text_table import fits, print_table, terminal_width
from umdf.errors import CaptureError, UsageError

if TYPE_CHECKING:
    from umdf.transport.capture import Flow
    from umdf.wire.fast.templates import TemplateSet
    from umdf.wire.sbe.schema import Schema

EXAMPLES = (
    "umdf explain day.pcap --packet 17                  packet 17, as Wireshark numbers it",
    "umdf explain day.pcap.zst --packet 17 --json",
    "umdf explain --lake lake --row mbo:72:273:1005:2   the packet behind a row of the lake",
    "umdf explain day.pcap --packet 1 --sbe-schema b3-market-data-messages.xml",
    "umdf explain fast.pcap --packet 3 --fast-templates templates-FIX.xml",
)
HEADER = ("MsgSeqNum", "NoChunks", "CurrentChunk", "MsgLength")
MAX_RAW_BYTES = 16  # bytes of a long value
MAX_NARROW_BYTES, MAX_NARROW_VALUE = 8, 18  # on a narrow terminal, which has no column for the meaning
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? UTC")


@dataclass(frozen=True)
class ExplainedLine:
    """One header or field of a packet. What is not sent (constants, defaults, absent fields) has no offset or bytes."""

    depth: int
    name: str
    offset: int | None
    raw: str  # hexadecimal
    tag: int | None
    encoding: str  # FAST: operator, presence-map bit, where the value came from
    value: Any
    meaning: str
    is_damaged: bool = False


@dataclass(frozen=True)
class CapturedPacket:
    file: Path
    number: int
    flow_number: int  # as numbered in the file
    flow: Flow
    ts_ns: int
    payload: bytes


@dataclass(frozen=True)
class ChunkedMessage:
    """A FAST message of several chunks. Offsets in its lines are from its own start."""

    sequence: int
    packets: tuple[int, ...]  # of its chunks, in their order
    bytes: int
    lines: list[ExplainedLine]


def explain(
    file: Annotated[
        Path | None,
        typer.Argument(
            parser=parse_path,
            help=(
                "Capture (pcap, pcapng), directory with one capture, or raw FAST stream; may be compressed "
                "(.gz, .zst); - for stdin"
            ),
            metavar="FILE",
        ),
    ] = None,
    packet: Annotated[
        int | None,
        typer.Option(help="Packet number in the file, starting at 1, as in Wireshark", metavar="N", min=1),
    ] = None,
    lake: Annotated[
        Path | None,
        typer.Option(parser=parse_path, help="Lake to look a row up in, instead of FILE and --packet", metavar="LAKE"),
    ] = None,
    row: Annotated[
        str | None,
        typer.Option(help="Row to trace back to its packet, in the format above", metavar="ROW"),
    ] = None,
    protocol: Annotated[ProtocolName, typer.Option(help="Protocol of the packet; auto detects it")] = ProtocolName.AUTO,
    sbe_schema: SbeSchemaOption = None,
    fast_templates: FastTemplatesOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Explain every byte of one packet: offset, bytes, field, value, meaning.

    For FAST, also the operator of each field, its presence-map bit, and whether the value came from the wire, a default
    or the dictionary. If the packet holds a chunk of a larger message, the reassembled message follows, with offsets
    from its own start.

    With --lake, ROW is TABLE:CHANNEL:SEQ_VERSION:SEQUENCE\\[:MSG_INDEX\\[:ENTRY_INDEX]]: a table and the columns
    channel_id, seq_version, sequence, msg_index and entry_index of one of its rows.
    """
    from umdf.units import utc_text
    from umdf.wire.fast.loader import load as load_templates
    from umdf.wire.sbe.loader import load as load_schema

    file, packet = _packet_location(file, packet, lake, row)
    found = _find_packet(file, packet)
    if _is_fast(found.payload, protocol):
        lines, messages = _fast_lines(load_templates(fast_templates), found)
    else:
        lines, messages = list(_sbe_lines(load_schema(sbe_schema), found.payload)), []
    if as_json:
        result: dict[str, Any] = {"file": str(file), "packet": packet, "ts_recv": found.ts_ns, "flow": list(found.flow)}
        result |= {"lines": _as_json(lines)}
        if messages:
            result |= {"messages": [asdict(message) | {"lines": _as_json(message.lines)} for message in messages]}
        print_json(result)
        return
    source, source_port, dest, dest_port = found.flow
    sent = f"{len(found.payload)} bytes, {source}:{source_port} → {dest}:{dest_port}, {utc_text(found.ts_ns)} UTC"
    _print_lines(lines, f"packet {packet} of {_short_path(file)}", sent)
    for message in messages:
        print()
        _print_lines(message.lines, f"message {message.sequence}, reassembled: {message.bytes} bytes")


def _as_json(lines: list[ExplainedLine]) -> list[dict[str, Any]]:
    return [{name: value for name, value in asdict(line).items() if _is_set(value)} for line in lines]


def _print_lines(lines: list[ExplainedLine], *title: str) -> None:
    columns = ["offset", "bytes", "field", "tag", "encoding", "value", "meaning"]
    if not any(line.encoding for line in lines):
        columns.remove("encoding")
    rows = [_cells(line, columns) for line in lines]
    if not fits(columns, rows, terminal_width(sys.stdout)):
        rows = [_cells(line, columns, is_narrow=True) for line in lines]
    if sys.stdout.isatty():
        for line in title:
            print_escaped(line)
    print_table(columns, rows, keep=("offset", "bytes", "field", "tag", "value"))


def _cells(line: ExplainedLine, columns: list[str], is_narrow: bool = False) -> list[str]:
    value, meaning = "" if line.value is None else str(line.value), line.meaning
    if TIME.fullmatch(meaning):  # what a reader wants to see of a time
        value, meaning = meaning.removesuffix(" UTC"), f"UTC, {value} ns"
    meaning = f"✗ {meaning}" if line.is_damaged else meaning
    if is_narrow and not value:
        value = meaning
    elif is_narrow and meaning and len(value) + len(meaning) < MAX_NARROW_VALUE:
        value = f"{value} ({meaning})"
    cells = {
        "offset": "" if line.offset is None else f"{line.offset:04x}",
        "bytes": _hex_text(line.raw, is_narrow),
        "field": "  " * line.depth + line.name,
        "tag": "" if line.tag is None else str(line.tag),
        "encoding": line.encoding,
        "value": value,
        "meaning": meaning,
    }
    return [cells[column] for column in columns]


def _short_path(file: Path) -> str:
    """The path from here, unless that is longer."""
    return min(str(file), os.path.relpath(file), key=len)


def _packet_location(file: Path | None, packet: int | None, lake: Path | None, row: str | None) -> tuple[Path, int]:
    """The capture and number of the packet: as given, or that of a row of a lake."""
    from umdf.cli.replay import expand_captures

    if file is not None and packet is not None and lake is None and row is None:
        captures = expand_captures([file])
        if len(captures) > 1:
            raise UsageError(
                f"{file} contains {len(captures)} captures", f"pass one of them, for example {captures[0]}"
            )
        return captures[0], packet
    if file is not None or packet is not None or lake is None or row is None:
        raise UsageError("no packet selected", "pass FILE and --packet, or --lake and --row")
    from umdf.lake.query.provenance import find_origin, parse_row

    origin = find_origin(lake, *parse_row(row))
    return Path(origin.path), origin.packet


def _is_set(value: Any) -> bool:
    return value is not None and value is not False and value != ""


def _hex_text(raw: str, is_narrow: bool) -> str:
    count = MAX_NARROW_BYTES if is_narrow else MAX_RAW_BYTES
    data = bytes.fromhex(raw)[:count]
    shown = data.hex() if is_narrow else data.hex(" ")
    return f"{shown} …" if len(raw) > 2 * count else shown


def _is_fast(payload: bytes, protocol: ProtocolName) -> bool:
    import numpy as np

    from umdf.wire.packet import Protocol, detect_protocols

    if protocol is not ProtocolName.AUTO:
        return protocol is ProtocolName.FAST
    buffer = np.frombuffer(payload, np.uint8)
    return bool(detect_protocols(buffer, np.array([0]), np.array([len(payload)]))[0] == Protocol.FAST)


def _sbe_lines(schema: Schema, payload: bytes) -> Iterator[ExplainedLine]:
    from umdf.wire.sbe.explain import explain as explain_packet

    for line in explain_packet(schema, payload):
        sent = line.offset, line.raw.hex(), line.tag, ""
        yield ExplainedLine(line.depth, line.name, *sent, line.value, line.meaning, line.is_damaged)


def _fast_lines(templates: TemplateSet, found: CapturedPacket) -> tuple[list[ExplainedLine], list[ChunkedMessage]]:
    """The lines of a packet; and the messages that it has chunks of, as far as they are in the file."""
    import numpy as np

    from umdf.cli.decoding.message_chunks import Chunk, reassemble_message
    from umdf.wire.packet import ChunkParser

    payload, lines, messages = found.payload, [], []
    buffer = np.frombuffer(payload, np.uint8)
    chunks = ChunkParser().parse(buffer, np.array([0]), np.array([len(payload)]))
    for i in range(len(chunks)):
        start, end = int(chunks.start[i]), int(chunks.end[i])
        sequence, no_chunks, number = int(chunks.msg_seq_num[i]), int(chunks.no_chunks[i]), int(chunks.current_chunk[i])
        lines += _technical_header(payload, start - 10, (sequence, no_chunks, number, end - start))
        if no_chunks == 1:
            lines += _fast_message(templates, payload[start:end], start)
            continue
        message = reassemble_message(
            found.file, Chunk(found.flow_number, found.number, sequence, no_chunks, payload[start:end])
        )
        if isinstance(message, str):
            meaning = f"incomplete message: {message}"
        else:
            explained = list(_fast_message(templates, message.content, 0))
            messages.append(ChunkedMessage(sequence, message.packets, len(message.content), explained))
            meaning = f"chunks in packets {', '.join(map(str, message.packets))}; the reassembled message follows"
        name = f"chunk {number} of {no_chunks}"
        lines.append(ExplainedLine(0, name, start, payload[start:end].hex(), None, "", None, meaning))
    for entry in chunks.quarantine:
        raw = payload[entry.offset : entry.offset + entry.skipped_bytes].hex()
        lines.append(ExplainedLine(0, "damaged", entry.offset, raw, None, "", None, entry.reason, is_damaged=True))
    return lines, messages


def _technical_header(payload: bytes, offset: int, values: tuple[int, ...]) -> Iterator[ExplainedLine]:
    yield ExplainedLine(0, "Technical header", offset, "", None, "", None, "")
    for name, size, value in zip(HEADER, (4, 2, 2, 2), values, strict=True):
        yield ExplainedLine(1, name, offset, payload[offset : offset + size].hex(), None, "", value, "")
        offset += size


def _fast_message(templates: TemplateSet, message: bytes, start: int) -> Iterator[ExplainedLine]:
    from umdf.wire.fast.explain import explain as explain_message

    for line in explain_message(templates, message):
        depth = 1 + line.path.count("[")
        bit = f"bit {line.bit.index}={int(line.bit.set)}" if line.bit else ""
        operator = "" if line.operator in ("none", line.origin) else line.operator
        encoding = " ".join(filter(None, (operator, bit, line.origin)))
        offset = start + line.offset if line.raw else None
        name = line.path or line.kind
        sent = name, offset, line.raw.hex(), line.tag, encoding
        yield ExplainedLine(depth, *sent, _value(line), line.meaning, line.kind == "error")


def _value(line: Any) -> Any:
    from umdf.wire.fast.templates import Decimal
    from umdf.wire.fast.view import json_value

    if line.kind == "presence map":
        return None
    return json_value(line.value) if isinstance(line.value, Decimal | bytes | str) else line.value


def _find_packet(file: Path, number: int) -> CapturedPacket:
    from umdf.cli.decoding.files import open_source

    last = 0
    with open_source(file) as source:
        for batch in source:
            index = int(batch.number.searchsorted(number))
            if index < len(batch) and batch.number[index] == number:
                flow = int(batch.flow[index])
                return CapturedPacket(
                    file, number, flow, batch.flows[flow], int(batch.ts_ns[index]), batch.payload(index)
                )
            last = int(batch.number[-1])
            if last > number:
                raise CaptureError(f"{file}: packet {number} is not a complete UDP packet", "choose another")
        counts = getattr(source, "counts", None)
    records = counts.records if counts else last
    if number <= records:
        raise CaptureError(f"{file}: packet {number} is not a complete UDP packet", "choose another")
    raise UsageError(f"{file} has no packet {number}", f"it has {records} packets, the last UDP packet is {last}")
