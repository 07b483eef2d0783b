"""Chooses the records of the journal that concern the members of a channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.instrument_types import types_where
from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish.channel_settings import SBE, ChannelSettings
from umdf.exchange.publish.news import NewsItem
from umdf.exchange.publish.price_levels import DerivedRecords

Records = NDArray[np.int64]
SECOND_FIRM_KINDS = (k.TRADE, k.BUST, k.LAST_PRICE)  # with the seller in OTHER
HAS_FIRM = np.isin(np.arange(k.KINDS), (k.ADD, k.CHANGE, k.DELETE, k.SNAPSHOT_ORDER, *SECOND_FIRM_KINDS))


class MemberFilter:
    def __init__(self, settings: ChannelSettings, listing: Listing, news: Sequence[NewsItem]) -> None:
        self._settings, self._listing, self._news = settings, listing, news
        self._rows = -1  # of the listing, when the masks were made
        self._is_member = np.zeros(0, bool)
        self._has_members = np.zeros(0, bool)  # of each group
        self._has_all = False  # whether every instrument is a member

    @property
    def is_member(self) -> NDArray[np.bool_]:
        """Of each instrument of the listing, as it is now."""
        listing = self._listing
        if self._rows != len(listing):  # instruments have been added
            self._rows, self._is_member = len(listing), self._settings.members.of(listing)
            if self._settings.is_news_channel:
                self._is_member[:] = False
            if self._settings.protocol == SBE:  # has no templates for what indexes and lending publish
                self._is_member &= ~listing.of_types(types_where("is_fast_only"))
            self._has_all = bool(self._is_member[: len(listing)].all())
            self._has_members = np.zeros(len(listing.groups), bool)
            self._has_members[listing.group[self._is_member]] = True
        return self._is_member

    def of(self, records: Records) -> DerivedRecords:
        """The records of members, their groups and the whole market, without the heartbeats of the market, which are
        not those of the channel. Where the end of an event is not among them, its last record that is becomes the end.
        """
        kind, instrument = records[:, k.KIND], records[:, k.INSTRUMENT]
        chosen = kind != k.HEARTBEAT
        is_member = self.is_member
        if not self._has_all:
            is_group, of_instrument = kind == k.GROUP_PHASE, instrument >= 0
            chosen[of_instrument] = is_member[instrument[of_instrument]]
            chosen[is_group] = self._has_members[records[is_group, k.ID]]
        for row in np.flatnonzero(kind == k.NEWS).tolist():
            is_sent = self._settings.protocol == SBE or records[row, k.POSITION] in (k.NULL, 1)
            chosen[row] = is_sent and self._carries(self._news[int(records[row, k.ID])])
        source = np.flatnonzero(chosen)
        if len(source) == len(records):
            return DerivedRecords(records, source)
        if not len(source):
            return DerivedRecords(records[:0], source)
        ends = records[:, k.FLAGS] & k.LAST != 0
        event = np.cumsum(ends) - ends  # the number of the event of each record
        kept, kept_event = records[source], event[source]
        is_last = np.append(kept_event[1:] != kept_event[:-1], True)[: len(kept)]
        kept[is_last & (kept_event < ends.sum()), k.FLAGS] |= k.LAST
        return DerivedRecords(kept, source)

    def _carries(self, item: NewsItem) -> bool:
        if item.channels:
            return self._settings.channel in item.channels
        return not self._settings.is_news_channel


def without_firms(records: Records, listing: Listing) -> Records:
    """The records as everybody may see them: orders and trades of FX have no 288 and 289 (its blind screen)."""
    instrument = records[:, k.INSTRUMENT]
    is_hidden = HAS_FIRM[records[:, k.KIND]] & (instrument >= 0)
    is_hidden &= listing.is_anonymous[np.maximum(instrument, 0)] == 1
    if not is_hidden.any():
        return records
    hidden = records.copy()
    hidden[is_hidden, k.FIRM] = k.NULL
    hidden[is_hidden & np.isin(records[:, k.KIND], SECOND_FIRM_KINDS), k.OTHER] = k.NULL
    return hidden
