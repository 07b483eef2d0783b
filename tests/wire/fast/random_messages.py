"""Random messages of any templates, quickly: for tests that need thousands of them, sound or damaged.

`strategies` finds smaller examples, and knows more corners; this only has to be fast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import (
    ASCII,
    BYTES,
    CONSTANT,
    DECIMAL,
    RANGES,
    UNICODE,
    Decimal,
    Field,
    Group,
    Segment,
    Sequence,
    TemplateSet,
)

HARMFUL = (0x00, 0x40, 0x7F, 0x80, 0x81, 0xC0, 0xFF)


def values_of(segment: Segment, random: np.random.Generator, share: float) -> dict[str, Any]:
    """Values for a segment; `share` of what is optional is there."""
    values = {}
    for instruction in segment.instructions:
        if instruction.optional and random.random() > share:
            continue
        if isinstance(instruction, Field):
            values[instruction.name] = _value(instruction, random)
        elif isinstance(instruction, Group):
            values[instruction.name] = values_of(instruction.body, random, share)
        elif isinstance(instruction, Sequence):
            count = int(random.integers(0, 4))
            values[instruction.name] = [values_of(instruction.body, random, share) for _ in range(count)]
    return values


def _value(field: Field, random: np.random.Generator) -> Any:
    initial = field.operator.initial
    if initial is not None and (field.operator.kind == CONSTANT or random.random() < 0.3):
        return initial
    size = int(random.integers(0, 64)) if random.random() < 0.1 else int(random.integers(0, 20))
    if field.type == DECIMAL:
        return Decimal(int(random.integers(-8, 3)), int(random.integers(0, 1 << size)))
    if field.type in RANGES:
        low, high = RANGES[field.type]
        value = int(random.integers(0, 1 << size)) * (1 if low == 0 else int(random.choice([1, -1])))
        return min(high, max(low, value))
    text = "".join(random.choice(list("ABC0123"), size // 2).tolist())
    return {ASCII: text, UNICODE: text + "é" * (size % 2), BYTES: text.encode()}[field.type]


def messages_of(templates: TemplateSet, count: int, random: np.random.Generator) -> list[bytes]:
    """So many sound messages of each template."""
    writer = Writer(templates)
    return [
        writer.encode(template_id, values_of(template.body, random, float(random.random())))
        for template_id, template in templates.by_id.items()
        for _ in range(count)
    ]


def mutated(messages: list[bytes], count: int, random: np.random.Generator) -> list[bytes]:
    """So many of them by chance, most with a byte or two changed, some cut."""
    made = []
    for number in random.integers(0, len(messages), count).tolist():
        data = bytearray(messages[number])
        for _ in range(int(random.integers(0, 3))):
            at = int(random.integers(0, len(data)))
            data[at] = int(random.choice(HARMFUL)) if random.random() < 0.5 else int(random.integers(0, 256))
        made.append(bytes(data[: int(random.integers(1, len(data) + 1))] if random.random() < 0.1 else data))
    return made
