"""Bugs of the client, each of which the simulation must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from umdf.sync import channel, session, unit_codecs
from umdf.sync.gaps import Gap
from umdf.sync.trust import BookTrust
from umdf.sync.update_gate_kernel import APPLY


def ignore_gaps(patch: pytest.MonkeyPatch) -> None:
    """What was lost is not remembered."""

    def open_gap(self: channel.Channel, gap: Gap) -> None:
        self.sequence = max(self.sequence, gap.last)

    patch.setattr(channel.Channel, "open_gap", open_gap)


def ignore_rpt_seq(patch: pytest.MonkeyPatch) -> None:
    """Updates are applied although one before them is missing."""
    gate = BookTrust.gate
    patch.setattr(BookTrust, "gate", lambda self, *rows: np.full_like(gate(self, *rows), APPLY))


def use_snapshots_of_other_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session.Session, "_is_usable", lambda self, feed, header: True)


def use_old_snapshots(patch: pytest.MonkeyPatch) -> None:
    """A book is replaced by a snapshot that is older than it."""
    patch.setattr(channel.Channel, "_is_needed", lambda self, snapshots, rows: np.ones(len(rows), np.bool_))


def believe_replayed_numbers(patch: pytest.MonkeyPatch) -> None:
    """MsgSeqNum (34) of a message is not compared with its technical header."""
    decode = unit_codecs.FastUnits.decode

    def believing(self: unit_codecs.FastUnits, units: Any, **more: Any) -> unit_codecs.DecodedUnits:
        found = decode(self, units, **more)
        return unit_codecs.DecodedUnits(found.events, np.zeros_like(found.damaged))

    patch.setattr(unit_codecs.FastUnits, "decode", believing)


def forget_phases_in_gaps(patch: pytest.MonkeyPatch) -> None:
    """A change of a phase that was lost leaves no doubt."""
    patch.setattr(channel.Channel, "state_trust", lambda self, number: self.book_trust(number))


PLANTED_BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    bug.__name__: bug
    for bug in (
        ignore_gaps,
        ignore_rpt_seq,
        use_snapshots_of_other_epochs,
        use_old_snapshots,
        believe_replayed_numbers,
        forget_phases_in_gaps,
    )
}
