"""`umdf explain`: every header and field of one packet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from umdf.cli.decode import ProtocolName
from umdf.cli.places import place
from umdf.cli.tables import show_table
from umdf.cli.voice import JsonFlag, print_json
from umdf.errors import CaptureError, UsageError

if TYPE_CHECKING:
    from umdf.transport.capture import Flow
    from umdf.wire.fast.templates import TemplateSet
    from umdf.wire.sbe.schema import Schema

EXAMPLES = (
    "umdf explain day.pcap --packet 17             every byte of frame 17 (as Wireshark counts)",
    "umdf explain day.pcap.zst --packet 17 --json",
    "umdf explain day.pcap --packet 1 --schema b3-market-data-messages.xml",
    "umdf explain fast.pcap --packet 3 --templates templates-FIX.xml",
    "umdf explain --lake lake --row mbo:72:273:1005:2      the packet that a row of a table came from",
)
HEADER = ("MsgSeqNum", "NoChunks", "CurrentChunk", "MsgLength")
RAW_SHOWN = 16  # bytes of a long value


@dataclass(frozen=True)
class Line:
    """One thing in a packet. What is not sent (constants, defaults, absent fields) has no offset and no bytes."""

    depth: int
    name: str
    offset: int | None
    raw: str  # in base 16
    tag: int | None
    how: str  # FAST: operator, presence-map bit, where the value came from
    value: Any
    meaning: str
    fault: bool = False


@dataclass(frozen=True)
class Packet:
    file: Path
    number: int
    flow_number: int  # as the file counts them
    flow: Flow
    ts_ns: int
    payload: bytes


@dataclass(frozen=True)
class Message:
    """A FAST message of several chunks. Offsets in its lines are from its own start."""

    sequence: int
    packets: tuple[int, ...]  # of its chunks, in their order
    bytes: int
    lines: list[Line]


def explain(
    file: Annotated[
        Path | None,
        typer.Argument(
            parser=place,
            help="A capture (pcap, pcapng), a directory with one, or a raw FAST stream; also as .gz or .zst.",
            metavar="[FILE]",
        ),
    ] = None,
    packet: Annotated[
        int | None, typer.Option(help="Its number in the file, from 1, as Wireshark counts.", min=1)
    ] = None,
    lake: Annotated[Path | None, typer.Option(parser=place, help="A lake, instead of a file.", metavar="DIR")] = None,
    row: Annotated[
        str | None, typer.Option(help="table:channel:seq_version:sequence[:msg_index[:entry_index]] in that lake.")
    ] = None,
    protocol: Annotated[ProtocolName, typer.Option(help="auto: by what the packet looks like.")] = ProtocolName.AUTO,
    schema: Annotated[Path | None, typer.Option(help="The exchange's SBE schema (XML) instead of ours.")] = None,
    templates: Annotated[Path | None, typer.Option(help="The exchange's FAST templates (XML) instead of ours.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what every byte of one packet means: offset, raw bytes, value, meaning.

    Of FAST also the operator of each field, its presence-map bit, and what came from a default or the dictionary. If
    the packet holds a chunk of a message, the whole message follows, with offsets from its own start.
    """
    from umdf.units import utc_text
    from umdf.wire.fast.loader import load as load_templates
    from umdf.wire.sbe.loader import load as load_schema

    file, packet = _packet_of(file, packet, lake, row)
    found = _find(file, packet)
    if _is_fast(found.payload, protocol):
        lines, messages = _fast_lines(load_templates(templates), found)
    else:
        lines, messages = list(_sbe_lines(load_schema(schema), found.payload)), []
    if as_json:
        told: dict[str, Any] = {"file": str(file), "packet": packet, "ts_recv": found.ts_ns, "flow": list(found.flow)}
        told |= {"lines": _as_json(lines)}
        if messages:
            told |= {"messages": [asdict(message) | {"lines": _as_json(message.lines)} for message in messages]}
        print_json(told)
        return
    source, source_port, dest, dest_port = found.flow
    title = f"packet {packet} of {file}: {len(found.payload)} bytes, {source}:{source_port} → {dest}:{dest_port}, "
    _show(lines, title + utc_text(found.ts_ns) + " UTC")
    for message in messages:
        print()
        _show(message.lines, f"message {message.sequence}, whole: {message.bytes} bytes")


def _as_json(lines: list[Line]) -> list[dict[str, Any]]:
    return [{name: value for name, value in asdict(line).items() if _is_said(value)} for line in lines]


def _show(lines: list[Line], title: str) -> None:
    rows = [
        (
            "" if line.offset is None else f"{line.offset:04x}",
            _spaced(line.raw),
            "  " * line.depth + line.name,
            "" if line.tag is None else str(line.tag),
            line.how,
            "" if line.value is None else str(line.value),
            f"✗ {line.meaning}" if line.fault else line.meaning,
        )
        for line in lines
    ]
    columns = ["offset", "bytes", "field", "tag", "how", "value", "meaning"]
    if not any(line.how for line in lines):
        columns.remove("how")
        rows = [row[:4] + row[5:] for row in rows]
    show_table(columns, rows, title=title, keep=("offset", "field", "value", "meaning"))


