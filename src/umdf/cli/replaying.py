"""Captures → channels with their books, whatever way they were recorded: one file or many, a file a line or a day.

The files are read twice: once to tell which stream of which channel each group carries, then in the order of time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from umdf.errors import CaptureError
from umdf.sync.session import Session, Until, Watch
from umdf.sync.streams import Stream, Survey
from umdf.transport.capture import PacketBatch, open_capture
from umdf.transport.recording import files_below
from umdf.transport.side_by_side import windows
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.sbe.schema import Schema


@dataclass
class Replay:
    """What captures came to."""

    session: Session
    streams: list[Stream]
    packets: int = 0
    damaged: list[str] = field(default_factory=list)


def captures_of(paths: Sequence[Path]) -> list[Path]:
    """Files, and what looks like a capture in directories."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = files_below(path).captures
            if not inside:
                raise CaptureError(f"{path}: no capture in this directory", "name a pcap or pcapng file")
            found += inside
        else:
            found.append(path)
    return found


def replay(
    paths: Sequence[Path],
    schema: Schema,
    templates: TemplateSet,
    until: Until | None = None,
    watch: Watch | None = None,
) -> Replay:
    """Everything that the captures tell, up to a moment."""
    survey = Survey(templates)
    for path in paths:
        with open_capture(path) as capture:
            for batch in capture:
                survey.take(batch, _names(batch))
    streams = survey.streams()
    result = Replay(Session(streams, schema, templates, until, watch), streams)
    for window, now_ns in windows(paths, result.damaged):
        for batch, rows in window:
            result.packets += len(rows)
            result.session.add(batch, _names(batch), rows)
        result.session.advance(now_ns)
    result.session.finish()
    return result


def _names(batch: PacketBatch) -> list[Hashable]:
    """A stream is known by where it is sent to."""
    return [(flow.dest, flow.dest_port) for flow in batch.flows]
