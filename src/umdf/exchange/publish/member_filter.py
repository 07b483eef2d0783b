"""Chooses the records of the journal that concern the members of a channel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umdf.exchange.instruments.listing import Listing
from umdf.exchange.matching import memory_layout_kernel as k
from umdf.exchange.publish.channel_settings import Members

Records = NDArray[np.int64]


class MemberFilter:
    def __init__(self, members: Members, listing: Listing) -> None:
        self._members, self._listing = members, listing
        self._is_member = np.zeros(0, bool)
        self._has_members = np.zeros(0, bool)  # of each group

    @property
    def is_member(self) -> NDArray[np.bool_]:
        """Of each instrument of the listing, as it is now."""
        listing = self._listing
        if len(self._is_member) != len(listing):  # instruments have been added
            self._is_member = self._members.of(listing)
            self._has_members = np.zeros(len(listing.groups), bool)
            self._has_members[listing.group[self._is_member]] = True
        return self._is_member

    def of(self, records: Records) -> Records:
        """The records of members, their groups and the whole market; where the end of an event is not among them, its
        last record that is becomes the end."""
        if self._members.is_everything:
            return records
        is_member = self.is_member
        instrument, is_group = records[:, k.INSTRUMENT], records[:, k.KIND] == k.GROUP_PHASE
        chosen = instrument < 0
        chosen[~chosen] = is_member[instrument[~chosen]]
        chosen[is_group] = self._has_members[records[is_group, k.ID]]
        if chosen.all():
            return records
        ends = records[:, k.FLAGS] & k.LAST != 0
        event = np.cumsum(ends) - ends  # the number of the event of each record
        kept = records[chosen]
        kept_event = event[chosen]
        is_last = np.append(kept_event[1:] != kept_event[:-1], True)[: len(kept)]
        kept[is_last & (kept_event < ends.sum()), k.FLAGS] |= k.LAST
        return kept
