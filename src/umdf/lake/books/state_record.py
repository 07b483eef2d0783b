"""The state of each book for a later run, as rows of `book_state`: the book itself, and the day so far.

A row's content is one blob: HEADER, then each section as a count and its records. Besides the state at the end of a
run (no flags, or MAYBE_BAD_BOOK) there are rows for changes of a book without a row of `mbo`: a snapshot replaced it
(SNAPSHOT), or it was emptied by a channel reset or a deletion (LAST). Their sections of the day are empty. With them,
every book at every moment can be derived from `mbo` (`umdf.lake.books.derived_levels`). For many states at once see
`umdf.lake.books.state_columns`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.book import memory_layout_kernel as k
from umdf.book.engine import Books
from umdf.book.state import BOOK_COLUMNS
from umdf.book.state_kernel import book_number
from umdf.book.views import ENTRY_DTYPE
from umdf.lake.books.bars import BAR_DTYPE, TRADE_DTYPE
from umdf.lake.books.gap_recovery import UNANSWERED_DTYPE
from umdf.lake.books.levels import BBO_DTYPE
from umdf.lake.schemas import table
from umdf.market.families import LAST, NULL, SNAPSHOT

FORMAT = 2
EVENT_FLAGS = SNAPSHOT | LAST  # flags of rows that are not states at the end of a run
# epoch: the book's epoch; shown_epoch: that of its last shown ladder (NULL: none).
# unverified_from, covered: unverified since the gap with this first sequence; gaps up to this sequence are known.
HEADER_FIELDS = tuple(
    "lending known stale unverified shown_bad shown_epoch ts seen epoch unverified_from covered events "
    "untrusted_events gaps ts_send ts_recv final_before busted".split()
)
HEADER = struct.Struct(f"<{len(HEADER_FIELDS)}q")
BOOK_FIELDS: Sequence[str] = [name for name in BOOK_COLUMNS if name not in ("instrument_id", "lending")]
BOOK = struct.Struct(f"<{len(BOOK_FIELDS)}q")
COUNT = struct.Struct("<q")
_TRANSIENT_FIELDS = {"stale_row": 0, "changed_sides": 0}  # they depend on the other books of the task
_NEW_BOOK_FIELDS = {"book_type": k.UNDECIDED, "depth": k.DEFAULT_DEPTH, "declared_depth": k.UNDECLARED}
EMPTY_BOOK: tuple[dict[str, int], NDArray[np.void]] = (
    dict.fromkeys(BOOK_FIELDS, 0) | _NEW_BOOK_FIELDS,
    np.empty(0, ENTRY_DTYPE),
)
LOSS_DTYPE = np.dtype([("since", "i8"), ("until", "i8")])
PUBLISHED_DTYPE = np.dtype([("value", "i8")])
SECTION_DTYPES: dict[str, np.dtype[Any]] = {
    "entries": ENTRY_DTYPE,
    "trades": TRADE_DTYPE,
    "hours": BAR_DTYPE,
    "bbo_1s": BBO_DTYPE,
    "bbo_1m": BBO_DTYPE,
    "loss_windows": LOSS_DTYPE,
    "unanswered": UNANSWERED_DTYPE,
    "published": PUBLISHED_DTYPE,
}


@dataclass(eq=False)
class BookState:
    """One book, and the day of its instrument up to a row."""

    instrument_id: int
    seq_version: int
    key: int  # of the last row: sequence, message, entry, as in `instrument_rows.wire_key`
    rpt_seq: int
    flags: int
    header: dict[str, int]
    book_header: dict[str, int]
    sections: dict[str, NDArray[Any]] = field(default_factory=dict)

    def section(self, name: str) -> NDArray[Any]:
        return self.sections.get(name, np.empty(0, SECTION_DTYPES[name]))

    def encode(self) -> bytes:
        parts = [HEADER.pack(*(self.header[name] for name in HEADER_FIELDS))]
        parts.append(BOOK.pack(*(self.book_header[name] for name in BOOK_FIELDS)))
        for name in SECTION_DTYPES:
            records = self.section(name)
            parts += [COUNT.pack(len(records)), records.tobytes()]
        return b"".join(parts)


def decode_state(instrument_id: int, seq_version: int, key: int, rpt_seq: int, flags: int, content: bytes) -> BookState:
    head: dict[str, int] = dict(zip(map(str, HEADER_FIELDS), HEADER.unpack_from(content), strict=True))
    book: dict[str, int] = dict(zip(BOOK_FIELDS, BOOK.unpack_from(content, HEADER.size), strict=True))
    offset, sections = HEADER.size + BOOK.size, {}
    for name, kind in SECTION_DTYPES.items():
        (count,) = COUNT.unpack_from(content, offset)
        sections[name] = np.frombuffer(content, kind, count, offset + COUNT.size)
        offset += COUNT.size + count * kind.itemsize
    return BookState(instrument_id, seq_version, key, rpt_seq, flags, head, book, sections)


def state_table(states: Iterable[BookState]) -> pa.Table:
    """Rows of `book_state`, sorted."""
    ordered = sorted(states, key=lambda one: (one.instrument_id, one.seq_version, one.key))
    columns: dict[str, list[Any]] = {
        "instrument_id": [one.instrument_id for one in ordered],
        "seq_version": [one.seq_version for one in ordered],
        "sequence": [one.key >> 32 for one in ordered],
        "msg_index": [one.key >> 16 & 0xFFFF for one in ordered],
        "entry_index": [one.key & 0xFFFF for one in ordered],
        "rpt_seq": [None if one.rpt_seq == NULL else one.rpt_seq for one in ordered],
        "flags": [one.flags for one in ordered],
        "format": [FORMAT] * len(ordered),
        "content": [one.encode() for one in ordered],
    }
    schema = table("book_state").file_schema
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def decode_state_rows(rows: pa.Table) -> list[BookState]:
    found = []
    for row in rows.to_pylist():
        key = row["sequence"] << 32 | row["msg_index"] << 16 | row["entry_index"]
        rpt_seq = NULL if row["rpt_seq"] is None else row["rpt_seq"]
        key_fields = row["instrument_id"], row["seq_version"], key, rpt_seq, row["flags"]
        found.append(decode_state(*key_fields, row["content"]))
    return found


def read_book(books: Books, instrument_id: int, lending: int) -> tuple[dict[str, int], NDArray[np.void]]:
    """One book: its header, and its entries."""
    book = books.book(instrument_id, lending=bool(lending))
    assert book is not None
    header = books.arenas.headers[book_number(books.arenas.address, instrument_id, lending)]
    return {name: int(header[name]) for name in BOOK_FIELDS} | _TRANSIENT_FIELDS, book.entries
