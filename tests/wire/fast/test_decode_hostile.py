"""Bytes that mean harm: quarantined with place and code, nothing touched outside the buffers, no memory without end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from vectors.fast import field, one_field, template
from wire.fast.random_messages import messages_of, mutated
from wire.fast.test_decode import assert_agreement, decode, quarantine_of

from umdf.wire.fast.decode.decoder import Batch, Decoder
from umdf.wire.fast.loader import load, loads
from umdf.wire.fast.reference.transfer_encoding import Limits, write_unsigned

TESTS = Path(__file__).parents[2]
TEXT, MORE = field("string", name="A"), field("string", name="B")
ENTRIES = template(f'<sequence name="S">{field("uInt32")}</sequence>')


def memory_of(batch: Batch) -> int:
    return sum(memory.nbytes for _, memory in batch._stores.values() if memory is not None)


@pytest.mark.parametrize(
    ("xml", "data", "code", "at", "place"),
    [
        (ENTRIES, b"\xc0\x81" + write_unsigned(1 << 31) + b"\x81" * 50, "T1", 2, "S"),
        (ENTRIES, b"\xc0\x81" + write_unsigned((1 << 32) - 1), "T1", 2, "S"),
        (ENTRIES, b"\xc0\x81\x83\x81\x81", "T1", 2, "S"),
        (template('<sequence name="S"/>'), b"\xc0\x81" + write_unsigned(1 << 31), "T2", 2, "S"),
        (one_field("uInt32"), b"\xc0\x81" + bytes(5), "T1", 2, "Value"),
        (one_field("uInt32"), b"\xc0\x81" + bytes(100_000), "D2", 2, "Value"),
        (one_field("uInt64"), b"\xc0\x81" + b"\x7f" * 9 + b"\xff", "D2", 2, "Value"),
        (one_field("string"), b"\xc0\x81" + b"\x01" * 100_000, "T1", 2, "Value"),
        (one_field("byteVector"), b"\xc0\x81" + write_unsigned(1 << 31), "T1", 2, "Value"),
        (one_field("uInt32"), bytes(1 << 20), "T2", 0, ""),
        (one_field("uInt32"), bytes(255), "T1", 0, ""),
        (one_field("uInt32"), b"", "T1", 0, ""),
        (one_field("uInt32"), b"\xc0\x81\x85\x80", "T3", 3, ""),
        (one_field("uInt32"), b"\xc0\x89\x85", "D9", 1, ""),
        (one_field("uInt32"), b"\x80", "D5", 1, ""),
    ],
)
def test_each_damaged_message_is_quarantined_with_offset_and_code(
    xml: bytes, data: bytes, code: str, at: int, place: str
) -> None:
    templates = loads(xml)
    for generated in ((), (1,)):
        decoder = Decoder(templates, generated=generated)
        journal = quarantine_of(decode(decoder, [data, b"\x80"], extra_bytes=5000))
        assert journal[-2:] == [(0, code, at, place, 1), (1, "D5", 1, "", 1)]
        assert_agreement(decoder, [data])
        assert not decode(decoder, [data]).templates


def test_a_few_bytes_that_repeat_a_long_string_are_refused_before_they_fill_the_memory() -> None:
    templates = loads(template(f'<sequence name="S">{field("string", "<copy/>")}</sequence>'))
    entries = 30_000
    data = b"\xc0\x81" + write_unsigned(entries) + b"\xc0" + b"x" * 29_999 + b"\xf8" + b"\x80" * (entries - 1)
    batch = decode(Decoder(templates), [data])
    assert [(entry.code, entry.field.startswith("S[")) for entry in batch.quarantine] == [("T2", True)]
    assert memory_of(batch) < 5 * Limits().combined_bytes


def test_the_memory_is_a_small_multiple_of_the_input() -> None:
    templates = load()
    random = np.random.default_rng(1)
    noise = random.integers(0, 256, 1 << 20, np.uint8)
    noise[random.random(1 << 20) < 0.5] |= 0x80
    cuts = np.arange(0, 1 << 20, 512, dtype=np.int64)
    noise[cuts], noise[cuts + 1], noise[cuts + 2] = 0xC0, 0x01, 0x98
    batch = Decoder(templates).decode(noise, cuts, cuts + 512)
    assert memory_of(batch) < 64 * len(noise)
    assert len(batch._quarantine_lines) <= 12 * len(cuts)


def test_a_message_outside_the_buffer_is_the_callers_mistake() -> None:
    decoder = Decoder(load())
    for start, end in ((0, 11), (-1, 5), (7, 6)):
        with pytest.raises(ValueError, match="outside the buffer"):
            decoder.decode(np.zeros(10, np.uint8), np.array([start]), np.array([end]))


GUARDED = """
import sys
from wire.fast.test_decode_hostile import run_guarded
run_guarded(int(sys.argv[1]), int(sys.argv[2]))
"""


def run_guarded(seed: int, count: int) -> None:
    """Damaged messages one by one at the very end of guarded memory, and in a batch with guarded tables."""
    from wire.sbe.guarded_memory import GuardedMemory, guarded

    from umdf import buffers

    buffers.Memory = GuardedMemory  # type: ignore[misc]
    random, place = np.random.default_rng(seed), guarded(1 << 16)
    messages = mutated(messages_of(load(), 50, random), count, random)
    decoder = Decoder(load())
    for data in messages[: count // 4]:
        packet: NDArray[np.uint8] = place[len(place) - len(data) :]
        packet[:] = np.frombuffer(data, np.uint8)
        decoder.decode(packet, np.array([0]), np.array([len(data)]))
    # Long texts behind an integer that is not as usual: what generated code reads on must find room for them.
    long = b"\xc0\x81\x84" + (b"a" * 20_000 + b"\xe1" + b"\x00\x81" + b"b" * 20_000 + b"\xe2") * 4
    large = Decoder(
        loads(template(f'<sequence name="S">{TEXT}{field("uInt32", name="N")}{MORE}</sequence>')), generated=[1]
    )
    for _ in range(3):
        assert len(decode(large, [long] * 20, extra_bytes=4096).quarantine) == 20
    ends = np.cumsum([len(data) for data in messages], dtype=np.int64)
    whole = guarded(int(ends[-1]))
    whole[:] = np.frombuffer(b"".join(messages), np.uint8)
    for _ in range(3):
        batch = decoder.decode(whole, np.concatenate([[0], ends[:-1]]), ends)
    assert batch.templates and batch.quarantine
    for template_id in batch.templates:
        batch.record_batch(template_id).validate(full=True)
    print(f"guarded {count} messages")


def test_fuzz_nothing_is_read_or_written_outside_the_buffers(sized: Callable[[int, int], int]) -> None:
    """In a process of its own: a touch would kill it."""
    seed = int(np.random.default_rng().integers(1 << 62))
    command = [sys.executable, "-c", GUARDED, str(seed), str(sized(4_000, 100_000))]
    ran = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"seed {seed}: exit {ran.returncode}\n{ran.stderr[-2000:]}"
    assert "guarded" in ran.stdout


def test_fuzz_generated_code_interpreter_and_reference_agree_on_damaged_messages(
    sized: Callable[[int, int], int],
) -> None:
    """Generated code and interpreter on all of them, the reference reader on some."""
    seed = int(np.random.default_rng().integers(1 << 62))
    print(f"seed {seed}")  # shown when it fails
    random, size = np.random.default_rng(seed), 5_000
    corpus = messages_of(load(), 50, random)
    hot, cold = Decoder(load()), Decoder(load(), generated=())
    for number in range(sized(10_000, 1_000_000) // size):
        messages = mutated(corpus, size, random)
        batches = [decode(decoder, messages, extra_bytes=4096) for decoder in (hot, cold)]
        assert quarantine_of(batches[0]) == quarantine_of(batches[1])
        assert batches[0].rows.tolist() == batches[1].rows.tolist()
        for template_id in batches[0].templates:
            assert batches[0].record_batch(template_id).equals(batches[1].record_batch(template_id))
        if number % sized(1, 20) == 0:
            assert_agreement(hot, messages[:500], extra_bytes=4096)
