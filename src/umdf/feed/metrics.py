"""The status of a client as Prometheus metrics, as JSON, and as one word of health."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from umdf.feed.channel_states import FeedState
from umdf.feed.events import (
    BookChanged,
    EpochStarted,
    FeedEvent,
    GapOpened,
    RecorderStopped,
    StateChanged,
    TrustChanged,
)
from umdf.feed.live import ChannelStatus

GAUGE, COUNTER = "gauge", "counter"
# Name, type, help, and the value of a status. Units are last in names, as Prometheus asks.
METRICS = (
    ("umdf_sequence", GAUGE, "last sequence that was applied", lambda s: s.sequence),
    ("umdf_instruments", GAUGE, "known instruments", lambda s: s.instruments),
    ("umdf_untrusted_instruments", GAUGE, "instruments whose book is not healthy", lambda s: s.untrusted),
    ("umdf_recovered_books_total", COUNTER, "books recovered by snapshots", lambda s: s.recovered),
    ("umdf_packets_total", COUNTER, "packets received on all lines", lambda s: s.packets),
    ("umdf_bytes_total", COUNTER, "bytes received on all lines", lambda s: s.bytes),
    ("umdf_socket_lost_packets_total", COUNTER, "packets that a full socket buffer lost", lambda s: s.lost),
    ("umdf_dropped_packets_total", COUNTER, "packets of other channels, or that cannot be framed", lambda s: s.dropped),
    ("umdf_units_total", COUNTER, "packets (SBE) or messages (FAST) delivered in order", lambda s: s.totals.units),
    ("umdf_gaps_total", COUNTER, "gaps opened", lambda s: s.totals.gaps),
    ("umdf_missing_total", COUNTER, "sequences of gaps when they were opened", lambda s: s.totals.missing),
    ("umdf_filled_total", COUNTER, "sequences that came after their gap was opened", lambda s: s.totals.filled),
    ("umdf_epochs_total", COUNTER, "numberings started", lambda s: s.totals.epochs),
    (
        "umdf_early_units_total",
        COUNTER,
        "packets (SBE) or messages (FAST) applied to books as they were received",
        lambda s: s.totals.early,
    ),
    ("umdf_latency_seconds", GAUGE, "from sending to receiving the last unit", lambda s: _seconds(s.latency_ns)),
)
LINE_METRICS = ("delivered", "duplicates", "late", "quarantined", "set_aside", "conflicts")


def metrics_text(statuses: Sequence[ChannelStatus]) -> str:
    lines: list[str] = []
    for name, kind, text, value in METRICS:
        samples = [f"{name}{_labels(status)} {value(status)}" for status in statuses]
        lines += _family(name, kind, text, samples)
    states = [
        f"umdf_state{_labels(status, state=state)} {int(status.state == state)}"
        for status in statuses
        for state in FeedState
    ]
    lines += _family("umdf_state", GAUGE, "1 for the state of the channel", states)
    name = "umdf_early_stops_total"
    stops = [
        f"{name}{_labels(status, reason=reason)} {count}"
        for status in statuses
        for reason, count in sorted(status.totals.early_stops.items())
    ]
    lines += _family(name, COUNTER, "times when everything received had to be processed first, by reason", stops)
    for field in LINE_METRICS:
        name = f"umdf_line_{field}_total"
        samples = [
            f"{name}{_labels(status, line=line)} {getattr(quality, field)}"
            for status in statuses
            for line, quality in sorted(status.totals.lines.items())
        ]
        lines += _family(name, COUNTER, f"units of a line: {field.replace('_', ' ')}", samples)
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, text: str, samples: Iterable[str]) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]


def _labels(status: ChannelStatus, **more: str) -> str:
    labels = {"protocol": status.channel.protocol, "channel": str(status.channel.number), **more}
    return "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def _seconds(ns: int | None) -> str:
    return "NaN" if ns is None else f"{ns / 1e9:.9f}"


def health(statuses: Sequence[ChannelStatus], recorder_failure: str) -> tuple[bool, str]:
    """Whether every channel is live and nothing has failed, and the reasons as JSON."""
    states = {str(status.channel): status.state for status in statuses}
    is_healthy = not recorder_failure and all(state == FeedState.LIVE for state in states.values())
    content = {"healthy": is_healthy, "channels": states, "recorder": recorder_failure or None}
    return is_healthy, json.dumps(content) + "\n"


def status_record(status: ChannelStatus, now_ns: int) -> dict[str, Any]:
    """A status as a line of JSON."""
    record = asdict(status)
    totals = record.pop("totals")
    channel = {"protocol": status.channel.protocol, "channel": status.channel.number}
    record.pop("channel")
    return {"type": "status", "ts_ns": now_ns, **channel, **record, **totals}


def event_record(event: FeedEvent, now_ns: int) -> dict[str, Any]:
    """What happened, as a line of JSON; its text is for people."""
    record: dict[str, Any] = {"type": "", "ts_ns": now_ns}
    if not isinstance(event, RecorderStopped):
        record |= {"protocol": event.channel.protocol, "channel": event.channel.number}
    match event:
        case StateChanged():
            more = {"type": "state", "state": event.state, "text": f"{event.before} → {event.state}"}
        case GapOpened():
            gap = event.gap
            numbers = {"epoch": gap.epoch, "first": gap.first, "last": gap.last, "cause": gap.cause}
            more = {"type": "gap", **numbers, "text": f"{gap} missing"}
        case EpochStarted():
            text = f"epoch {event.epoch} starts at sequence {event.first}"
            more = {"type": "epoch", "epoch": event.epoch, "first": event.first, "text": text}
        case TrustChanged():
            who = {"instrument_id": event.instrument_id, "symbol": event.symbol, "trust": event.trust.level}
            text = f"{event.symbol or event.instrument_id} is {event.trust.level}"
            more = {"type": "trust", **who, "reason": event.trust.reason, "text": text}
        case BookChanged():
            more = {"type": "book", "instrument_id": event.instrument_id, "sequence": event.sequence}
        case RecorderStopped():
            more = {"type": "recorder", "text": f"recording stopped: {event.reason}"}
    return record | more
