"""The kernels agree with the plain reader on everything: values, presence, errors and reports, on any template."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from vectors.fast import Case, fast_vectors, one_field, template
from wire.fast.strategies import damaged, hostile, streams, template_sets, values_of

from umdf.errors import EncodeError
from umdf.wire.fast.decode import Batch, Decoder
from umdf.wire.fast.dictionary import Reset
from umdf.wire.fast.loader import load, loads
from umdf.wire.fast.message import Message
from umdf.wire.fast.plain import counted
from umdf.wire.fast.reader import Reader
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.fast.values import FastError, Limits
from umdf.wire.fast.writer import Writer

LIMITS = Limits(entries=2000, empty_entries=500)

Journal = list[tuple[int, str, int, str, int]]


def decode(decoder: Decoder, messages: list[bytes]) -> Batch:
    """The messages one after another in a buffer of exactly their size."""
    ends = np.cumsum([len(data) for data in messages], dtype=np.int64)
    buffer = np.frombuffer(b"".join(messages), np.uint8)
    return decoder.decode(buffer, ends - [len(data) for data in messages], ends)


def read(reader: Reader, messages: list[bytes]) -> tuple[dict[int, Message], Journal]:
    """What the plain reader makes of them."""
    found: dict[int, Message] = {}
    journal: Journal = []
    for number, data in enumerate(messages):
        error = None
        try:
            message, end = reader.decode(data)
            reports = message.reports
            if end != len(data):
                error = FastError("T3", end, "", "bytes are left")
        except FastError as problem:
            error, reports = problem, problem.reports
        journal += [(number, code, at, field, count) for code, at, field, _, count in counted(reports)]
        if error is None:
            found[number] = Message(message.template, message.values)
        else:
            journal.append((number, error.code, error.offset, error.field, 1))
            event(error.code)
            reader.dictionary.reset()
    return found, journal


def journal_of(batch: Batch) -> Journal:
    return [(entry.message, entry.code, entry.offset, entry.field, entry.count) for entry in batch.journal]


def assert_agreement(decoder: Decoder, *batches: list[bytes]) -> None:
    reader = Reader(decoder.templates, decoder.reset, LIMITS)
    for messages in batches:
        batch = decode(decoder, messages)
        expected, journal = read(reader, messages)
        assert journal_of(batch) == journal
        found = batch.to_messages()
        assert list(found) == list(expected)
        for number, message in expected.items():
            # A reference reads by another variant of the same template where dictionaries depend on the type.
            assert _plain(found[number]) == _plain(message)


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.template.id, _plain(value.values)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if type(value) is list else value


def encoded(templates: TemplateSet, stream: list[tuple[int, dict[str, Any]]], reset: Reset) -> list[bytes]:
    writer, written = Writer(templates, reset), []
    for template_id, values in stream:
        try:
            written.append(writer.encode(template_id, values, template_id_always=False))
        except EncodeError:
            event("not encodable")
    return written


@pytest.mark.parametrize("reset", ["message", "never"])
@given(data=st.data())
def test_random_messages_of_random_templates(reset: Reset, data: st.DataObject) -> None:
    templates = data.draw(template_sets())
    decoder = Decoder(templates, reset, LIMITS, generated=False)
    messages = encoded(templates, data.draw(streams(templates)), reset)
    middle = len(messages) // 2  # the second batch uses the memory of the first, and what is kept of its values
    assert_agreement(decoder, messages[:middle], messages[middle:])


@pytest.mark.parametrize("reset", ["message", "never"])
@given(data=st.data())
def test_damaged_messages_of_random_templates(reset: Reset, data: st.DataObject) -> None:
    templates = data.draw(template_sets())
    messages = encoded(templates, data.draw(streams(templates)), reset)
    messages = [data.draw(damaged(message)) if data.draw(st.booleans()) else message for message in messages]
    assert_agreement(Decoder(templates, reset, LIMITS, generated=False), messages)


@pytest.mark.parametrize("reset", ["message", "never"])
@given(templates=template_sets(), messages=st.lists(hostile(), max_size=5))
def test_random_bytes(reset: Reset, templates: TemplateSet, messages: list[bytes]) -> None:
    assert_agreement(Decoder(templates, reset, LIMITS, generated=False), messages)
