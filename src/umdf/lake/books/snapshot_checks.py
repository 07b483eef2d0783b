"""Checks rebuilt books against the snapshots in the capture: the rows of `book_check`.

Invariant: every complete snapshot has a row. Either it was compared (equal, different), or the row has the reason why
not. RptSeq ensures that both describe the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.book.engine import Books
from umdf.buffers import buffer_address
from umdf.lake.books import snapshot_checks_kernel as c
from umdf.lake.schemas import table
from umdf.market.families import NULL, NULL_I32
from umdf.sync import book_trust_kernel as trust

if TYPE_CHECKING:
    from umdf.lake.books.replay import BookReplay
    from umdf.lake.books.snapshot_rows import BookSnapshots

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]
SIDES = ("bid", "ask")


class Verdict:
    EQUAL, DIFFERENT, NO_BOOK, STALE, UNVERIFIED, MISSED, AHEAD, OUTDATED, OTHER_EPOCH = range(9)
    RECOVERS = (DIFFERENT, NO_BOOK, STALE, UNVERIFIED, MISSED)  # the snapshot replaces the book


VERDICT_NAMES = {
    Verdict.EQUAL: "equal",
    Verdict.DIFFERENT: "different",
    Verdict.NO_BOOK: "no_book",
    Verdict.STALE: "stale",
    Verdict.UNVERIFIED: "unverified",
    Verdict.MISSED: "different",
    Verdict.AHEAD: "ahead",
    Verdict.OUTDATED: "outdated",
    Verdict.OTHER_EPOCH: "other_epoch",
}
VERDICT_REASONS = {
    Verdict.NO_BOOK: "nothing of the book was known before",
    Verdict.STALE: "our book was stale",
    Verdict.UNVERIFIED: "our book has rpt_seq {known}, the snapshot {rpt_seq}: what is between was lost",
    Verdict.MISSED: "our book has rpt_seq {known}, the snapshot {rpt_seq}",
    Verdict.AHEAD: "the incremental stream ends before it",
    Verdict.OUTDATED: "our book has rpt_seq {known} already, the snapshot {rpt_seq}",
    Verdict.OTHER_EPOCH: "it belongs to a numbering that was not captured",
}


@dataclass(frozen=True, eq=False)
class ComparisonResult:
    found: Numbers
    expected: Numbers
    first_difference: Numbers  # index of the first different entry; -1: equal
    differences: list[str | None]


class SnapshotChecks:
    """One check per snapshot of a span."""

    def __init__(self, count: int) -> None:
        self.verdict = np.full(count, Verdict.OUTDATED, np.int8)
        self.found, self.expected = np.full((2, count), NULL)
        self.reasons: list[str | None] = [None] * count

    def add_comparisons(self, snapshot_rows: Numbers, result: ComparisonResult) -> None:
        self.found[snapshot_rows], self.expected[snapshot_rows] = result.found, result.expected
        for snapshot, words in zip(snapshot_rows.tolist(), result.differences, strict=True):
            self.reasons[snapshot] = words

    def add_verdicts(
        self, snapshot_rows: Numbers, verdict: NDArray[np.int8], known: Numbers, snapshots: BookSnapshots
    ) -> None:
        self.verdict[snapshot_rows] = verdict
        self.expected[snapshot_rows] = np.diff(snapshots.offsets)[snapshot_rows] - 1
        for snapshot, code, own_rpt_seq in zip(snapshot_rows.tolist(), verdict.tolist(), known.tolist(), strict=True):
            if code in VERDICT_REASONS and self.reasons[snapshot] is None:
                rpt_seq = _format_rpt_seq(int(snapshots.last_rpt_seq[snapshot]))
                self.reasons[snapshot] = VERDICT_REASONS[code].format(
                    known=_format_rpt_seq(own_rpt_seq), rpt_seq=rpt_seq
                )

    def add_unknown_epochs(self, snapshots: BookSnapshots) -> None:
        snapshot_rows = np.flatnonzero(snapshots.epoch < 0)
        self.add_verdicts(
            snapshot_rows,
            np.full(len(snapshot_rows), Verdict.OTHER_EPOCH, np.int8),
            np.zeros(len(snapshot_rows), np.int64),
            snapshots,
        )

    def to_table(self, snapshots: BookSnapshots, ids: Numbers, symbols: pa.Array) -> pa.Table:
        """Rows of the table, sorted."""
        instrument_id = ids[snapshots.book >> 1]
        order = np.lexsort((snapshots.sequence, snapshots.seq_version, instrument_id))
        schema = table("book_check").file_schema
        columns = {
            "instrument_id": instrument_id[order],
            "symbol": symbols.take(pa.array(snapshots.book[order] >> 1)),
            "seq_version": snapshots.seq_version[order],
            "sequence": snapshots.sequence[order],
            "ts_recv": snapshots.ts_recv[order],
            "last_sequence": snapshots.last_sequence[order],
            "last_rpt_seq": _nullable(snapshots.last_rpt_seq[order]),
            "verdict": [VERDICT_NAMES[code] for code in self.verdict[order].tolist()],
            "orders_expected": _nullable(self.expected[order]),
            "orders_found": _nullable(self.found[order]),
            "difference": [self.reasons[snapshot] for snapshot in order.tolist()],
        }
        return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def initial_verdicts(
    states: Numbers, rpt_seq: Numbers, begun: Numbers, is_ahead: Mask
) -> tuple[NDArray[np.int8], Mask]:
    """Verdicts that do not need the books' content, EQUAL if they have to be compared; and which books are unverified
    at their snapshots, if so many gaps have begun there: a snapshot inside a gap is ahead of the book."""
    known, stale = states[:, trust.S_RPT_SEQ], states[:, trust.S_STALE] != 0
    unverified = (states[:, trust.S_UNVERIFIED] != 0) | (begun > states[:, trust.S_GAPS])
    unknown = (states[:, trust.S_SEEN] == trust.UNSEEN) & (known == 0)
    same = (known == rpt_seq) | (unknown & (rpt_seq == NULL))
    no_rpt_seq = (known == NULL) | (rpt_seq == NULL)
    cases = [
        (same & ~stale & ~((known == NULL) & unverified), Verdict.EQUAL),
        (is_ahead, Verdict.AHEAD),
        (unknown, Verdict.NO_BOOK),
        (stale, Verdict.STALE),
        (unverified, Verdict.UNVERIFIED),
        (no_rpt_seq, Verdict.EQUAL),
        (rpt_seq < known, Verdict.OUTDATED),
    ]
    found = np.select([case for case, _ in cases], [np.int8(v) for _, v in cases], np.int8(Verdict.MISSED))
    return found.astype(np.int8), unverified


def _nullable(values: Numbers) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == NULL)


def compare_snapshots(replay: BookReplay, snapshots: BookSnapshots, snapshot_rows: Numbers) -> ComparisonResult:
    """Compare the books of a run with snapshots, each of another book."""
    snapshot_books, books = replay.snapshot_books, snapshots.book[snapshot_rows]
    ids, lending = replay.ids[books >> 1], (books & 1).astype(np.int64)
    for snapshot in snapshot_rows[snapshots.depth[snapshot_rows] != NULL_I32].tolist():
        book = int(snapshots.book[snapshot])
        for some in (snapshot_books, replay.books):
            some.set_depth(int(replay.ids[book >> 1]), int(snapshots.depth[snapshot]), lending=bool(book & 1))
    snapshot_books.apply(snapshots.rows_of(snapshot_rows)[0])
    results = np.zeros((len(snapshot_rows), c.RESULT_COLUMNS), np.int64)
    arguments = np.zeros(c.ARGUMENTS, np.int64)
    arguments[c.PAIRS], arguments[c.OURS], arguments[c.SNAPSHOT_BOOKS] = (
        len(snapshot_rows),
        replay.books.arenas.address,
        snapshot_books.arenas.address,
    )
    arguments[c.IDS], arguments[c.LENDING], arguments[c.OUT] = map(buffer_address, (ids, lending, results))
    capacity = 1 << 12
    while True:
        room = np.empty((2, capacity * c.ENTRY_BYTES), np.uint8)
        arguments[c.CAPACITY] = capacity
        arguments[c.OUR_ENTRIES], arguments[c.SNAPSHOT_ENTRIES] = buffer_address(room[0]), buffer_address(room[1])
        arguments[c.FIRST] = c.compare_books(buffer_address(arguments))
        if arguments[c.FIRST] == len(snapshot_rows):
            break
        capacity *= 4
    index = results[:, c.R_FIRST_DIFFERENCE]
    words: list[str | None] = [None] * len(snapshot_rows)
    for at in np.flatnonzero(index >= 0).tolist():
        words[at] = _describe_difference(replay.books, snapshot_books, int(ids[at]), bool(lending[at]), int(index[at]))
    return ComparisonResult(results[:, c.R_FOUND], results[:, c.R_EXPECTED], index, words)


def _describe_difference(ours: Books, snapshot_books: Books, instrument_id: int, lending: bool, index: int) -> str:
    found, expected = (_describe_entry(books, instrument_id, lending, index) for books in (ours, snapshot_books))
    return f"our book has {found}, the snapshot {expected}"


def _describe_entry(books: Books, instrument_id: int, lending: bool, index: int) -> str:
    book = books.book(instrument_id, lending=lending)
    if book is None or index >= len(book.entries):
        return "nothing more"
    entry = book.entries[index]
    position = int((book.entries["side"][: index + 1] == entry["side"]).sum())
    price = "without price" if entry["price"] == NULL else f"at {int(entry['price']) / 1e9:.9g}"
    order = "" if entry["order_id"] == NULL else f" order {int(entry['order_id'])}"
    return f"{SIDES[int(entry['side'])]} {position}:{order} {int(entry['size'])} {price}"


def _format_rpt_seq(value: int) -> str:
    return "none" if value == NULL else str(value)
