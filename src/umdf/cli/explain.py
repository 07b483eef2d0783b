"""`umdf explain`: every header and field of one packet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from umdf.cli.tables import show_table
from umdf.cli.voice import JsonFlag, print_json
from umdf.errors import CaptureError

EXAMPLES = (
    "umdf explain day.pcap --packet 17             every byte of frame 17 (as Wireshark counts)",
    "umdf explain day.pcap.zst --packet 17 --json",
    "umdf explain day.pcap --packet 1 --schema b3-market-data-messages.xml",
)
RAW_SHOWN = 16  # bytes of a long value


def explain(
    file: Annotated[Path, typer.Argument(help="A capture: pcap, pcapng, also as .gz or .zst.", metavar="FILE")],
    packet: Annotated[int, typer.Option(help="Its number in the file, from 1, as Wireshark counts.", min=1)],
    schema: Annotated[Path | None, typer.Option(help="The exchange's SBE schema (XML) instead of ours.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what every byte of one packet means: offset, raw bytes, value, meaning."""
    from umdf.units import utc_text
    from umdf.wire.sbe.explain import explain as explain_packet
    from umdf.wire.sbe.loader import load

    loaded = load(schema)
    flow, ts_ns, payload = _find(file, packet)
    lines = explain_packet(loaded, payload)
    if as_json:
        shown = [_object(line) for line in lines]
        print_json({"file": str(file), "packet": packet, "ts_recv": ts_ns, "flow": list(flow), "lines": shown})
        return
    source, source_port, dest, dest_port = flow
    title = f"packet {packet} of {file}: {len(payload)} bytes, {source}:{source_port} → {dest}:{dest_port}, "
    rows = [
        (
            "" if line.offset is None else f"{line.offset:04x}",
            line.raw[:RAW_SHOWN].hex(" ") + (" …" if len(line.raw) > RAW_SHOWN else ""),
            "  " * line.depth + line.name,
            "" if line.tag is None else str(line.tag),
            "" if line.value is None else str(line.value),
            f"✗ {line.meaning}" if line.fault else line.meaning,
        )
        for line in lines
    ]
    show_table(("offset", "bytes", "field", "tag", "value", "meaning"), rows, title=title + utc_text(ts_ns) + " UTC")


def _find(file: Path, number: int) -> tuple[Any, int, bytes]:
    from umdf.transport.capture import open_capture

    last = 0
    with open_capture(file) as capture:
        for batch in capture:
            at = int(batch.number.searchsorted(number))
            if at < len(batch) and batch.number[at] == number:
                return batch.flows[batch.flow[at]], int(batch.ts_ns[at]), batch.payload(at)
            last = int(batch.number[-1])
            if last > number:
                raise CaptureError(f"{file}: packet {number} is not UDP, or a fragment", "choose another")
        records = capture.counts.records
    if number <= records:
        raise CaptureError(f"{file}: packet {number} is not UDP, or a fragment", "choose another")
    raise CaptureError(f"{file} has no packet {number}", f"it has {records} packets, the last with UDP is {last}")


def _object(line: Any) -> dict[str, Any]:
    found = {"depth": line.depth, "name": line.name, "offset": line.offset, "raw": line.raw.hex(), "tag": line.tag}
    found |= {"value": line.value, "meaning": line.meaning, "fault": line.fault or None}
    return {name: value for name, value in found.items() if value not in (None, "")}
