"""What a published channel is: its protocol, the generation of its books, the instruments that it carries, its pace."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from umdf.errors import UsageError, did_you_mean, one_of

if TYPE_CHECKING:
    from umdf.exchange.instruments.listing import Listing

SBE, FAST = "sbe", "fast"
PRIORITY, POSITION = "priority", "position"
MBO, MBP, TOB = "MBO", "MBP", "TOB"
INCREMENTAL, SNAPSHOTS, INSTRUMENTS = "incremental", "snapshot", "instruments"
STREAMS = (INCREMENTAL, SNAPSHOTS, INSTRUMENTS)
LOOPING_STREAMS = (SNAPSHOTS, INSTRUMENTS)
DEFAULT_DEPTH = 10  # of a price-depth book (9.3)
MAX_DEPTH, MAX_LOOP_RATE = 1_000, 1_000_000
HEARTBEAT_MS = {SBE: 1_000, FAST: 10_000}  # of the silence of a stream (Binary 9.2.2, FIX/FAST 4.1.1)
SCHEMA_VERSIONS = {PRIORITY: 16, POSITION: 10}
# Binary: of each stream, of their own (9.2.28); FIX/FAST has none.
SEQ_VERSIONS: Mapping[str, Mapping[str, int]] = {
    SBE: {INCREMENTAL: 273, SNAPSHOTS: 20_287, INSTRUMENTS: 14_295},
    FAST: dict.fromkeys(STREAMS, 0),
}


@dataclass(frozen=True)
class Members:
    """The instruments of a channel: those that fit every list that is not empty; all, if all lists are."""

    types: tuple[str, ...] = ()  # SecurityType; a user-defined strategy is where its first leg is (E4.1)
    groups: tuple[str, ...] = ()  # SecurityGroup
    symbols: tuple[str, ...] = ()

    def of(self, listing: Listing) -> NDArray[np.bool_]:
        """Which rows of a listing are members: none of those that are not in use."""
        chosen = np.arange(listing.capacity) < len(listing)
        for wanted, values in (
            (self.types, listing.channel_types),
            (self.groups, [listing.groups[group] for group in listing.group[: len(listing)].tolist()]),
            (self.symbols, listing.symbols),
        ):
            if wanted:
                names = set(wanted)
                chosen[: len(listing)] &= np.fromiter((value in names for value in values), bool, len(listing))
        return chosen

    def check(self, listing: Listing) -> None:
        """Refuse groups and symbols that a listing does not have."""
        for name, wanted, known in (("group", self.groups, listing.groups), ("symbol", self.symbols, listing.symbols)):
            for value in wanted:
                if value not in known:
                    close = difflib.get_close_matches(value, known, 1)
                    raise UsageError(f"unknown {name}: {value}", did_you_mean(close) if close else "see the catalogue")


@dataclass(frozen=True)
class ChannelSettings:
    channel: int
    protocol: str = SBE
    generation: str = PRIORITY
    book_type: str = MBO
    depth: int = 0  # levels of a side of a price-depth book
    members: Members = field(default_factory=Members)
    is_news_channel: bool = False  # the Unified News Channel: news only
    lines: str = "AB"
    sends_empty_books: bool = True  # snapshots of instruments without orders and statistics (4.1.2)
    snapshots_per_s: int = 200  # of the snapshot loop
    definitions_per_s: int = 2_000  # of the instrument loop
    loop_pause_ms: int = 1_000  # from the end of a loop to the next
    heartbeat_ms: int = 0  # of silence before a heartbeat; 0: that of the protocol
    seq_versions: Mapping[str, int] = field(default_factory=dict)  # of each stream, when publishing starts

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("protocol", self.protocol, (SBE, FAST)),
            ("generation", self.generation, (PRIORITY, POSITION)),
            ("book type", self.book_type, (MBO, MBP, TOB)),
            ("lines", self.lines, ("A", "AB")),
        ):
            if value not in choices:
                raise UsageError(f"channel {self.channel}: unknown {name}: {value}", f"use {one_of(choices)}")
        if not 1 <= self.channel <= 255:
            raise UsageError(f"channel out of range: {self.channel}", "use 1 to 255")
        if self.protocol == SBE and self.book_type != MBO:
            raise UsageError(
                f"channel {self.channel}: Binary has no {self.book_type} books", "use MBO, or protocol fast"
            )
        if self.depth < 0 or self.depth > MAX_DEPTH or (self.depth > 0 and self.book_type != MBP):
            hint = f"use 1 to {MAX_DEPTH} for MBP, none for other books"
            raise UsageError(f"channel {self.channel}: {self.book_type} of depth {self.depth}", hint)
        for name, rate in (("snapshots", self.snapshots_per_s), ("definitions", self.definitions_per_s)):
            if not 1 <= rate <= MAX_LOOP_RATE:
                raise UsageError(f"channel {self.channel}: {rate} {name} a second", f"use 1 to {MAX_LOOP_RATE}")
        if self.loop_pause_ms < 0:
            raise UsageError(f"channel {self.channel}: loop pause of {self.loop_pause_ms} ms", "use 0 or more")
        if self.heartbeat_ms < 0:
            raise UsageError(f"channel {self.channel}: heartbeat of {self.heartbeat_ms} ms", "use a positive number")
        object.__setattr__(self, "seq_versions", {**SEQ_VERSIONS[self.protocol], **self.seq_versions})
        if self.book_type == MBP and self.depth == 0:
            object.__setattr__(self, "depth", DEFAULT_DEPTH)

    @property
    def heartbeat_ns(self) -> int:
        return (self.heartbeat_ms or HEARTBEAT_MS[self.protocol]) * 1_000_000

    @property
    def schema_version(self) -> int:
        """Of Binary: 16 by price and priority, 10 by position."""
        return SCHEMA_VERSIONS[self.generation]
