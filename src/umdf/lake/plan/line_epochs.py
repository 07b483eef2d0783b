"""The epochs of each line: where they start and end, and those that only some lines have.

Lines A and B carry the same numbers. If one of them starts a new epoch while another goes on with the old one, the same
updates come twice, under two numberings. Invariant: only one of them counts. The epoch that not all lines have is set
aside, and its packets are only accounted for; both lines may start a new epoch some milliseconds apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from umdf.lake.tasks.damaged_headers import MAX_OVERTAKING
from umdf.market.families import NULL

if TYPE_CHECKING:
    from umdf.lake.plan.segments import MulticastGroup, Segment, StreamLine

MAX_RESTART_SKEW_NS = 1_000_000_000  # between the lines
NOT_COUNTED = {"epoch": None, "first": NULL, "last": NULL, "marks": [], "few": [], "announced": None}


def set_aside_lone_restarts(
    segments: Iterable[Segment],
    stream_lines: Mapping[MulticastGroup, StreamLine],
    epochs_of: Callable[[Segment], list[int]],
) -> tuple[list[Segment], set[tuple[int, MulticastGroup]]]:
    """The segments of a channel, without the sequences of epochs that are set aside; and which lines those were, with
    the date."""
    segments = list(segments)
    # By date, epoch and group: the first and last time that it has packets with a sequence.
    times: dict[int, dict[int, dict[MulticastGroup, tuple[int, int]]]] = defaultdict(lambda: defaultdict(dict))
    for part in segments:
        if part.first != NULL and stream_lines[part.group].stream == "incremental":
            last_ts = max((ts for _, ts in part.marks), default=part.ts_last)
            for epoch in epochs_of(part):
                low, high = times[part.date][epoch].get(part.group, (part.ts_first, last_ts))
                times[part.date][epoch][part.group] = min(low, part.ts_first), max(high, last_ts)
    lone = {(day, epoch) for day, epochs in times.items() for epoch in epochs if _is_lone(epoch, epochs)}
    if not lone:
        return segments, set()
    found, lines = [], set()
    for part in segments:
        if (
            part.first != NULL
            and stream_lines[part.group].stream == "incremental"
            and all((part.date, epoch) in lone for epoch in epochs_of(part))
        ):
            lines.add((part.date, part.group))
            part = part._replace(**NOT_COUNTED)  # type: ignore[arg-type]
        found.append(part)
    return found, lines


def _is_lone(epoch: int, epochs: Mapping[int, Mapping[MulticastGroup, tuple[int, int]]]) -> bool:
    """Whether another line goes on with an earlier epoch, and never has this one."""
    begins = min(first for first, _ in epochs[epoch].values())
    return any(
        group not in epochs[epoch] and last > begins + MAX_RESTART_SKEW_NS
        for other, lines in epochs.items()
        if other != epoch and min(first for first, _ in lines.values()) < begins
        for group, (_, last) in lines.items()
    )


def last_sent(parts: Sequence[Segment], heartbeats: Iterable[tuple[int, int]]) -> int:
    """The last sequence of an epoch: a heartbeat says what was sent before a silence (4.1.1), even if all of it was
    lost. One that is far ahead, and contradicted by what comes later, is damaged."""
    last, ts_last = max(part.last for part in parts), max((ts for part in parts for _, ts in part.marks), default=NULL)
    return max([last, *(number for number, ts in heartbeats if number <= last + MAX_OVERTAKING or ts >= ts_last)])


def find_resets(
    surveys: Iterable[dict[str, Any]], stream_lines: Mapping[MulticastGroup, StreamLine]
) -> dict[MulticastGroup, tuple[tuple[int, int], ...]]:
    """FAST: when each multicast group's epochs started. Resets of several lines a little apart start one epoch; a line
    that lost the reset takes the time of the others."""
    seen: dict[int, set[tuple[int, int, MulticastGroup]]] = defaultdict(set)  # by channel: ts_send, ts_recv, group
    for survey in surveys:
        for flow, ts_recv, ts_send in survey.get("resets", []):
            group: MulticastGroup = tuple(survey["flows"][flow])  # type: ignore[assignment]
            stream_line = stream_lines.get(group)
            if stream_line and stream_line.stream == "incremental":
                seen[stream_line.channel].add((ts_send, ts_recv, group))
    epochs: dict[int, list[tuple[int, dict[MulticastGroup, tuple[int, int]]]]] = defaultdict(list)
    for channel, resets in seen.items():
        for ts_send, ts_recv, group in sorted(resets):
            begun, lines = epochs[channel][-1] if epochs[channel] else (NULL, {})
            is_repeated = lines.get(group, (NULL, NULL))[0] == ts_send  # in several files
            if not is_repeated and (group in lines or ts_send > begun + MAX_RESTART_SKEW_NS):
                lines = {}
                epochs[channel].append((ts_send, lines))
            lines.setdefault(group, (ts_send, ts_recv))
    found: dict[MulticastGroup, list[tuple[int, int]]] = defaultdict(list)
    for group, stream_line in stream_lines.items():
        if stream_line.stream == "incremental":
            for epoch, lines in epochs[stream_line.channel]:
                earliest = min(lines.values(), key=lambda times: times[1])
                found[group].append((lines.get(group, earliest)[1], epoch))
    return {group: tuple(sorted(times)) for group, times in found.items()}
