"""The batch encoder writes what the plain writer writes, for any template and any values, and refuses what it refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from vectors.fast import field, one_field, template
from wire.fast.strategies import streams, template_sets, values_of

from umdf.errors import EncodeError
from umdf.wire.fast.arrow import arrow_schema
from umdf.wire.fast.dictionary import Reset
from umdf.wire.fast.encode import Encoded, Encoder
from umdf.wire.fast.layout import Layout, Node
from umdf.wire.fast.loader import load, loads
from umdf.wire.fast.message import Message
from umdf.wire.fast.reader import Reader
from umdf.wire.fast.templates import DECIMAL, Decimal, DynamicRef, Group, Segment, Sequence, TemplateSet
from umdf.wire.fast.writer import Writer

Messages = list[tuple[int, dict[str, Any]]]


class Columns:
    """Messages as RecordBatches; those inside others become rows too, in front."""

    def __init__(self, templates: TemplateSet, messages: Iterable[tuple[int, dict[str, Any]]]) -> None:
        self.layout = Layout(templates)
        self.rows: dict[int, list[dict[str, Any]]] = {}
        for number, (template_id, values) in enumerate(messages):
            self.add(number, template_id, values)

    def add(self, number: int, template_id: int, values: dict[str, Any]) -> tuple[int, int]:
        root = self.layout.roots[template_id]
        row = {"message": number, **self.cells(number, root, root.segment, values, "")}
        rows = self.rows.setdefault(template_id, [])
        rows.append(row)
        return template_id, len(rows) - 1

    def cells(self, number: int, node: Node, segment: Segment, values: dict[str, Any], prefix: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for instruction in segment.instructions:
            name, value = prefix + instruction.name, values.get(instruction.name)
            if value is None:
                continue
            if isinstance(instruction, Group):
                found[name] = True
                found |= self.cells(number, node, instruction.body, value, f"{name}.")
            elif isinstance(instruction, Sequence):
                child = self.layout.nodes[next(item.child for item in node.lists if item.name == name)]
                found[name] = [self.cells(number, child, child.segment, entry, "") for entry in value]
            elif isinstance(instruction, DynamicRef):
                assert isinstance(value, Message) and value.template.id is not None
                found[name], found[f"{name}.row"] = self.add(number, value.template.id, value.values)
            elif instruction.type == DECIMAL:
                found[f"{name}.exponent"], found[name] = value
            else:
                found[name] = value
        return found

    def record_batches(self) -> dict[int, pa.RecordBatch]:
        return {
            template_id: pa.RecordBatch.from_pylist(rows, schema=arrow_schema(self.layout, template_id))
            for template_id, rows in self.rows.items()
        }


def cut(encoded: Encoded) -> list[bytes]:
    pieces = zip(encoded.start.tolist(), encoded.end.tolist(), strict=True)
    return [encoded.buffer[start:end].tobytes() for start, end in pieces]


def encodable(templates: TemplateSet, messages: Messages, reset: Reset) -> tuple[Messages, list[bytes]]:
    """Those that the plain writer takes, and what it makes of them."""
    writer, kept, written = Writer(templates, reset), [], []
    for template_id, values in messages:
        try:
            written.append(writer.encode(template_id, values))
            kept.append((template_id, values))
        except EncodeError:
            event("not encodable")
    return kept, written


@pytest.mark.parametrize("reset", ["message", "never"])
@given(data=st.data())
def test_random_messages_of_random_templates_are_the_plain_writers_bytes(reset: Reset, data: st.DataObject) -> None:
    templates = data.draw(template_sets())
    messages, written = encodable(templates, data.draw(streams(templates)), reset)
    encoded = Encoder(templates, reset).encode(Columns(templates, messages).record_batches())
    assert cut(encoded) == written
