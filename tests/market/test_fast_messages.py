"""Events → FAST messages: what is encoded comes back as the same events, in both generations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from market.event_dicts import event_dicts
from market.fast_random_messages import valid_messages

from umdf.market.fast.events import FastEventMapper
from umdf.market.fast.messages import FastMessageMapper
from umdf.market.rows import Events
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.encode.encoder import Encoder
from umdf.wire.fast.loader import load

TEMPLATES = load()
DECODER, ENCODER = Decoder(TEMPLATES), Encoder(TEMPLATES)
EVENTS = FastEventMapper(DECODER.layout)
SHARED = (142, 143, 144, 122, 81)
GENERATIONS = {"priority": (152, 153, 1149), "position": (145, 147, 149)}


def events_of(buffer: Any, start: Any, end: Any) -> Events:
    batch = DECODER.decode(buffer, start, end)
    assert batch.quarantine == []
    return EVENTS.events(batch)


def round_trip(made: list[bytes], generation: str) -> tuple[dict[str, Any], dict[str, Any]]:
    end = np.cumsum([len(one) for one in made], dtype=np.int64)
    events = events_of(np.frombuffer(b"".join(made), np.uint8), np.concatenate([[0], end[:-1]]), end)
    before = event_dicts(events)
    encoded = ENCODER.encode(FastMessageMapper(TEMPLATES, *GENERATIONS[generation]).messages(events))
    return before, event_dicts(events_of(encoded.buffer, encoded.start, encoded.end))


def renumbered(rows: list[dict[str, Any]], units: dict[int, int]) -> list[dict[str, Any]]:
    return [{**row, "unit": units[row["unit"]]} for row in rows]


@pytest.mark.parametrize("generation", GENERATIONS)
@given(seed=st.integers(0, 2**32))
def test_events_come_back_as_they_were(generation: str, seed: int) -> None:
    made = valid_messages(TEMPLATES, 25, seed, (*GENERATIONS[generation], *SHARED))
    before, after = round_trip(made, generation)
    # A message without any row has no message again: the units are counted anew.
    units = sorted({row["unit"] for rows in before.values() for row in rows})
    places = {unit: place for place, unit in enumerate(units)}
    for name, rows in before.items():
        for one, other in zip(renumbered(rows, places), after[name], strict=False):
            assert other == one, name
        assert len(after[name]) == len(rows), name


@pytest.mark.parametrize("template_id", [152, 153, 1149, 142, 143, 144, 122, 81])
def test_each_message_comes_back(template_id: int) -> None:
    for seed in range(10):
        before, after = round_trip(valid_messages(TEMPLATES, 10, seed, (template_id,)), "priority")
        assert {name: len(rows) for name, rows in before.items()} == {name: len(rows) for name, rows in after.items()}
