"""What a step of the script is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from umdf.certify.client_actions import ClientAction
from umdf.certify.expectations import Expectation
from umdf.certify.observation import MBO, MBP, TOB
from umdf.certify.operations import Operation
from umdf.certify.stage import MAIN
from umdf.exchange.live.schedule import DERIVATIVES, EQUITIES

REQUIRED, CONDITIONAL, OPTIONAL = "Y", "C", "N"  # the script's column Req; C is required where it is available
Action = Operation | ClientAction
Expected = Mapping[str, tuple[Expectation, ...]]


@dataclass(frozen=True)
class Step:
    """What the exchange (and the client) does, and what must be seen on channels of each book type."""

    id: str
    description: str
    expected: Expected
    actions: tuple[Action, ...] = ()
    requirement: str = REQUIRED
    role: str = MAIN  # the instrument that is looked at
    settle_s: float = 0.3  # of the exchange's time, until everything has been sent; snapshots need a loop
    includes_previous: bool = False  # what the step before has shown counts too: one action of the exchange is both

    @property
    def is_required(self) -> bool:
        return self.requirement != OPTIONAL

    @property
    def section(self) -> str:
        """B1 of B1.2, A of A.1; the lone C1 is its own."""
        return self.id.partition(".")[0]


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    steps: tuple[Step, ...]
    start: tuple[Operation, ...] = ()  # before the first step: phase and start book
    segments: tuple[str, ...] = (EQUITIES, DERIVATIVES)
    protocols: tuple[str, ...] = ("fast", "sbe")
    is_of_indexes: bool = False  # played on the channel of indexes
    needs_week: bool = False  # requests messages of earlier days

    def why_not(self, protocol: str, segment: str) -> str:
        """Why its steps cannot be executed, or nothing."""
        if segment not in self.segments:
            return f"the script has it for {' and '.join(self.segments)} only"
        if protocol not in self.protocols:
            return "Binary has no template of it, and no replayer" if protocol == "sbe" else "FIX/FAST does not have it"
        return ""


def for_each_book(*expectations: Expectation) -> Expected:
    """The same for all book types."""
    return {MBO: expectations, MBP: expectations, TOB: expectations}


def books(mbo: tuple[Expectation, ...], mbp: tuple[Expectation, ...], tob: tuple[Expectation, ...]) -> Expected:
    return {MBO: mbo, MBP: mbp, TOB: tob}


def by_order(*expectations: Expectation) -> Expected:
    """Looked at once: the script names no book type, or MBO alone."""
    return {MBO: expectations}
