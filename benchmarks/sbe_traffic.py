"""Packets of a busy order channel, for timing: about six messages each, almost all of them orders."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from umdf.wire.sbe.arrow import arrow_schema
from umdf.wire.sbe.encode import EncodedPackets, Encoder
from umdf.wire.sbe.layout import Layout
from umdf.wire.sbe.loader import load

# Template: share of the messages.
MIX = {50: 0.46, 51: 0.40, 53: 0.06, 55: 0.04, 56: 0.04}
OPTIONAL_SHARE = 0.9  # of optional values that are there
INSTRUMENTS = 500


def generate_columns(messages: int, seed: int = 7) -> tuple[dict[str, NDArray[np.generic]], list[pa.RecordBatch]]:
    """Packet headers and a RecordBatch per template, as `Encoder` takes them."""
    random = np.random.default_rng(seed)
    sizes = random.integers(4, 9, messages // 4)
    ends = np.cumsum(sizes)
    sizes = sizes[ends <= messages]
    packet = np.repeat(np.arange(len(sizes)), sizes)
    index = np.arange(len(packet)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    template = random.choice(list(MIX), len(packet), p=list(MIX.values()))
    layout = Layout(load())
    batches = [
        _batch(random, layout, template_id, packet[template == template_id], index[template == template_id])
        for template_id in MIX
    ]
    packets = len(sizes)
    headers = {
        "channel": np.full(packets, 72),
        "seq_version": np.full(packets, 1),
        "sequence": np.arange(1, packets + 1),
        "sending_time": 1_763_000_000_000_000_000 + np.arange(packets) * 7_000,
    }
    return headers, batches


def _batch(
    random: np.random.Generator, layout: Layout, template_id: int, packet: NDArray[np.int64], index: NDArray[np.int64]
) -> pa.RecordBatch:
    rows, node, schema = len(packet), layout.roots[template_id], arrow_schema(layout, template_id)
    arrays = [pa.array(packet, pa.uint32()), pa.array(index, pa.uint16())]
    for column, kind in zip(node.columns, schema.types[2:], strict=True):
        if column.field.until is not None:
            arrays.append(pa.nulls(rows, kind))
            continue
        most = {1: 2, 2: 1000, 4: 100_000, 8: 1_000_000}[column.part.size]
        values = random.integers(1, most, rows)
        if column.name == "securityID":
            values = 100_000_000 + random.zipf(1.5, rows) % INSTRUMENTS
        absent = random.random(rows) > OPTIONAL_SHARE if column.part.null is not None else None
        arrays.append(pa.array(values.astype(column.dtype), kind, mask=absent))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encode_packets(messages: int) -> EncodedPackets:
    return Encoder(load()).encode(*generate_columns(messages))
