"""The sinks of a bulk capture: rolling files for each line of each stream, behind a network that may lose packets.

The incremental stream is on every line, the looping streams are on the first one only, without loss.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from umdf.exchange.bulk.settings import SECOND_NS, BulkSettings
from umdf.exchange.network.faults import Faults
from umdf.exchange.network.faulty_lines import FaultyLines
from umdf.exchange.publish.channel_settings import FAST, INCREMENTAL, STREAMS
from umdf.exchange.publish.sinks import Sink
from umdf.exchange.truth.tables import Truth
from umdf.transport.rolling_captures import Flow, Manifest, RollingFiles

COMMON_LOSS_SHARE = 0.05  # of the loss: starts of a run of packets that every line loses


def flows_of(settings: BulkSettings, protocol: str) -> dict[str, list[Flow]]:
    """The lines of each stream: each has its own multicast group and port."""
    return {
        stream: [_flow(settings.channel, protocol, stream, line) for line in _lines(settings, stream)]
        for stream in STREAMS
    }


def _lines(settings: BulkSettings, stream: str) -> str:
    return settings.lines if stream == INCREMENTAL else settings.lines[:1]


def _flow(channel: int, protocol: str, stream: str, line: str) -> Flow:
    protocol_index, line_index, stream_index = int(protocol == FAST), "AB".index(line), STREAMS.index(stream)
    dest = (
        f"224.0.{20 + 10 * protocol_index + line_index}.{channel}",
        20_001 + 1_000 * protocol_index + 100 * line_index + stream_index,
    )
    source = f"10.{protocol_index}.{line_index}.1", 40_001 + stream_index
    return Flow(protocol, channel, stream, line, source, dest)


def open_sinks(settings: BulkSettings, protocol: str, manifest: Manifest, truth: Truth) -> Mapping[str, Sink]:
    """A sink for each stream."""
    sinks: dict[str, Sink] = {}
    for stream, flows in flows_of(settings, protocol).items():
        files: dict[str, Sink] = {
            flow.line: RollingFiles(manifest, flow, settings.roll_bytes, settings.roll_s * SECOND_NS) for flow in flows
        }
        loss = settings.loss if stream == INCREMENTAL else 0.0
        random = np.random.default_rng([settings.seed, 2, int(protocol == FAST), STREAMS.index(stream)])
        faults = Faults(loss=loss, common_loss=loss * COMMON_LOSS_SHARE)
        sinks[stream] = FaultyLines(files, random, faults, lambda *lost: truth.add_loss(protocol, *lost))
    return sinks
