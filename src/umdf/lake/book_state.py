"""What a later run needs of each book, as rows of `book_state`: the book itself, and the day so far.

A row's content is one blob: HEAD, then each section as a count and its records. Besides the state at the end of a run
(no flags, or MAYBE_BAD_BOOK) there are rows for what happened to a book that is in no row of its own of `mbo`: a
snapshot took its place (SNAPSHOT), or it was emptied by a channel reset or a deletion (LAST). Their sections of the day
are empty. With them `mbo` gives every book at every moment (`umdf.lake.derive`). Many states at once are
`umdf.lake.book_states`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.book import tables_kernel as k
from umdf.book.engine import Books
from umdf.book.state import OF_BOOK
from umdf.book.state_kernel import number_of
from umdf.book.views import ENTRY
from umdf.lake.bars import SUMS, TRADE
from umdf.lake.gap_cures import OWED
from umdf.lake.levels import BBO
from umdf.lake.schemas import table
from umdf.market.events import LAST, NULL, SNAPSHOT

FORMAT = 2
HAPPENED = SNAPSHOT | LAST  # flags of what is no state at the end
# epoch: the numbering that the book is in; shown_epoch: that of what was last shown of it (NULL: nothing was).
# doubt_from, covered: it is in doubt since the gap with this first number, and knows of the gaps up to this number.
HEAD_NAMES = tuple(
    "lending known stale doubt shown_bad shown_epoch ts seen epoch doubt_from covered events events_in_doubt losses "
    "ts_send ts_recv settled busted".split()
)
HEAD = struct.Struct(f"<{len(HEAD_NAMES)}q")
BOOK_NAMES: Sequence[str] = [name for name in OF_BOOK if name not in ("instrument_id", "lending")]
BOOK = struct.Struct(f"<{len(BOOK_NAMES)}q")
COUNT = struct.Struct("<q")
_NOT_KEPT = {"row": 0, "dirty": 0}  # they depend on what else was in the task
_KIND = {"kind": k.UNDECIDED, "depth": k.DEFAULT_DEPTH, "said": k.NOT_SAID}
NO_BOOK: tuple[dict[str, int], NDArray[np.void]] = dict.fromkeys(BOOK_NAMES, 0) | _KIND, np.empty(0, ENTRY)
LOST = np.dtype([("since", "i8"), ("until", "i8")])
PUBLISHED = np.dtype([("value", "i8")])
SECTIONS: dict[str, np.dtype[Any]] = {
    "entries": ENTRY,
    "trades": TRADE,
    "hours": SUMS,
    "bbo_1s": BBO,
    "bbo_1m": BBO,
    "lost": LOST,
    "owed": OWED,
    "published": PUBLISHED,
}


@dataclass(eq=False)
class Stored:
    """One book, and the day of its instrument up to a row."""

    instrument_id: int
    seq_version: int
    key: int  # of the last row: sequence, message, entry, as `book_rows.wire_key` has it
    rpt_seq: int
    flags: int
    head: dict[str, int]
    book: dict[str, int]
    sections: dict[str, NDArray[Any]] = field(default_factory=dict)

    def section(self, name: str) -> NDArray[Any]:
        return self.sections.get(name, np.empty(0, SECTIONS[name]))

    def content(self) -> bytes:
        parts = [HEAD.pack(*(self.head[name] for name in HEAD_NAMES))]
        parts.append(BOOK.pack(*(self.book[name] for name in BOOK_NAMES)))
        for name in SECTIONS:
            records = self.section(name)
            parts += [COUNT.pack(len(records)), records.tobytes()]
        return b"".join(parts)


def stored_of(instrument_id: int, seq_version: int, key: int, rpt_seq: int, flags: int, content: bytes) -> Stored:
    head: dict[str, int] = dict(zip(map(str, HEAD_NAMES), HEAD.unpack_from(content), strict=True))
    book: dict[str, int] = dict(zip(BOOK_NAMES, BOOK.unpack_from(content, HEAD.size), strict=True))
    at, sections = HEAD.size + BOOK.size, {}
    for name, kind in SECTIONS.items():
        (count,) = COUNT.unpack_from(content, at)
        sections[name] = np.frombuffer(content, kind, count, at + COUNT.size)
        at += COUNT.size + count * kind.itemsize
    return Stored(instrument_id, seq_version, key, rpt_seq, flags, head, book, sections)


def state_table(stored: Iterable[Stored]) -> pa.Table:
    """Rows of `book_state`, sorted."""
    every = sorted(stored, key=lambda one: (one.instrument_id, one.seq_version, one.key))
    columns: dict[str, list[Any]] = {
        "instrument_id": [one.instrument_id for one in every],
        "seq_version": [one.seq_version for one in every],
        "sequence": [one.key >> 32 for one in every],
        "msg_index": [one.key >> 16 & 0xFFFF for one in every],
        "entry_index": [one.key & 0xFFFF for one in every],
        "rpt_seq": [None if one.rpt_seq == NULL else one.rpt_seq for one in every],
        "flags": [one.flags for one in every],
        "format": [FORMAT] * len(every),
        "content": [one.content() for one in every],
    }
    schema = table("book_state").file_schema
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def states_in(rows: pa.Table) -> list[Stored]:
    found = []
    for row in rows.to_pylist():
        key = row["sequence"] << 32 | row["msg_index"] << 16 | row["entry_index"]
        rpt_seq = NULL if row["rpt_seq"] is None else row["rpt_seq"]
        about = row["instrument_id"], row["seq_version"], key, rpt_seq, row["flags"]
        found.append(stored_of(*about, row["content"]))
    return found


def book_in(books: Books, instrument_id: int, lending: int) -> tuple[dict[str, int], NDArray[np.void]]:
    """One book: its header, and its entries."""
    book = books.book(instrument_id, lending=bool(lending))
    assert book is not None
    header = books.arenas.headers[number_of(books.arenas.address, instrument_id, lending)]
    return {name: int(header[name]) for name in BOOK_NAMES} | _NOT_KEPT, book.entries
