"""The epochs of each line: where they start and end, and those that only some lines have.

Lines A and B carry the same numbers. If one of them starts a new epoch while another goes on with the old one, the same
updates come twice, under two numberings. Invariant: only one of them counts. The epoch that not all lines have is set
aside, and its packets are only accounted for; both lines may start a new epoch some milliseconds apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from umdf.lake.tasks.damaged_headers import MAX_OVERTAKING
from umdf.lake.tasks.numbering_runs import NumberingRun
from umdf.market.families import NULL
from umdf.sync.arbitration.lines_kernel import is_restart

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
            # A heartbeat shows that the line goes on with this epoch while nothing is sent (4.1.1).
            announced_ts = part.announced[1] if part.announced is not None else NULL
            last_ts = max(max((ts for _, ts in part.marks), default=part.ts_last), announced_ts)
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
    """FAST: when each multicast group's epochs started. Resets of several lines a little apart start one epoch. A line
    that lost the reset shows it by its numbers; if it shows nothing, it takes the time of the others, unless its old
    numbering goes on. A reset with which recordings begin may be lost on a line that was received earlier."""
    resets: dict[int, set[tuple[int, int, MulticastGroup]]] = defaultdict(set)  # by channel: ts_send, ts_recv, group
    runs: dict[MulticastGroup, set[NumberingRun]] = defaultdict(set)
    for survey in surveys:
        for kind, flow, *fields in [("reset", *each) for each in survey.get("resets", [])] + [
            ("run", *each) for each in survey.get("runs", [])
        ]:
            group: MulticastGroup = tuple(survey["flows"][flow])  # type: ignore[assignment]
            stream_line = stream_lines.get(group)
            if stream_line is None or stream_line.stream != "incremental":
                continue
            if kind == "run":
                runs[group].add(NumberingRun(*fields))
            else:
                resets[stream_line.channel].add((fields[1], fields[0], group))
    numberings = {group: _join_runs(some) for group, some in runs.items()}
    found: dict[MulticastGroup, list[tuple[int, int]]] = defaultdict(list)
    groups_by_channel: dict[int, list[MulticastGroup]] = defaultdict(list)
    for group, stream_line in stream_lines.items():
        if stream_line.stream == "incremental":
            groups_by_channel[stream_line.channel].append(group)
    for channel, groups in groups_by_channel.items():
        known = _group_resets(resets[channel])
        unseen = [
            (begun, group, before)
            for group in groups
            for before, begun in pairwise(numberings.get(group, ()))
            if not any(before.ts_last <= ts <= begun.ts_recv for _, ts, of in resets[channel] if of == group)
        ]
        for begun, group, before in unseen:  # of a reset that another line has
            epoch = _epoch_between(known, group, before.ts_last, begun.ts_recv)
            reset = (begun.ts_send if epoch is None else epoch), begun.ts_recv, group
            resets[channel].add(reset)
        for epoch, lines in _group_resets(resets[channel]):
            earliest = min(lines.values(), key=lambda times: times[1])[1]
            is_first = not any(
                each.ts_recv < ts for group, (_, ts) in lines.items() for each in numberings.get(group, ())
            )
            for group in groups:
                begun = next(iter(numberings.get(group, ())), None)
                if group in lines:
                    found[group].append((lines[group][1], epoch))
                elif is_first and begun is not None and _begins_with(begun, earliest):
                    found[group].append((earliest - MAX_RESTART_SKEW_NS, epoch))  # with what cannot be decoded
                elif not any(_goes_on(each, earliest) for each in numberings.get(group, ())):
                    found[group].append((earliest, epoch))
    return {group: tuple(sorted(found[group])) for groups in groups_by_channel.values() for group in groups}


def _group_resets(
    resets: Iterable[tuple[int, int, MulticastGroup]],
) -> list[tuple[int, dict[MulticastGroup, tuple[int, int]]]]:
    """Epochs by time, with ts_send and ts_recv of each line's reset."""
    epochs: list[tuple[int, dict[MulticastGroup, tuple[int, int]]]] = []
    for ts_send, ts_recv, group in sorted(resets):
        begun, lines = epochs[-1] if epochs else (NULL, {})
        is_repeated = lines.get(group, (NULL, NULL))[0] == ts_send  # in several files
        if not is_repeated and (group in lines or ts_send > begun + MAX_RESTART_SKEW_NS):
            lines = {}
            epochs.append((ts_send, lines))
        lines.setdefault(group, (ts_send, ts_recv))
    return epochs


def _join_runs(runs: Iterable[NumberingRun]) -> list[NumberingRun]:
    """The numberings of a line one after the other: runs that continue each other, or overlap, are one."""
    joined: list[NumberingRun] = []
    for run in sorted(runs):
        before = joined[-1] if joined else None
        if before is not None and (run.ts_recv <= before.ts_last or not is_restart(before.last, run.first)):
            last, ts_last = max(before.last, run.last), max(before.ts_last, run.ts_last)
            joined[-1] = before._replace(last=last, ts_last=ts_last)
        else:
            joined.append(run)
    return joined


def _epoch_between(
    epochs: Iterable[tuple[int, Mapping[MulticastGroup, tuple[int, int]]]],
    group: MulticastGroup,
    ts_before: int,
    ts_after: int,
) -> int | None:
    """The epoch that other lines have and this one has not, if it started in between."""
    low, high = ts_before - MAX_RESTART_SKEW_NS, ts_after + MAX_RESTART_SKEW_NS
    return next(
        (
            epoch
            for epoch, lines in epochs
            if group not in lines and any(low < ts_recv <= high for _, ts_recv in lines.values())
        ),
        None,
    )


def _begins_with(numbering: NumberingRun, ts: int) -> bool:
    """Whether a line, whose recording begins near 1 shortly before the reset of another line, has lost that reset."""
    return not is_restart(numbering.first, 1) and ts - MAX_RESTART_SKEW_NS < numbering.ts_recv < ts


def _goes_on(numbering: NumberingRun, ts: int) -> bool:
    """Whether a line has the same numbering before and after this time: it began long before, or above the numbers
    among which a restart cannot be seen."""
    began = numbering.ts_recv + (0 if is_restart(numbering.first, 1) else MAX_RESTART_SKEW_NS)
    return began < ts and numbering.ts_last > ts + MAX_RESTART_SKEW_NS
