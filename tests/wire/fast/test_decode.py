"""The kernels agree with the reference reader on everything: values, presence, errors and reports, on any template."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vectors.fast import Case, fast_vectors, field, one_field, template
from wire.fast.strategies import arbitrary_bytes, damaged, streams, template_sets, values_of

from umdf.errors import EncodeError
from umdf.wire.fast.decode.decoder import Batch, Decoder
from umdf.wire.fast.decode.reference_rows import count_reports
from umdf.wire.fast.loader import load, loads
from umdf.wire.fast.message import Message
from umdf.wire.fast.reference.dictionary import Reset
from umdf.wire.fast.reference.reader import Reader
from umdf.wire.fast.reference.transfer_encoding import FastError, Limits
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal, TemplateSet

LIMITS = Limits(entries=2000, empty_entries=500)

Quarantine = list[tuple[int, str, int, str, int]]


def decode(decoder: Decoder, messages: list[bytes], extra_bytes: int = 0) -> Batch:
    """The messages one after another in a buffer that has so many bytes more."""
    ends = np.cumsum([len(data) for data in messages], dtype=np.int64)
    buffer = np.frombuffer(b"".join(messages) + bytes(extra_bytes), np.uint8)
    return decoder.decode(buffer, ends - [len(data) for data in messages], ends)


def read(reader: Reader, messages: list[bytes]) -> tuple[dict[int, Message], Quarantine]:
    """What the reference reader makes of them."""
    found: dict[int, Message] = {}
    journal: Quarantine = []
    for number, data in enumerate(messages):
        error = None
        try:
            message, end = reader.decode(data)
            reports = message.reports
            if end != len(data):
                error = FastError("T3", end, "", "bytes are left")
        except FastError as problem:
            error, reports = problem, problem.reports
        journal += [(number, code, at, field, count) for code, at, field, _, count in count_reports(reports)]
        if error is None:
            found[number] = Message(message.template, message.values)
        else:
            journal.append((number, error.code, error.offset, error.field, 1))
            reader.dictionary.reset()
    return found, journal


def quarantine_of(batch: Batch) -> Quarantine:
    return [(entry.message, entry.code, entry.offset, entry.field, entry.count) for entry in batch.quarantine]


def assert_agreement(decoder: Decoder, *batches: list[bytes], extra_bytes: int = 0) -> None:
    reader = Reader(decoder.templates, decoder.reset, decoder.limits)
    for messages in batches:
        batch = decode(decoder, messages, extra_bytes)
        expected, journal = read(reader, messages)
        assert quarantine_of(batch) == journal
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


def encode_stream(templates: TemplateSet, stream: list[tuple[int, dict[str, Any]]], reset: Reset) -> list[bytes]:
    """Those that can be: some templates let fields of different types share a dictionary entry."""
    writer, written = Writer(templates, reset), []
    for template_id, values in stream:
        with contextlib.suppress(EncodeError):
            written.append(writer.encode(template_id, values, template_id_always=False))
    return written


@pytest.mark.parametrize("reset", ["message", "never"])
@given(data=st.data())
def test_random_messages_of_random_templates(reset: Reset, data: st.DataObject) -> None:
    templates = data.draw(template_sets())
    decoder = Decoder(templates, reset, LIMITS, generated=())
    messages = encode_stream(templates, data.draw(streams(templates)), reset)
    middle = len(messages) // 2  # the second batch uses the memory of the first, and what is kept of its values
    assert_agreement(decoder, messages[:middle], messages[middle:])


@pytest.mark.parametrize("reset", ["message", "never"])
@given(data=st.data())
def test_damaged_messages_of_random_templates(reset: Reset, data: st.DataObject) -> None:
    templates = data.draw(template_sets())
    messages = encode_stream(templates, data.draw(streams(templates)), reset)
    messages = [data.draw(damaged(message)) if data.draw(st.booleans()) else message for message in messages]
    assert_agreement(Decoder(templates, reset, LIMITS, generated=()), messages)


@pytest.mark.parametrize("reset", ["message", "never"])
@given(templates=template_sets(), messages=st.lists(arbitrary_bytes(), max_size=5))
def test_random_bytes(reset: Reset, templates: TemplateSet, messages: list[bytes]) -> None:
    assert_agreement(Decoder(templates, reset, LIMITS, generated=()), messages)


@pytest.mark.parametrize("case", fast_vectors(), ids=lambda case: case.name)
def test_the_specifications_examples(case: Case) -> None:
    templates = loads(case.xml)
    reader, at, messages = Reader(templates, "never"), 0, []
    while at < len(case.stream):
        before = at
        _, at = reader.decode(case.stream, at)
        messages.append(case.stream[before:at])
    batch = decode(Decoder(templates, "never"), messages)
    assert [message.values for message in batch.to_messages().values()] == case.messages
    assert not [entry for entry in batch.quarantine if entry.is_quarantined]


@pytest.mark.parametrize("template_id", sorted(load().by_id))
@settings(max_examples=5)
@given(data=st.data())
def test_the_packaged_templates(template_id: int, data: st.DataObject) -> None:
    templates = load()
    values = [data.draw(values_of(templates.by_id[template_id].body, templates)) for _ in range(2)]
    messages = encode_stream(templates, [(template_id, each) for each in values], "message")
    assert_agreement(Decoder(templates, generated=()), messages)


def test_tables_grow_in_the_middle_of_a_batch() -> None:
    """Rows and bytes that no first table has room for, in an order that fills one table after another."""
    entry = field("byteVector") + field("uInt32", name="N")
    templates = loads(template(field("string", "<copy/>", True) + f'<sequence name="S">{entry}</sequence>'))
    long = {"Value": "x" * 5000, "S": [{"Value": bytes(3000), "N": 7}]}
    stream = [(1, {"Value": str(n), "S": [{"Value": b"y" * (n % 7), "N": n}] * (n % 5)}) for n in range(2000)]
    messages = encode_stream(templates, [*stream, *[(1, long)] * 100, *stream], "message")
    decoder = Decoder(templates)
    for _ in range(2):
        assert_agreement(decoder, messages)


def test_kept_values_outlive_the_batch_that_they_came_in() -> None:
    templates = loads(template(field("string", "<copy/>") + field("unicode", "<tail/>", name="T")))
    decoder, writer = Decoder(templates, "never"), Writer(templates, "never")
    values = [{"Value": "v" * (n + 1), "T": "t" * 20 + str(n // 10)} for n in (0, 0, 1, 1, 30, 30, 31, 31)]
    written = [writer.encode(1, v, template_id_always=False) for v in values]
    assert len(written[1]) == 1  # everything as before
    for data, expected in zip(written, values, strict=True):
        assert decode(decoder, [data]).to_messages()[0].values == expected


def test_a_batch_in_use_keeps_its_memory() -> None:
    templates = loads(one_field("string"))
    decoder, writer = Decoder(templates), Writer(templates)
    batches = [decode(decoder, [writer.encode(1, {"Value": text})]) for text in ("first", "second", "third")]
    columns = [batch.record_batch(1).column("Value") for batch in batches]
    del batches
    for text in ("x" * 9, "y" * 9, "z" * 9):
        decode(decoder, [writer.encode(1, {"Value": text})])
    assert [column.to_pylist() for column in columns] == [["first"], ["second"], ["third"]]


def test_rows_say_which_message_they_are() -> None:
    templates = loads(one_field("uInt32"))
    batch = decode(Decoder(templates), [b"\xc0\x81\x85", b"\xc0\x82", b"\xc0\x81\x86"])
    assert batch.message(batch.layout.roots[1]).tolist() == [0, 2]
    (entry,) = batch.quarantine
    assert (entry.message, entry.code, entry.template_id, entry.is_quarantined) == (1, "D9", 2, True)


def test_reports_are_counted_and_the_message_is_kept() -> None:
    xml = '<sequence name="S"><uInt32 name="A"/></sequence>'
    batch = decode(Decoder(loads(template(xml))), [bytes.fromhex("c081 83 0085 86 000087")])
    assert quarantine_of(batch) == [(0, "R6", 3, "S[0].A", 2)]
    assert not batch.quarantine[0].is_quarantined
    assert batch.to_messages()[0].values == {"S": [{"A": 5}, {"A": 6}, {"A": 7}]}


def test_a_record_batch_has_every_column() -> None:
    xml = (
        field("uInt32", '<constant value="8"/>', name="C")
        + field("string", '<constant value="BVMF"/>', True, "O")
        + field("decimal", name="D", optional=True)
        + f'<group name="G" presence="optional">{field("unicode", name="U")}</group>'
        + f'<sequence name="S" presence="optional">{field("byteVector", name="B", optional=True)}</sequence>'
    )
    templates = loads(template(xml))
    full = {"C": 8, "O": "BVMF", "D": Decimal(-2, 150), "G": {"U": "é"}, "S": [{"B": b"\xff"}, {}]}
    messages = encode_stream(templates, [(1, full), (1, {"C": 8, "S": []}), (1, {"C": 8})], "message")
    batch = decode(Decoder(templates), messages)
    rows = batch.record_batch(1)
    rows.validate(full=True)
    nothing = {"O": None, "D": None, "D.exponent": None, "G": False, "G.U": None}
    assert rows.to_pylist() == [
        {"message": 0, "C": 8, "O": "BVMF", "D": 150, "D.exponent": -2, "G": True, "G.U": "é"}
        | {"S": [{"B": b"\xff"}, {"B": None}]},
        {"message": 1, "C": 8, **nothing, "S": []},
        {"message": 2, "C": 8, **nothing, "S": None},
    ]
    assert decode(Decoder(templates), []).record_batch(1).schema == rows.schema


def test_arrow_replaces_what_is_no_utf8_and_the_bytes_stay() -> None:
    batch = decode(Decoder(loads(one_field("unicode"))), [bytes.fromhex("c081 82 61ff")])
    assert batch.record_batch(1).column("Value").to_pylist() == ["a\N{REPLACEMENT CHARACTER}"]
    root = batch.layout.roots[1]
    assert batch.text(root, root.column("Value"))[1].tobytes() == b"a\xff"
    assert [entry.code for entry in batch.quarantine] == ["R2"]


def test_a_message_inside_a_message_is_a_row_of_its_template() -> None:
    others = f'<template name="U" id="2">{field("string")}</template>'
    templates = loads(template('<uInt32 name="A"/><templateRef/>', others))
    inner = Message(templates.by_id[2], {"Value": "in"})
    batch = decode(Decoder(templates), encode_stream(templates, [(1, {"A": 3, "templateRef": inner})], "message"))
    assert batch.record_batch(1).to_pylist() == [{"message": 0, "A": 3, "templateRef": 2, "templateRef.row": 0}]
    assert batch.record_batch(2).to_pylist() == [{"message": 0, "Value": "in"}]
    assert list(batch.to_messages()) == [0]
