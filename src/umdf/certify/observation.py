"""What a client has seen during a step: decoded messages with their bytes, and the book after each packet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

MBO, MBP, TOB = "MBO", "MBP", "TOB"
BOOK_TYPES = (MBO, MBP, TOB)
INCREMENTAL, SNAPSHOT, INSTRUMENTS = "incremental", "snapshot", "instruments"
BID, ASK = 0, 1
SIDE_NAMES = ("BID", "ASK")
SIDE_CODES = ("0", "1")  # 269
GROUP_TAGS = (268, 146)  # NoMDEntries, NoRelatedSym: what comes after belongs to their entries
SYMBOL_ID, SECURITY_GROUP, MSG_TYPE = 48, 1151, 35
ORDER_ID, SECONDARY_ORDER_ID = 37, 198  # FIX/FAST, Binary

Tags = dict[int, str]


@dataclass(frozen=True)
class SeenMessage:
    """A message as FIX writes it; of Binary, `data` is its packet."""

    channel: int
    stream: str
    sequence: int
    fields: tuple[tuple[int, str], ...]
    data: bytes

    @property
    def msg_type(self) -> str:
        return next((value for tag, value in self.fields if tag == MSG_TYPE), "")

    @cached_property
    def entries(self) -> tuple[Tags, ...]:
        """The entries of its repeating group, each with the fields before the group; without one, the message."""
        at = next((place for place, (tag, _) in enumerate(self.fields) if tag in GROUP_TAGS), len(self.fields))
        header, found = dict(self.fields[:at]), list[Tags]()
        members = self.fields[at + 1 :]
        for tag, value in members:
            if not found or tag == members[0][0]:
                found.append(dict(header))
            found[-1].setdefault(tag, value) if tag not in header else found[-1].update({tag: value})
        return tuple(found) or (header,)

    def __str__(self) -> str:
        return "|".join(f"{tag}={value}" for tag, value in self.fields)


@dataclass(frozen=True)
class BookRow:
    """An order of a book by order, a price of the others. Prices are in 1e-9; None: an order without a price."""

    price: int | None
    size: int
    order_id: int | None = None  # of a book by order
    count: int | None = None  # orders, of the others

    @property
    def key(self) -> int | None:
        """What stays the same while its size changes."""
        return self.price if self.order_id is None else self.order_id


Side = tuple[BookRow, ...]


@dataclass(frozen=True)
class BookState:
    bids: Side = ()
    asks: Side = ()

    def side(self, side: int) -> Side:
        return (self.bids, self.asks)[side]


@dataclass(frozen=True)
class Observation:
    """What one channel has shown of one instrument during a step."""

    book_type: str
    protocol: str
    generation: str
    security_id: int
    group: str  # 1151
    closing_price: int  # 1e-9: what the script calls the Closing price
    messages: tuple[SeenMessage, ...] = ()
    books: tuple[BookState, ...] = (BookState(),)  # before the step, then after each packet that concerned it
    replies: tuple[SeenMessage, ...] = ()  # of a TCP Replayer
    leg_ids: tuple[int, ...] = ()  # of a strategy

    @property
    def before(self) -> BookState:
        return self.books[0]

    @property
    def after(self) -> BookState:
        return self.books[-1]

    def changes(self) -> Iterator[tuple[BookState, BookState]]:
        return zip(self.books, self.books[1:], strict=False)

    def entries(self, stream: str = INCREMENTAL, msg_type: str = "X") -> Iterator[Tags]:
        """Entries of all instruments."""
        for message in self.messages:
            if message.stream == stream and message.msg_type == msg_type:
                yield from message.entries

    def own_entries(self, stream: str = INCREMENTAL, msg_type: str = "X") -> Iterator[Tags]:
        """Entries of the instrument."""
        return (entry for entry in self.entries(stream, msg_type) if entry.get(SYMBOL_ID) == str(self.security_id))


def order_id_of(entry: Tags) -> int | None:
    text = entry.get(ORDER_ID) or entry.get(SECONDARY_ORDER_ID)
    return int(text) if text else None
