"""A decoded FAST message: what readers return and writers accept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from umdf.wire.fast.reference.transfer_encoding import Report
from umdf.wire.fast.templates import Segment, Sequence, Template


@dataclass
class Message:
    """A decoded message. `values` is keyed by the names of the template's instructions: a group is a dict, a sequence
    a list of dicts, a dynamic reference a Message; absent values have no key."""

    template: Template
    values: dict[str, Any]
    reports: list[Report] = field(default_factory=list)

    def by_tag(self) -> dict[int, Any]:
        return by_tag(self.template.body, self.values)


def by_tag(segment: Segment, values: Mapping[str, Any]) -> dict[int, Any]:
    """The values of one segment by FIX tag; a sequence has the tag of its length (268 for NoMDEntries)."""
    found = {}
    for instruction in segment.instructions:
        tag = instruction.length.id if isinstance(instruction, Sequence) else instruction.id
        if tag is not None and instruction.name in values:
            found[tag] = values[instruction.name]
    return found
