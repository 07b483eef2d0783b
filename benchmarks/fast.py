"""FIX/FAST: generated code and interpreter against the bare stop-bit tokenizer; batch encode."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import fast_traffic
from benchmarks.measure import Result, fastest
from benchmarks.tokenizer_kernel import tokenize
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.encode.encoder import Encoder
from umdf.wire.fast.loader import load

MESSAGES, REPEAT = 5_000, 12
BATCH_MESSAGES = 5_000


def run() -> Iterator[Result]:
    buffer, start, end, entries = fast_traffic.encoded_order_book_messages(MESSAGES, REPEAT)
    spans = [(start[i : i + BATCH_MESSAGES], end[i : i + BATCH_MESSAGES]) for i in range(0, len(start), BATCH_MESSAGES)]
    decoders = {"generated": Decoder(load()), "interpreter": Decoder(load(), generated=())}

    def decode(decoder: Decoder) -> None:
        for s, e in spans:
            decoder.decode(buffer, s, e)

    address, size = buffer.ctypes.data, len(buffer)
    best = fastest(
        {
            "tokenizer": lambda: tokenize(address, size),
            "generated": lambda: decode(decoders["generated"]),
            "interpreter": lambda: decode(decoders["interpreter"]),
        }
    )
    for name, target in (("generated", 1.9), ("interpreter", 4.5)):
        figure = f"{best[name] / entries * 1e9:.0f} ns/entry, {entries / best[name] / 1e6:.1f} M entries/s"
        yield Result(f"FAST → columns, {name}", figure, best[name] / best["tokenizer"], "× tokenizer", target)
    yield _encode(decoders["generated"])


def _encode(decoder: Decoder) -> Result:
    buffer, start, end, entries = fast_traffic.encoded_order_book_messages(MESSAGES)
    batches = {fast_traffic.TEMPLATE: decoder.decode(buffer, start, end).record_batch(fast_traffic.TEMPLATE)}
    encoder = Encoder(load())
    assert encoder.encode(batches).buffer.tobytes() == buffer.tobytes()
    best = fastest({"encode": lambda: encoder.encode(batches)})["encode"]
    figure, rate = f"{best / entries * 1e9:.0f} ns/entry", entries / best / 1e6
    return Result("FAST batch encode", figure, rate, "M entries/s", 1, at_least=True)
