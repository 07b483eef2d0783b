"""Trust in the definitions of instruments.

After a gap a definition is unverified: its change may have been lost (7.2, 7.3). The missing units answer; so does a
later definition of the instrument, which has all of its characteristics (7.2); and so does a complete list of the
instrument stream that began after the gap, which also shows what was deleted.

Invariant: a list counts only if nothing was lost or defined on the incremental stream from its begin on, and an
older definition never replaces a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from umdf.market.families import FAMILIES, NULL
from umdf.market.instruments import Instruments
from umdf.market.rows import Events, Rows, Units
from umdf.sync.definitions.list_loops import InstrumentList
from umdf.sync.gaps import MARGIN_NS, NO_GAP, Gap, GapLedger, LossTimes
from umdf.sync.trust import HEALTHY, Trust, unverified

DELETE = ord("D")


class DefinitionTrust:
    """Of one epoch of a channel."""

    def __init__(self) -> None:
        self._verified = NO_GAP  # up to this sequence, for all instruments
        self.losses = LossTimes()
        self.last_list: InstrumentList | None = None
        self._defined_ns = NULL  # when a definition was last sent on the incremental stream
        self._definitions: dict[int, tuple[int, int]] = {}  # the last one there: sequence, time of sending
        self._undefined: dict[int, int] = {}  # instruments without a definition: when something of them was sent

    # What happens.

    def open_gap(self, gap: Gap) -> None:
        self.losses.open_gap(gap)

    def follow(self, events: Events) -> InstrumentList | None:
        """Events that are applied in order. Returns the last list, if it may answer a gap that was found after it."""
        is_first = self.losses.follow(events.units.ts_send)
        self.note(events)
        return self.last_list if is_first else None

    def note(self, events: Events) -> None:
        """Definitions of the incremental stream that are applied."""
        if "definition" not in events.families:
            return
        rows, units = events.rows("definition"), events.units
        columns = rows.column("instrument_id"), units.sequence[rows.unit], units.ts_send[rows.unit]
        for number, sequence, ts_send in zip(*(column.tolist() for column in columns), strict=True):
            self._definitions[number] = sequence, ts_send
            self._defined_ns = max(self._defined_ns, ts_send)

    def verify(self, found: InstrumentList, gaps: GapLedger) -> bool:
        """Whether the list shows all definitions after every gap."""
        self.last_list = found
        is_later = self.losses.are_before(found.ts_send, found.ts_recv) and found.ts_send > self._defined_ns
        if is_later:
            self._verified = max(self._verified, gaps.latest)
        return is_later

    def newer_late(self, late: Events) -> Events:
        """Late events, without definitions that later ones have replaced."""
        rows = late.rows("definition")
        if not len(rows):
            return late
        known = [max(self._verified, self._sequence_of(each)) for each in rows.column("instrument_id").tolist()]
        masks = {name: np.ones(len(some), np.bool_) for name, some in late.families.items()}
        masks["definition"] = late.units.sequence[rows.unit] > np.array(known, np.int64)
        return late.take(masks)

    def newer_listed(self, rows: Rows, units: Units) -> NDArray[np.bool_]:
        """Which definitions of the instrument stream were sent long enough after those of the incremental stream: what
        a loop sends just after a change may be of before it."""
        found = (self._definitions.get(each, (NO_GAP, NULL))[1] for each in rows.column("instrument_id").tolist())
        known = np.fromiter(found, np.int64, len(rows))
        return (known == NULL) | (units.ts_send[rows.unit] > known + MARGIN_NS)

    # Instruments that damaged packets have made up.

    def note_undefined(self, instrument_ids: Iterable[int], ts_send: int) -> None:
        """Instruments of which something was received, but no definition. It may be missing, or still to come."""
        for number in instrument_ids:
            self._undefined.setdefault(number, ts_send)

    def never_defined(self, found: InstrumentList, defined: Instruments, ts_send: int) -> set[int]:
        """Those that do not exist: a list that is verified, and was sent well after something was received of them,
        does not have them. A definition comes before everything else of an instrument (7.1, 7.2)."""
        # The time of a damaged packet may be damaged too.
        times = {number: min(at, ts_send) for number, at in self._undefined.items() if number not in defined}
        gone = {
            number
            for number, at in times.items()
            if number not in found.instrument_ids and found.ts_send > at + MARGIN_NS
        }
        self._undefined = {number: at for number, at in times.items() if number not in gone}
        return gone

    # What is known.

    def first_gap(self, gaps: GapLedger, instrument_id: int | None = None) -> Gap | None:
        """The first gap in which the definition of an instrument, or of any, may have changed."""
        return gaps.first_after(
            self._verified if instrument_id is None else max(self._verified, self._sequence_of(instrument_id))
        )

    def trust_of(self, instrument_id: int, gaps: GapLedger) -> Trust:
        gap = self.first_gap(gaps, instrument_id)
        return HEALTHY if gap is None else unverified(f"its definition may have changed: {gap.reason}")

    def _sequence_of(self, instrument_id: int) -> int:
        return self._definitions.get(instrument_id, (NO_GAP, NULL))[0]


def deletions(channel: int, epoch: int, sequence: int, found: InstrumentList, instrument_ids: list[int]) -> Events:
    """Instruments that a list does not have, as if their deletion had been received."""
    count = len(instrument_ids)
    columns = {"instrument_id": np.array(instrument_ids, np.int64), "action": np.full(count, DELETE, np.uint8)}
    zeros = np.zeros(count, np.uint16)
    rows = Rows(FAMILIES["definition"], np.zeros(count, np.uint32), zeros, np.arange(count, dtype=np.uint16), columns)
    one = (np.array([value], np.int64) for value in (epoch, sequence, found.ts_send, found.ts_recv))
    return Events(Units(np.array([channel], np.int16), *one), {"definition": rows})
