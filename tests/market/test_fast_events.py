"""FAST columns → events: every family against a slow reference made from messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from market.event_dicts import event_dicts
from market.fast_random_messages import messages
from market.fast_reference import ReferenceEvents

from umdf.market.families import NULL
from umdf.market.fast.events import FastEventMapper
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.loader import load

TEMPLATES = load()
DECODER = Decoder(TEMPLATES)
EVENTS = FastEventMapper(DECODER.layout)


def decoded(made: list[bytes], decoder: Decoder = DECODER) -> Any:
    end = np.cumsum([len(one) for one in made], dtype=np.int64)
    return decoder.decode(np.frombuffer(b"".join(made), np.uint8), np.concatenate([[0], end[:-1]]), end)


def compare(made: list[bytes], decoder: Decoder = DECODER, events: FastEventMapper = EVENTS) -> None:
    batch = decoded(made, decoder)
    found, expected = events.events(batch), ReferenceEvents(batch.to_messages())
    rows = event_dicts(found)
    for name, wanted in expected.rows.items():
        for one, other in zip(rows[name], wanted, strict=False):
            assert one == other, name
        assert len(rows[name]) == len(wanted), name
    sequences = found.units.sequence.tolist(), found.units.ts_send.tolist()
    for unit in range(len(made)):
        sequence, sent = expected.units.get(unit, (None, None))
        assert sequences[0][unit] == (NULL if sequence is None else sequence)
        assert sequences[1][unit] == (NULL if sent is None else sent)


@given(st.integers(0, 2**32))
def test_random_messages_of_all_templates_become_what_the_reference_says(seed: int) -> None:
    compare(messages(TEMPLATES, 30, seed))


@pytest.mark.parametrize("template_id", sorted(TEMPLATES.by_id))
def test_random_messages_of_one_template_become_what_the_reference_says(
    template_id: int, sized: Callable[[int, int], int]
) -> None:
    for seed in range(sized(5, 100)):
        compare(messages(TEMPLATES, 40, seed, (template_id,)))
