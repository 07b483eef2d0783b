"""The certification script as data: sections of steps, in the order in which they are played."""

from __future__ import annotations

from umdf.certify.script import late_phases, market_phases, recovery, session_messages, strategies
from umdf.certify.script.step import Section, Step

SECTIONS: tuple[Section, ...] = (
    session_messages.SESSION,
    *market_phases.SECTIONS,
    *late_phases.SECTIONS,
    session_messages.NEWS,
    *recovery.SECTIONS,
    strategies.STRATEGIES,
)
STEPS: tuple[Step, ...] = tuple(step for section in SECTIONS for step in section.steps)
