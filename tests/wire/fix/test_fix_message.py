"""FIX messages: bytes ⇄ fields, and what is skipped in a damaged stream."""

from __future__ import annotations

import itertools
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

import umdf.wire.fix.message
from umdf.errors import EncodeError
from umdf.wire.fix.message import FixFramer, FixMessage, GarbledBytes, encode_message

TEXTS = st.binary(min_size=1, max_size=20).filter(lambda value: b"\x01" not in value)
PLAIN_TAGS = st.integers(1, 99_999).filter(lambda tag: tag not in (8, 9, 10, 35, 95, 96, 213, 212, 89, 90, 91, 93)
                                           and not 348 <= tag <= 359)  # fmt: skip


def feed_all(data: bytes, cuts: list[int] | None = None) -> list[FixMessage | GarbledBytes]:
    framer, found = FixFramer(), []
    bounds = [0, *sorted(cuts or []), len(data)]
    for first, end in itertools.pairwise(bounds):
        found += list(framer.feed(data[first:end]))
    return found


def test_a_message_is_what_fix_says_it_is() -> None:
    # Counted by hand: the body is "35=0" to "112=A" with their SOH.
    expected = b"8=FIX.4.4|9=11|35=0|112=A|".replace(b"|", b"\x01")
    assert encode_message("0", [(112, "A")]) == expected + b"10=%03d\x01" % (sum(expected) % 256)


@given(st.lists(st.tuples(PLAIN_TAGS, TEXTS), max_size=8), st.binary(min_size=1, max_size=300), st.randoms())
def test_fields_come_back_in_order_however_the_bytes_arrive(
    fields: list[tuple[int, bytes]], raw: bytes, order: random.Random
) -> None:
    fields = [*fields, (95, str(len(raw)).encode()), (96, raw)]
    data = encode_message("URDR", fields) * 2
    cuts = [order.randrange(len(data)) for _ in range(order.randrange(4))]
    found = feed_all(data, cuts)
    assert [message.fields[1:] for message in found if isinstance(message, FixMessage)] == [tuple(fields)] * 2


def test_a_length_in_a_group_is_not_that_of_the_data() -> None:
    raw = b"a\x01bcd"
    group = [(10054, 2), (1181, 7), (95, 3), (1181, 8), (95, 2)]
    for fields in (
        [(95, 5), (96, raw), *group],
        [*group, (95, 5), (96, raw)],
        [(95, 5), *group, (911, 2), (96, raw)],
    ):
        (message,) = feed_all(encode_message("URDR", fields))
        assert isinstance(message, FixMessage)
        assert message.get(96) == raw
        entries = message.group(10054, frozenset({1181, 95}))
        assert entries == [{1181: b"7", 95: b"3"}, {1181: b"8", 95: b"2"}]


def test_a_group_whose_count_is_wrong_is_no_group() -> None:
    (message,) = feed_all(encode_message("BW", [(1351, 2), (1355, "72"), (1182, 1)]))
    assert isinstance(message, FixMessage)
    assert message.group(1351, frozenset({1355, 1182})) is None


@pytest.mark.parametrize("count", [2, 300_000_000, 10**17, -1])
def test_a_group_cannot_have_more_entries_than_its_message_has_fields(count: int) -> None:
    message = FixMessage(((35, b"BW"), (1351, b"%d" % count), (1355, b"72"), (1182, b"1"), (1183, b"2")))
    tracemalloc.start()
    assert message.group(1351, frozenset({1355, 1182, 1183})) is None
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


def test_a_message_has_few_data_fields() -> None:
    """Each is looked up among the lengths before it, so thousands would take seconds."""
    pair = [(95, "1"), (96, "x")]
    assert [type(found) for found in feed_all(encode_message("U1", pair * 16))] == [FixMessage]
    assert [type(found) for found in feed_all(encode_message("U1", pair * 17))] == [GarbledBytes]


def test_lengths_that_lead_nowhere_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0

    def counting_bytes(data: bytearray) -> bytes:
        nonlocal copied
        copied += len(data)
        return bytes(data)

    monkeypatch.setattr(umdf.wire.fix.message, "bytes", counting_bytes, raising=False)
    data = b"8=FIX.4.4\x019=200000\x01" * 13_000
    found = feed_all(data)
    assert len(found) > 1_000 and copied < 100 * len(found)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data.replace(b"112=A", b"112=B"), "CheckSum"),
        (lambda data: data.replace(b"\x019=", b"\x019=9999999"), "too long|does not lead"),
        (lambda data: data[1:], "BeginString"),
        (lambda data: b"garbage" + data, "BeginString"),
        (lambda data: data.replace(b"9=11", b"9=1x"), "BodyLength"),
        (lambda data: data.replace(b"9=11", b"9=10"), "does not lead"),
    ],
)  # fmt: skip
def test_garbled_bytes_are_skipped_and_the_next_message_is_found(damage, reason) -> None:
    good = encode_message("0", [(112, "A")])
    found = feed_all(damage(good) + good * 2)
    assert [message for message in found if isinstance(message, FixMessage)][-2:] == feed_all(good * 2)
    garbled = [skipped for skipped in found if isinstance(skipped, GarbledBytes)]
    import re

    assert garbled and re.search(reason, garbled[0].reason)


def test_a_message_that_claims_100_mb_is_not_waited_for() -> None:
    framer = FixFramer()
    head = b"8=FIX.4.4\x019=104857600\x0135=0\x01"
    assert [type(found) for found in framer.feed(head + b"x" * 10_000)][:1] == [GarbledBytes]
    assert framer.pending_bytes < 10
    for _ in range(100):
        list(framer.feed(b"y" * 10_000))
    assert framer.pending_bytes < 10


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=5))
def test_any_bytes_are_accounted_for(data: bytes, cuts: list[int]) -> None:
    framer = FixFramer()
    skipped = 0
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for first, end in itertools.pairwise(bounds):
        for found in framer.feed(data[first:end]):
            assert isinstance(found, GarbledBytes)
            skipped += found.size
    assert skipped + framer.pending_bytes == len(data)


@pytest.mark.parametrize("value", ["", "a\x01b"])
def test_a_value_that_would_break_the_message_is_refused(value: str) -> None:
    with pytest.raises(EncodeError, match="tag 58"):
        encode_message("5", [(58, value)])
