"""Files that contradict each other: an error, before anything is committed.

Two lines of FAST may number different messages alike for a while, because each restarts for itself (4.2.8); and a line
that restarted unnoticed does so with its own earlier files. So files of FAST contradict each other only if they are of
the same line and were recorded at the same time. Binary packets carry the version of their numbering.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from umdf.errors import CaptureError
from umdf.lake.commit.ledger import DIGEST_PREFIX
from umdf.lake.plan.overlapping_files import TS_FIRST, TS_LAST
from umdf.lake.plan.segments import LINES, date_of
from umdf.lake.recording.contradictions import Comparison, add_comparisons


@dataclass(frozen=True)
class InputFile:
    path: str
    is_in_lake: bool
    ts_first: int
    ts_last: int


def input_files(surveys: Iterable[dict[str, Any]], known: Collection[str]) -> dict[str, InputFile]:
    """By digest; `known` are the digests of inputs in the lake."""
    found = {}
    for survey in surveys:
        segments = [segment for split in survey.get("splits", []) for segment in split["segments"]]
        times = [(segment[TS_FIRST], segment[TS_LAST]) for segment in segments] or [(0, 0)]
        ts_first, ts_last = min(first for first, _ in times), max(last for _, last in times)
        found[survey["digest"]] = InputFile(survey["path"], survey["digest"] in known, ts_first, ts_last)
    return found


def refuse_contradictions(
    results: Iterable[dict[str, Any]], files: Mapping[str, InputFile], lake: object
) -> dict[tuple[int, int], list[str]]:
    """Raise if files contradict each other; `results` are those of decode tasks. Returns notices, by channel-day, about
    copies that differ here and there."""
    by_day: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for result in results:
        by_day.setdefault((result["channel_id"], result["trading_date"]), []).append(result)
    notices: dict[tuple[int, int], list[str]] = {}
    for day, found in by_day.items():
        parts = (Comparison(*part) for result in found for part in result.get("comparisons", ()))
        is_fast = found[0]["protocol"] == "fast"
        for each in add_comparisons(parts):
            one, other = files[each.digest], files[each.other_digest]
            text = (
                f"{one.path} and {other.path} {{}}: {each.different:,} of {each.compared:,} common sequence numbers of "
                f"channel {day[0]} on {date_of(day[1])} have different contents"
            )
            is_same_moment = one.ts_first <= other.ts_last and other.ts_first <= one.ts_last
            if each.is_systematic and (not is_fast or (each.line == each.other_line and is_same_moment)):
                raise CaptureError(text.format("are different recordings"), _hint(each, one, other, lake))
            if each.different:
                lines = LINES[each.line], LINES[each.other_line]
                notices.setdefault(day, []).append(text.format(f"differ (lines {lines[0]} and {lines[1]})"))
    return notices


def _hint(pair: Comparison, one: InputFile, other: InputFile, lake: object) -> str:
    if not one.is_in_lake and not other.is_in_lake:
        return "ingest only one of them"
    digest, rest = (pair.digest, other) if one.is_in_lake else (pair.other_digest, one)
    forget = f"`umdf lake forget {lake} {digest[:DIGEST_PREFIX]}`"
    return f"leave out {rest.path}, or first remove the other recording from the lake, file by file: {forget}"
