"""An update action (279) that nobody knows may have done anything to the book: it is stale, of every book type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from book.row_builders import PETR, level, order, rows
from wire.sbe.packet_builders import concatenate_packets, packets_of

from umdf.book import memory_layout_kernel as k
from umdf.book.engine import Books
from umdf.book.live import PacketApplier
from umdf.market.fast.events import FastEventMapper
from umdf.market.sbe.events import SbeEventMapper
from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal
from umdf.wire.sbe.compose import Packet, compose
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.loader import load as load_schema

UNKNOWN = 7  # as 279
# Of each book type, a first row and one that the unknown action is about.
BOOK_TYPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "orders": (order("A", "B", 1, "10", 100), order("U", "B", 1, "10", 50)),
    "orders, nothing but the side": (order("A", "B", 1, "10", 100), order("U", "A", None, None, None)),
    "orders, an unknown side too": (order("A", "B", 1, "10", 100), order("U", "N", None, None, None)),
    "by position": (order("A", "B", 1, "10", 100, position=1), order("U", "B", 1, "10", 50, position=1)),
    "price depth": (level("A", "B", "10", 100, 2), level("U", "B", "10", 50, 1)),
    "price depth by position": (level("A", "B", "10", 100, 2, position=1), level("U", "B", "10", 50, 1, position=1)),
    "top of book": (level("M", "B", "10", 100, 2, update_action=5), level("U", "B", "11", 50, 1)),
    "lending": (order("A", "B", 1, "10", 100, venue="L"), order("U", "B", 1, "10", 50, venue="L")),
}


@pytest.mark.parametrize("name", BOOK_TYPES)
def test_an_unknown_action_makes_a_book_of_any_type_stale(name: str) -> None:
    first, unknown = BOOK_TYPES[name]
    is_lending = first.get("venue") == "L"
    books = Books()
    books.apply(rows(first))
    book = books.book(PETR, lending=is_lending)
    assert book is not None and book.stale is None and len(book.bids) == 1
    outcomes = books.apply(rows({**unknown, "update_action": UNKNOWN}))
    book = books.book(PETR, lending=is_lending)
    assert outcomes.codes.tolist() == [k.UNKNOWN_ACTION]
    assert book is not None and book.stale is not None and str(book.stale) == "unknown action 7"
    assert len(book.bids) == 1, "and is left as it was"


ENTRY = {
    "MDUpdateAction": 0, "MDEntryType": "0", "SecurityID": PETR, "RptSeq": 1, "MDEntryDate": 20261113,
    "MDEntryTime": 130000123, "MDEntryPx": Decimal(-2, 1050), "MDEntrySize": 300,
}  # fmt: skip
FAST_ENTRIES: dict[str, dict[str, Any]] = {
    "orders": {"OrderID": "123"},
    "price depth": {"NumberOfOrders": 3},
    "top of book": {"MDUpdateAction": 5, "NumberOfOrders": 3},
    "lending": {"OrderID": "123", "MDStreamID": "L"},
}


@pytest.mark.parametrize("name", FAST_ENTRIES)
@pytest.mark.parametrize("action", [6, UNKNOWN, 9])
def test_a_fast_entry_with_an_unknown_action_makes_its_book_stale(name: str, action: int) -> None:
    templates = load_templates()
    body = {"MsgSeqNum": 9, "SendingTime": 20261113130000250}
    first = {**ENTRY, **FAST_ENTRIES[name]}
    second = {**first, "MDUpdateAction": action, "RptSeq": 2, "MDEntrySize": 100}
    messages = [Writer(templates).encode(152, {**body, "MDEntries": [entry]}) for entry in (first, second)]
    end = np.cumsum([len(message) for message in messages], dtype=np.int64)
    decoder = FastDecoder(templates)
    batch = decoder.decode(np.frombuffer(b"".join(messages), np.uint8), end - [len(m) for m in messages], end)
    books = Books()
    outcomes = books.apply(FastEventMapper(decoder.layout).events(batch).rows("mbo"))
    book = books.book(PETR, lending=name == "lending")
    assert outcomes.codes.tolist()[0] > 0 > outcomes.codes.tolist()[1]
    assert book is not None and str(book.stale) == f"unknown action {action}"


@pytest.mark.parametrize("template", [50, 52])
@pytest.mark.parametrize("entry_type", ["0", "z"])
def test_a_binary_message_with_an_unknown_action_makes_its_book_stale(template: int, entry_type: str) -> None:
    schema = load_schema()
    first = {
        "securityID": PETR, "matchEventIndicator": 128, "mDUpdateAction": 0, "mDEntryType": "0", "mDEntryPx": "10.5",
        "mDEntrySize": 100, "secondaryOrderID": 1, "rptSeq": 1, "enteringFirm": 3, "mDInsertTimestamp": 1,
        "transactTime": 1, "mDEntryPrevSize": None,
    }  # fmt: skip
    unknown = first | {"mDUpdateAction": UNKNOWN, "mDEntryType": entry_type, "rptSeq": 2}
    unknown = {name: value for name, value in unknown.items() if template == 50 or name in _fields(52)}
    first = {name: value for name, value in first.items() if name in _fields(50)}
    packets = packets_of(
        compose(schema, [Packet([(50, first)], sequence=1), Packet([(template, unknown)], sequence=2)])
    )
    decoder, books = SbeDecoder(schema), Books()
    buffer, start, end = concatenate_packets(packets)
    outcomes = books.apply(SbeEventMapper(decoder.layout).events(decoder.decode(buffer, start, end)).rows("mbo"))
    book = books.book(PETR)
    assert outcomes.codes.tolist() == [k.ADDED, k.UNKNOWN_ACTION] and book is not None and book.stale is not None
    live = Books()
    applier = PacketApplier(live, decoder.layout)
    for at, to in zip(start.tolist(), end.tolist(), strict=True):
        applier.apply(buffer.ctypes.data + at, to - at)
    found = live.book(PETR)
    assert found is not None and str(found.stale) == str(book.stale)


def _fields(template: int) -> set[str]:
    return {field.name for field in load_schema().messages[template].sent_fields}
