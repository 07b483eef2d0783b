"""Which steps and which combinations a user wants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from umdf.certify.profile import COMBINATIONS, Combination
from umdf.certify.script import SECTIONS, STEPS
from umdf.certify.script.step import Section, Step
from umdf.errors import UsageError, did_you_mean, one_of

ALL = "all"


@dataclass(frozen=True)
class Selection:
    """Whole sections, or the last of them up to a step: a section is played from its start book."""

    sections: tuple[Section, ...]
    last: str = ""  # the step after which it ends

    def steps(self, section: Section) -> Iterator[Step]:
        for step in section.steps:
            yield step
            if step.id == self.last:
                return


EVERYTHING = Selection(SECTIONS)


def select_steps(only: str = "", first: str = "") -> Selection:
    """`only` a section or a step (B2, B2.4), or everything from one on."""
    if only and first:
        raise UsageError("--only and --from at the same time", "use one of them")
    if not only and not first:
        return EVERYTHING
    wanted = _section_of(only or first)
    at = SECTIONS.index(wanted)
    if first:
        return Selection(SECTIONS[at:])
    return Selection((wanted,), only if only != wanted.id else "")


def _section_of(name: str) -> Section:
    for section in SECTIONS:
        if name == section.id or any(name == step.id for step in section.steps):
            return section
    close = [step.id for step in STEPS if step.id.lower() == name.lower()]
    raise UsageError(
        f"unknown step: {name}", did_you_mean(close) if close else "see `umdf certify --list` for all of them"
    )


def select_combinations(protocol: str = ALL, generation: str = ALL, segment: str = ALL) -> list[Combination]:
    for name, value in (("protocol", protocol), ("generation", generation), ("segment", segment)):
        choices = (ALL, *dict.fromkeys(getattr(each, name) for each in COMBINATIONS))
        if value not in choices:
            raise UsageError(f"unknown {name}: {value}", f"use {one_of(choices)}")
    return [
        each
        for each in COMBINATIONS
        if protocol in (ALL, each.protocol) and generation in (ALL, each.generation) and segment in (ALL, each.segment)
    ]
