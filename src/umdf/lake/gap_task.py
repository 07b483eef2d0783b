"""What became of each gap, for the instruments of some buckets: whom it hit, and how they were healed.

Every update of an instrument has a number of its own (83 RptSeq). If its next update after a gap follows on, the gap
did not touch it; if numbers are missing, it did, and only a snapshot that holds everything up to the gap (369) heals
it. An instrument of which nothing more comes is in doubt for as long as that is so.
"""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.lake.staging import Staged, staged_batches
from umdf.lake.tasks import Place
from umdf.market.events import NULL

Numbers = NDArray[np.int64]
NEVER = np.iinfo(np.int64).max
MOST_LISTED = 1_000
RANK_SHIFT = 40  # numbers of one epoch stay below the next epoch's


def run(task: dict[str, Any], place: Place) -> dict[str, Any]:
    """{"staged", "snapshots", "buckets", "gaps", "epochs": [{"seq_version", "ts_send"}]} → a line for each gap."""
    ranks = {epoch["seq_version"]: rank for rank, epoch in enumerate(task["epochs"])}
    gaps = _Gaps(task, ranks)
    staged, snapshots = ([Staged.from_json(said) for said in task[name]] for name in ("staged", "snapshots"))
    for bucket in task["buckets"]:
        rows = _columns(staged, "mbo", bucket, ("instrument_id", "seq_version", "sequence", "rpt_seq", "ts_send"))
        heads = _columns(
            snapshots, "snapshot", bucket, ("instrument_id", "last_seq_version", "last_sequence", "ts_send")
        )
        gaps.take(rows, heads)
    return {"gaps": gaps.lines(), "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10}


def _columns(staged: list[Staged], family: str, bucket: int, names: tuple[str, ...]) -> list[Numbers]:
    batches = [batch for _, _, batch in staged_batches(staged, family, [bucket])]
    found = []
    for name in names:
        parts = [
            batch.column(name).to_numpy() if name in batch.schema.names else np.full(batch.num_rows, NULL)
            for batch in batches
        ]
        found.append(np.concatenate([np.empty(0, np.int64), *parts]))
    return found


class _Gaps:
    def __init__(self, task: dict[str, Any], ranks: dict[int, int]) -> None:
        self.ranks, self.count = ranks, len(task["gaps"])
        keys = [
            (
                ranks[gap["seq_version"]] << RANK_SHIFT | gap["first"],
                ranks[gap["seq_version"]] << RANK_SHIFT | gap["last"],
            )
            for gap in task["gaps"]
        ]
        self.first, self.last = np.array(keys, np.int64).reshape(-1, 2).T
        begun = np.array([epoch["ts_send"] for epoch in task["epochs"]] + [NEVER], np.int64)
        self.next_epoch = begun[(self.last >> RANK_SHIFT) + 1]  # a new numbering starts from new books
        self.touched: list[list[int]] = [[] for _ in range(self.count)]
        self.hit, self.open, self.by_snapshot = np.zeros((3, self.count), np.int64)
        self.cured = np.full(self.count, NULL)

    def take(self, rows: list[Numbers], heads: list[Numbers]) -> None:
        instrument, version, sequence, rpt_seq, sent = (column[rows[3] != NULL] for column in rows)
        key = _keys(version, sequence, self.ranks)
        order = np.lexsort((key, instrument))
        instrument, key, rpt_seq, sent = instrument[order], key[order], rpt_seq[order], sent[order]
        head_instrument, head_version, head_last, head_sent = heads
        head_version = np.where(head_version == NULL, max(self.ranks, key=lambda v: self.ranks[v]), head_version)
        head_key = _keys(head_version, head_last, self.ranks)
        head_order = np.lexsort((head_sent, head_key, head_instrument))
        at = (head_instrument[head_order], head_key[head_order], head_sent[head_order])
        known = np.unique(np.concatenate([instrument, head_instrument]))
        for number in known.tolist():
            low, high = np.searchsorted(instrument, [number, number + 1]).tolist()
            first, last = np.searchsorted(at[0], [number, number + 1]).tolist()
            mine = slice(low, high)
            self._instrument(number, key[mine], rpt_seq[mine], sent[mine], at[1][first:last], at[2][first:last])

    def _instrument(
        self, number: int, key: Numbers, rpt_seq: Numbers, sent: Numbers, held: Numbers, held_sent: Numbers
    ) -> None:
        """Each gap lies between two updates of the instrument, before its first or behind its last."""
        following = np.searchsorted(key, self.last, side="right")
        is_last = following == len(key)
        at = np.minimum(following, max(len(key) - 1, 0))
        there = ~is_last
        if len(key):
            before = np.where(following > 0, rpt_seq[np.maximum(following - 1, 0)], 0)
            same = (following == 0) | (key[np.maximum(following - 1, 0)] >> RANK_SHIFT == key[at] >> RANK_SHIFT)
            follows = there & same & (rpt_seq[at] == before + 1)
            touched = there & same & (rpt_seq[at] > before + 1)
            seen = np.where(follows, sent[at], NEVER)
        else:
            touched, seen = np.zeros(self.count, np.bool_), np.full(self.count, NEVER)
        covering = np.searchsorted(held, self.last, side="left")
        earliest = np.minimum.accumulate(held_sent[::-1])[::-1] if len(held_sent) else held_sent
        healed = np.full(self.count, NEVER)
        is_held = covering < len(held)
        healed[is_held] = earliest[covering[is_held]]
        cured = np.minimum(np.minimum(seen, healed), self.next_epoch)
        for gap in np.flatnonzero(touched).tolist():
            if len(self.touched[gap]) <= MOST_LISTED:
                self.touched[gap].append(number)
        self.hit += touched
        self.open += cured == NEVER
        self.by_snapshot += (healed == cured) & (cured != NEVER)
        self.cured = np.maximum(self.cured, np.where(cured == NEVER, NULL, cured))

    def lines(self) -> list[dict[str, Any]]:
        columns = zip(
            self.hit.tolist(), self.open.tolist(), self.by_snapshot.tolist(), self.cured.tolist(), strict=True
        )
        return [
            {"instruments": touched, "touched": hit, "open": still, "by_snapshot": healed, "ts_cured": cured}
            for touched, (hit, still, healed, cured) in zip(self.touched, columns, strict=True)
        ]


def _keys(version: Numbers, sequence: Numbers, ranks: dict[int, int]) -> Numbers:
    rank = np.full(len(version), -1, np.int64)
    for epoch, number in ranks.items():
        rank[version == epoch] = number
    return rank << RANK_SHIFT | sequence
