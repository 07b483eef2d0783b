"""Decoded FAST columns → events, by the table in `fast_table`.

    events = FastEvents(decoder.layout).events(decoder.decode(buffer, start, end))

What a message is, its MsgType (35) says, not its template id: any template file of the same shape will do. A unit is a
message; those that the decoder refused are units too, with nothing but NULLs and no rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.market import events as e
from umdf.market import fast_table as t
from umdf.market.fast_columns import Lines, Places
from umdf.market.fast_entries import EntryRows
from umdf.market.fast_lists import body_rows, control_rows, definition_rows, news_rows
from umdf.market.rows import Events, List, Rows, Text, Units
from umdf.wire.fast.batch import Batch
from umdf.wire.fast.layout import Layout

Numbers = NDArray[Any]
_SEQUENCE, _SENT = (next(column for column in e.COMMON if column.name == name) for name in ("sequence", "ts_send"))


class FastEvents:
    """Makes events of the batches of one layout. Not for several threads at once: one each."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._templates: dict[int, tuple[str, Places]] = {}
        self._entries: dict[int, EntryRows] = {}
        for template_id, root in layout.roots.items():
            places = Places(layout, root)
            kind = places.constant(t.MSG_TYPE)
            if isinstance(kind, str):
                self._templates[template_id] = kind, places
            if kind in (t.INCREMENTAL, t.SNAPSHOT) and t.ENTRIES in places.lists:
                self._entries[template_id] = EntryRows(places, kind == t.SNAPSHOT)

    @property
    def unknown(self) -> Mapping[str, int]:
        """How many entries of each unknown type (269) there were so far."""
        return sum((entries.unknown for entries in self._entries.values()), Counter[str]())

    def events(
        self,
        batch: Batch,
        msg_index: Numbers | None = None,
        ts_recv: Numbers | None = None,
        *,
        channel_id: int | None = None,
        seq_version: int = 0,
    ) -> Events:
        """The events of a batch. `msg_index` (the place in its datagram) and `ts_recv` are of each message."""
        assert batch.layout is self.layout, "a batch of another template set"
        count = batch.messages
        units = Units(
            np.full(count, e.NULL_I16 if channel_id is None else channel_id, np.int16),
            np.full(count, seq_version, np.int64),
            np.full(count, e.NULL, np.int64),
            np.full(count, e.NULL, np.int64),
            np.full(count, e.NULL, np.int64) if ts_recv is None else np.asarray(ts_recv, np.int64),
        )
        pieces: dict[str, list[Rows]] = {}
        for template_id in batch.templates:
            if template_id in self._templates:
                for name, rows in self._rows(batch, template_id, units).items():
                    pieces.setdefault(name, []).append(rows)
        families = {name: _merged(pieces[name]) for name in e.FAMILIES if name in pieces}
        if msg_index is not None:
            places = np.asarray(msg_index, np.uint16)
            for rows in families.values():
                rows.msg_index = places[rows.unit]
        return Events(units, families)

    def _rows(self, batch: Batch, template_id: int, units: Units) -> dict[str, Rows]:
        """The rows of one template by family; its messages become units."""
        kind, places = self._templates[template_id]
        numbers = batch.message(places.root)
        sequence, sent = _header(batch, places, len(numbers))
        units.sequence[numbers], units.ts_send[numbers] = sequence, sent
        if template_id in self._entries:
            found = self._entries[template_id].rows(batch, sent)
            if kind == t.SNAPSHOT:
                found["snapshot"] = body_rows(batch, places, "snapshot", e.SNAPSHOT)
            return found
        if kind == t.SECURITY_LIST:
            definitions = definition_rows(batch, places)
            return {} if definitions is None else {"definition": definitions}
        if kind == t.SECURITY_STATUS:
            return {"status": body_rows(batch, places, "status", e.LAST)}
        if kind == t.NEWS:
            return {"news": news_rows(batch, places)}
        controls = {t.HEARTBEAT: "H", t.SEQUENCE_RESET: "S"}
        return {"control": control_rows(batch, places, controls[kind], sequence)} if kind in controls else {}


def _header(batch: Batch, places: Places, rows: int) -> tuple[Numbers, Numbers]:
    """MsgSeqNum and SendingTime of a template's messages."""
    values = np.full((2, rows), e.NULL, np.int64)
    lines = Lines(batch, rows)
    for target, tag, column in zip(values, (t.MSG_SEQ_NUM, t.SENDING_TIME), (_SEQUENCE, _SENT), strict=True):
        place = places.find(tag, t.BODY)
        if place is not None:
            lines.add(place, column, target)
    lines.run()
    return values[0], values[1]


def _merged(pieces: list[Rows]) -> Rows:
    """Rows of several templates in the order of the wire."""
    if len(pieces) == 1:
        return pieces[0]
    names = dict.fromkeys(name for rows in pieces for name in rows.columns)
    texts = dict.fromkeys(name for rows in pieces for name in rows.texts)
    lists = dict.fromkeys(name for rows in pieces for name in rows.lists)
    family = pieces[0].family
    together = Rows(
        family,
        np.concatenate([rows.unit for rows in pieces]),
        np.concatenate([rows.msg_index for rows in pieces]),
        np.concatenate([rows.entry_index for rows in pieces]),
        {name: np.concatenate([rows.column(name) for rows in pieces]) for name in names},
        {name: _joined([(rows.texts.get(name), len(rows)) for rows in pieces]) for name in texts},
        {name: _joined_lists(family.lists[name], [(rows.lists.get(name), len(rows)) for rows in pieces]) for name in lists},
    )
    return together.at(np.argsort(together.order, kind="stable"))


def _joined(pieces: list[tuple[Text | None, int]]) -> Text:
    held = [text or (np.zeros(rows + 1, np.int32), np.zeros(0, np.uint8)) for text, rows in pieces]
    return _ranges([offsets for offsets, _ in held]), np.concatenate([content for _, content in held])


def _ranges(offsets: list[Numbers]) -> Numbers:
    sizes = np.concatenate([np.diff(one) for one in offsets])
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def _joined_lists(columns: tuple[e.Column, ...], pieces: list[tuple[List | None, int]]) -> List:
    held = [entries or List(np.zeros(rows + 1, np.int32), {}) for entries, rows in pieces]
    counts = [int(entries.offsets[-1]) for entries in held]
    numbers = {
        column.name: np.concatenate(
            [
                entries.columns.get(column.name, np.full(count, column.null, column.dtype))
                for entries, count in zip(held, counts, strict=True)
            ]
        )
        for column in columns
        if any(column.name in entries.columns for entries in held)
    }
    texts = {
        column.name: _joined([(entries.texts.get(column.name), n) for entries, n in zip(held, counts, strict=True)])
        for column in columns
        if any(column.name in entries.texts for entries in held)
    }
    return List(_ranges([entries.offsets for entries in held]), numbers, texts)
