"""Captures → channels with their books, however they were recorded: in one file or many, a file per line or per day.

The files are read twice: once to detect the channel and stream of each multicast group, then in order of time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from umdf.errors import CaptureError
from umdf.sync.session import EventObserver, Session, Until
from umdf.sync.stream_detection import DetectedStream, StreamSurvey
from umdf.transport.capture import PacketBatch, open_capture
from umdf.transport.capture_merge import merged_windows
from umdf.transport.recording import files_below
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.sbe.schema import Schema


@dataclass
class ReplayResult:
    """The replayed session of some captures."""

    session: Session
    streams: list[DetectedStream]
    packets: int = 0
    damaged: list[str] = field(default_factory=list)


def expand_captures(paths: Sequence[Path]) -> list[Path]:
    """The files among the paths, and the captures in the directories among them."""
    captures: list[Path] = []
    for path in paths:
        if path.is_dir():
            in_directory = files_below(path).captures
            if not in_directory:
                raise CaptureError(f"no captures in {path}", "pass a pcap or pcapng file, or a directory that has some")
            captures += in_directory
        else:
            captures.append(path)
    return captures


def replay(
    paths: Sequence[Path],
    schema: Schema,
    templates: TemplateSet,
    until: Until | None = None,
    watch: EventObserver | None = None,
) -> ReplayResult:
    """Replay the captures up to a moment."""
    survey = StreamSurvey(templates)
    for path in paths:
        with open_capture(path) as capture:
            for batch in capture:
                survey.add(batch, _destinations(batch))
    streams = survey.streams()
    result = ReplayResult(Session(streams, schema, templates, until, watch), streams)
    for window, now_ns in merged_windows(paths, result.damaged):
        for batch, rows in window:
            result.packets += len(rows)
            result.session.add(batch, _destinations(batch), rows)
        result.session.advance(now_ns)
    result.session.finish()
    return result


def _destinations(batch: PacketBatch) -> list[Hashable]:
    """The destination identifies a stream."""
    return [(flow.dest, flow.dest_port) for flow in batch.flows]