def _packet_of(file: Path | None, packet: int | None, lake: Path | None, row: str | None) -> tuple[Path, int]:
    """The packet that is meant: by its number in a file, or by a row that came from it."""
    from umdf.cli.replaying import captures_of

    if file is not None and packet is not None and lake is None and row is None:
        captures = captures_of([file])
        if len(captures) > 1:
            raise UsageError(f"{file} has {len(captures)} captures", f"name one of them, as {captures[0]}")
        return captures[0], packet
    if file is not None or packet is not None or lake is None or row is None:
        raise UsageError("which packet?", "give FILE and --packet, or --lake and --row")
    from umdf.lake.provenance import find, parse_row

    origin = find(lake, *parse_row(row))
    return Path(origin.path), origin.packet


def _is_said(value: Any) -> bool:
    return value is not None and value is not False and value != ""


def _spaced(raw: str) -> str:
    shown = bytes.fromhex(raw)[:RAW_SHOWN].hex(" ")
    return f"{shown} …" if len(raw) > 2 * RAW_SHOWN else shown


def _is_fast(payload: bytes, protocol: ProtocolName) -> bool:
    import numpy as np

    from umdf.wire.packet import Protocol, recognise

    if protocol is not ProtocolName.AUTO:
        return protocol is ProtocolName.FAST
    buffer = np.frombuffer(payload, np.uint8)
    return bool(recognise(buffer, np.array([0]), np.array([len(payload)]))[0] == Protocol.FAST)


def _sbe_lines(schema: Schema, payload: bytes) -> Iterator[Line]:
    from umdf.wire.sbe.explain import explain as explain_packet

    for line in explain_packet(schema, payload):
        sent = line.offset, line.raw.hex(), line.tag, ""
        yield Line(line.depth, line.name, *sent, line.value, line.meaning, line.fault)


def _fast_lines(templates: TemplateSet, found: Packet) -> tuple[list[Line], list[Message]]:
    """The lines of a datagram; and the messages that it has chunks of, as far as they are in the file."""
    import numpy as np

    from umdf.cli.chunks import Chunk, whole_message
    from umdf.wire.packet import Framer

    payload, lines, messages = found.payload, [], []
    buffer = np.frombuffer(payload, np.uint8)
    frames = Framer().frames(buffer, np.array([0]), np.array([len(payload)]))
    for i in range(len(frames)):
        start, end = int(frames.start[i]), int(frames.end[i])
        sequence, no_chunks, number = int(frames.msg_seq_num[i]), int(frames.no_chunks[i]), int(frames.current_chunk[i])
        lines += _technical_header(payload, start - 10, (sequence, no_chunks, number, end - start))
        if no_chunks == 1:
            lines += _fast_message(templates, payload[start:end], start)
            continue
        whole = whole_message(
            found.file, Chunk(found.flow_number, found.number, sequence, no_chunks, payload[start:end])
        )
        if isinstance(whole, str):
            meaning = f"{whole}: the message cannot be explained"
        else:
            explained = list(_fast_message(templates, whole.content, 0))
            messages.append(Message(sequence, whole.packets, len(whole.content), explained))
            meaning = f"its chunks are in packets {', '.join(map(str, whole.packets))}; the whole message is below"
        name = f"chunk {number} of {no_chunks}"
        lines.append(Line(0, name, start, payload[start:end].hex(), None, "", None, meaning))
    for entry in frames.journal:
        raw = payload[entry.offset : entry.offset + entry.skipped_bytes].hex()
        lines.append(Line(0, "damaged", entry.offset, raw, None, "", None, entry.reason, fault=True))
    return lines, messages


def _technical_header(payload: bytes, at: int, values: tuple[int, ...]) -> Iterator[Line]:
    yield Line(0, "Technical header", at, "", None, "", None, "")
    for name, size, value in zip(HEADER, (4, 2, 2, 2), values, strict=True):
        yield Line(1, name, at, payload[at : at + size].hex(), None, "", value, "")
        at += size


def _fast_message(templates: TemplateSet, message: bytes, start: int) -> Iterator[Line]:
    from umdf.wire.fast.explain import explain as explain_message

    for line in explain_message(templates, message):
        depth = 1 + line.path.count("[")
        bit = f"bit {line.bit.index}={int(line.bit.set)}" if line.bit else ""
        operator = "" if line.operator in ("none", line.origin) else line.operator
        how = " ".join(filter(None, (operator, bit, line.origin)))
        offset = start + line.offset if line.raw else None
        name = line.path or line.what
        sent = name, offset, line.raw.hex(), line.tag, how
        yield Line(depth, *sent, _value(line), line.meaning, line.what == "error")


def _value(line: Any) -> Any:
    from umdf.wire.fast.templates import Decimal
    from umdf.wire.fast.view import shown

    if line.what == "presence map":
        return None
    return shown(line.value) if isinstance(line.value, Decimal | bytes | str) else line.value


def _find(file: Path, number: int) -> Packet:
    from umdf.cli.reading import open_source

    last = 0
    with open_source(file) as source:
        for batch in source:
            at = int(batch.number.searchsorted(number))
            if at < len(batch) and batch.number[at] == number:
                flow = int(batch.flow[at])
                return Packet(file, number, flow, batch.flows[flow], int(batch.ts_ns[at]), batch.payload(at))
            last = int(batch.number[-1])
            if last > number:
                raise CaptureError(f"{file}: packet {number} is not UDP, or a fragment", "choose another")
        counts = getattr(source, "counts", None)
    records = counts.records if counts else last
    if number <= records:
        raise CaptureError(f"{file}: packet {number} is not UDP, or a fragment", "choose another")
    raise UsageError(f"{file} has no packet {number}", f"it has {records} packets, the last with UDP is {last}")
