"""Generated code is the interpreter's equal: on every kind of field it knows, on sound and on damaged messages."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vectors.fast import field, template
from wire.fast.strategies import damaged, streams, template_sets
from wire.fast.test_decode import assert_agreement, encode_stream

from umdf.kernels import ENTRY_POINTS
from umdf.wire.fast.decode import decoder as decoder_module
from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.decode.codegen import Generator, can_generate, is_worth_generating
from umdf.wire.fast.decode.codegen_cache import load_generated
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.layout import Layout
from umdf.wire.fast.loader import load, loads

pytestmark = pytest.mark.xdist_group("generated")  # one process compiles the code that these tests share
INTEGERS = {"int32": "-7", "uInt32": "7", "int64": "-9", "uInt64": "9"}
HOT = [145, 147, 152, 153]
EXTRA_BYTES = 4096  # bytes behind the last message: near the end of the buffer the interpreter is in charge


def _kinds(name: Iterator[str], *types: str) -> str:
    """A field for every operator and presence that generated code knows."""
    few = ("", "<increment/>", "<delta{}/>")
    texts = ("", "<default{}/>", "<copy/>", "<copy{}/>")
    all_of_them = ("", "<default{}/>", "<copy/>", "<copy{}/>", "<increment/>", "<increment{}/>", "<delta/>")
    operators = {"int32": all_of_them, "uInt32": all_of_them, "int64": few, "uInt64": few}
    operators |= {"string": texts, "unicode": texts[:1], "byteVector": texts[2:]}
    values = {**INTEGERS, "string": "AB", "unicode": "é", "byteVector": "00ff"}
    fields = [
        field(t, operator.format(f' value="{values[t]}"'), optional, next(name))
        for t in types
        for operator in operators[t]
        for optional in (False, True)
    ]
    fields += [field(t, "<default/>", True, next(name)) for t in types]
    return "".join(fields)


def _decimals(name: Iterator[str]) -> str:
    exponents = ("", '<default value="-2"/>', "<copy/>")
    return "".join(
        field("decimal", f"<exponent>{e}</exponent><mantissa>{m}</mantissa>", optional, next(name))
        for e, m, optional in zip(exponents, ("<delta/>", "<delta/>", ""), (True, False, True), strict=True)
    )


def _every_kind() -> bytes:
    """Two templates, because compiling one of twice the size takes four times as long. All kinds of fields, groups in
    groups, sequences in sequences, and more than 64 optional fields in a row."""
    name = (f"F{number}" for number in count())
    inside = "<length><default/></length>" + _kinds(name, "byteVector")
    inner = f'<sequence name="Inner" presence="optional">{inside}</sequence>'
    entries = f'<sequence name="S">{_kinds(name, "string")}{_decimals(name)}{inner}</sequence>'
    last = f'<sequence name="L"><length><copy value="1"/></length>{_kinds(name, "uInt64")}</sequence>'
    first = _kinds(name, "uInt32") + entries + last
    flags = "".join(field("string", '<constant value="Y"/>', True, next(name)) for _ in range(45))
    more = "".join(field("uInt32", "", True, next(name)) for _ in range(18))
    group = f'<group name="G" presence="optional">{flags}<group name="H">{more}</group></group>'
    second = f'{_kinds(name, "int32")}<sequence name="S">{_kinds(name, "unicode", "int64")}{group}</sequence>'
    return template(first, f'<template name="U" id="2">{second}</template>')


EVERY_KIND = loads(_every_kind())


def test_the_test_template_is_supported_by_generated_code() -> None:
    layout = Layout(EVERY_KIND)
    assert all(can_generate(root) for root in layout.roots.values())
    assert max(node.mask_words for node in layout.nodes) > 1


def test_code_is_generated_for_market_data_of_both_generations() -> None:
    layout = Layout(load())
    assert [
        tid for tid, root in layout.roots.items() if is_worth_generating(layout, root) and can_generate(root)
    ] == HOT
    assert all(can_generate(root) for root in layout.roots.values())


@given(data=st.data())
def test_generated_code_and_interpreter_agree_on_every_kind_of_field(data: st.DataObject) -> None:
    messages = encode_stream(EVERY_KIND, data.draw(streams(EVERY_KIND, most=2)), "message")
    assert_agreement(Decoder(EVERY_KIND, generated=[1, 2]), messages, extra_bytes=EXTRA_BYTES)


@given(data=st.data())
def test_damaged_messages_of_every_kind_agree(data: st.DataObject) -> None:
    messages = encode_stream(EVERY_KIND, data.draw(streams(EVERY_KIND, most=2)), "message")
    messages += [data.draw(damaged(message)) for message in messages for _ in range(4)]
    assert_agreement(Decoder(EVERY_KIND, generated=[1, 2]), messages, extra_bytes=EXTRA_BYTES)


@settings(max_examples=10)
@given(data=st.data())
def test_market_data_sound_and_damaged_agrees(data: st.DataObject) -> None:
    templates = load()
    drawn = [m for m in data.draw(streams(templates, most=6)) if m[0] in HOT]
    messages = encode_stream(templates, drawn, "message")
    messages += [data.draw(damaged(message)) for message in messages for _ in range(3)]
    assert_agreement(Decoder(templates), messages, extra_bytes=EXTRA_BYTES)


def test_usual_messages_never_reach_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    templates = load()
    entry = {"SecurityIDSource": 8, "SecurityExchange": "BVMF", "SecurityID": 5, "MDEntryTime": 1, "MDUpdateAction": 0}
    entries = [{**entry, "MDEntryType": "0", "OrderID": str(number)} for number in range(5)]
    body = {"ApplVerID": "9", "MsgType": "X", "MsgSeqNum": 1, "SendingTime": 1}
    messages = encode_stream(templates, [(152, {**body, "MDEntries": entries})] * 10, "message")
    decoder = Decoder(templates)
    assert_agreement(decoder, messages, extra_bytes=EXTRA_BYTES)  # makes room
    left = []

    def interpret(table: int) -> int:
        if not decoder._arguments[k.USE_GENERATED]:
            left.append(int(decoder._arguments[k.FIRST]))
        return original(table)

    original = decoder_module.interpret_messages
    monkeypatch.setattr(decoder_module, "interpret_messages", interpret)
    assert_agreement(decoder, messages, extra_bytes=EXTRA_BYTES)
    assert left == []


def test_random_templates_agree(sized: Callable[[int, int], int]) -> None:
    """Each one is compiled, so there are few of them."""

    @settings(max_examples=sized(1, 100))
    @given(data=st.data())
    def check(data: st.DataObject) -> None:
        templates = data.draw(template_sets(most_templates=1).filter(lambda t: can_generate(Layout(t).roots[1])))
        messages = encode_stream(templates, data.draw(streams(templates)), "message")
        messages += [data.draw(damaged(message)) for message in messages for _ in range(10)]
        assert_agreement(Decoder(templates, generated=[1]), messages, extra_bytes=EXTRA_BYTES)

    check()


def test_the_same_template_is_the_same_file_and_another_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umdf.wire.fast.decode.codegen_cache.cache_dir", lambda: tmp_path)
    for xml in (field("uInt32"), field("uInt32"), field("uInt32", "<copy/>")):
        layout = Layout(loads(template(xml)))
        assert load_generated(layout, layout.roots[1]) is not None
    files = sorted((tmp_path / "generated").glob("*.py"))
    assert len(files) == 2
    assert all(file.stem.rpartition("_")[2] in file.read_text() for file in files)


def _loaded() -> tuple[int, int]:
    return len(ENTRY_POINTS), sum(name.startswith("umdf_generated") for name in sys.modules)


def test_decoders_of_the_same_templates_share_their_code_and_nothing_else() -> None:
    messages = [*encode_stream(EVERY_KIND, [], "message"), b"\xc0\x81", b"\xc0\x82"]
    first = Decoder(EVERY_KIND, generated=[1, 2])
    assert_agreement(first, messages)
    before = _loaded()
    second = Decoder(loads(_every_kind()), generated=[1, 2])
    assert_agreement(second, messages)
    assert _loaded() == before
    assert all(second._generated[number] is first._generated[number] for number in (1, 2))
    assert_agreement(first, messages)
    assert not {id(array) for array in vars(first).values() if isinstance(array, np.ndarray)} & {
        id(array) for array in vars(second).values() if isinstance(array, np.ndarray)
    }


def test_code_that_was_not_used_for_long_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("umdf.wire.fast.decode.codegen_cache.cache_dir", lambda: tmp_path)
    monkeypatch.setattr("umdf.wire.fast.decode.codegen_cache.MOST_LOADED", 2)
    monkeypatch.setattr("umdf.wire.fast.decode.codegen_cache._LOADED", {})
    kinds = ("", "<copy/>", "<delta/>")
    layouts = [Layout(loads(template(field("uInt32", operator)))) for operator in kinds]
    before = _loaded()
    first, second, third = [load_generated(layout, layout.roots[1]) for layout in layouts]
    assert _loaded()[0] - before[0] == 2
    assert load_generated(layouts[1], layouts[1].roots[1]) is second  # used again: the third goes first
    assert load_generated(layouts[0], layouts[0].roots[1]) not in (first, None)
    assert load_generated(layouts[1], layouts[1].roots[1]) is second
    assert load_generated(layouts[2], layouts[2].roots[1]) not in (third, None)


def test_the_interpreter_decodes_where_no_generated_file_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "generated").write_text("in the way")
    monkeypatch.setattr("umdf.wire.fast.decode.codegen_cache.cache_dir", lambda: tmp_path)
    messages = encode_stream(EVERY_KIND, [], "message")
    decoder = Decoder(EVERY_KIND, generated=[1, 2])
    assert_agreement(decoder, [*messages, b"\xc0\x81", b"\xc0\x81"])
    assert not decoder._generated


def test_generated_code_says_what_it_is() -> None:
    layout = Layout(load())
    source = Generator(layout, layout.roots[152]).source()
    assert '"""MDIncrementalRefresh_152: from message FIRST on' in source
