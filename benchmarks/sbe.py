"""Binary UMDF: decode, RecordBatches, encode."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks import sbe_traffic
from benchmarks.measure import Result, fastest
from umdf.wire.sbe.decode import Batch, Decoder
from umdf.wire.sbe.encode import Encoder
from umdf.wire.sbe.loader import load

MESSAGES = 1_200_000
BATCH_PACKETS = (2_000, 5_000, 10_000)
STRUCT_MESSAGES = 60_000
ARROW_REPEATS = 50
DECODE_REPEATS = 40  # the loop takes that much longer, and has the caches to itself
HEADER = struct.Struct("<HHHHHH")
Spans = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


def run() -> Iterator[Result]:
    encoded = sbe_traffic.encode_packets(MESSAGES)
    buffer, start, end = encoded.buffer, encoded.start, encoded.end
    plain, full = Decoder(load(), validity=False), Decoder(load())
    messages = _count(full.decode(buffer, start, end))
    for size in BATCH_PACKETS:
        spans: Spans = [(start[i : i + size], end[i : i + size]) for i in range(0, len(start), size)]
        target = np.empty(max(int(e[-1] - s[0]) for s, e in spans), np.uint8)

        def copy(spans: Spans = spans, target: NDArray[np.uint8] = target) -> None:
            for s, e in spans:
                target[: e[-1] - s[0]] = buffer[s[0] : e[-1]]

        def decode(decoder: Decoder, spans: Spans = spans) -> None:
            for s, e in spans:
                decoder.decode(buffer, s, e)

        best = fastest({"copy": copy, "plain": lambda: decode(plain), "full": lambda: decode(full)})
        rate = f"{best['plain'] / messages * 1e9:.1f} ns/message, {messages / best['plain'] / 1e6:.0f} M/s"
        yield Result(f"SBE → columns, {size} packets", rate, best["plain"] / best["copy"], "× memcpy", 3.0)
        rate = f"{best['full'] / messages * 1e9:.1f} ns/message, {messages / best['full'] / 1e6:.0f} M/s"
        yield Result(f"SBE → columns + bitmaps, {size} packets", rate, best["full"] / best["copy"], "× memcpy", 3.4)
        yield _arrow(full, buffer, *spans[0], best["full"] / len(start) * size)
    yield _against_struct(buffer, start, end, full)
    yield _encode()


def _count(batch: Batch) -> int:
    return int(batch.rows.sum())


def _arrow(
    decoder: Decoder, buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64], decode_s: float
) -> Result:
    """Time to build and free the RecordBatches of one batch, against the time to decode it."""
    batch = decoder.decode(buffer, start, end)

    def build() -> None:
        for _ in range(ARROW_REPEATS):
            for template_id in batch.templates:
                batch.record_batch(template_id)

    built_s = fastest({"build": build})["build"] / ARROW_REPEATS
    figure = f"{built_s * 1e6:.0f} µs for {len(batch.templates)} templates"
    target = 0.05 if len(start) == BATCH_PACKETS[-1] else None
    return Result(f"RecordBatches, {len(start)} packets", figure, built_s / decode_s, "of decode", target)


def _against_struct(
    buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64], decoder: Decoder
) -> Result:
    """Against a good decoder in plain Python with `struct`."""
    packets = int(np.searchsorted(np.cumsum(np.full(len(start), 6)), STRUCT_MESSAGES))
    start, end = start[:packets], end[:packets]
    content, starts, ends = buffer[: end[-1]].tobytes(), start.tolist(), end.tolist()
    unpackers = {template_id: _unpacker(template_id) for template_id in sbe_traffic.MIX}

    def loop() -> None:
        decoded: dict[int, list[tuple[int, ...]]] = {template_id: [] for template_id in unpackers}
        for offset, last in zip(starts, ends, strict=True):
            offset += 16
            while offset < last:
                length, _, _, template_id, _, _ = HEADER.unpack_from(content, offset)
                decoded[template_id].append(unpackers[template_id].unpack_from(content, offset + 12))
                offset += length

    def ours() -> None:
        for _ in range(DECODE_REPEATS):
            decoder.decode(buffer, start, end)

    best = fastest({"loop": loop, "decode": ours})
    figure = f"{best['loop'] * 1e9 / (packets * 6):.0f} ns/message in Python"
    ratio = DECODE_REPEATS * best["loop"] / best["decode"]
    return Result("SBE decode against a struct loop", figure, ratio, "× faster", 40, at_least=True)


def _unpacker(template_id: int) -> struct.Struct:
    codes = {"uint8": "B", "char": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int64": "q", "int32": "i"}
    layout, offset = "<", 0
    message = load().messages[template_id]
    for field in message.sent_fields:
        layout += f"{field.offset - offset}x{codes[field.parts[0].primitive]}"
        offset = field.end
    return struct.Struct(layout)


def _encode() -> Result:
    headers, batches = sbe_traffic.generate_columns(MESSAGES)
    messages = sum(batch.num_rows for batch in batches)
    encoder = Encoder(load())
    best = fastest({"encode": lambda: encoder.encode(headers, batches)})["encode"]
    rate = messages / best / 1e6
    figure = f"{best / messages * 1e9:.0f} ns/message"
    return Result("SBE batch encode", figure, rate, "M messages/s", 10, at_least=True)
