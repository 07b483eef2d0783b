"""What a channel publishes, decoded by our decoders: events of both protocols and generations."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from umdf.exchange.instruments.listing import Listing
from umdf.exchange.publish.channel_settings import FAST, SBE, STREAMS, ChannelSettings
from umdf.exchange.publish.fast_publisher import FastPublisher
from umdf.exchange.publish.publisher import JournalBatch, Publisher
from umdf.exchange.publish.sbe_publisher import SbePublisher
from umdf.exchange.publish.sinks import Packets
from umdf.market.fast.events import FastEventMapper
from umdf.market.rows import Events
from umdf.market.sbe.events import SbeEventMapper
from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
from umdf.wire.fast.loader import load as load_templates
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.loader import load as load_schema

HEADER = struct.Struct(">IHHH")  # MsgSeqNum, NoChunks, CurrentChunk, MsgLength
SCHEMA, TEMPLATES = load_schema(), load_templates()
SBE_DECODER, FAST_DECODER = SbeDecoder(SCHEMA), FastDecoder(TEMPLATES, generated=())


@dataclass
class MemorySink:
    packets: list[bytes] = field(default_factory=list)

    def write(self, packets: Packets) -> None:
        content = packets.buffer.tobytes()
        self.packets += [content[a:b] for a, b in zip(packets.start.tolist(), packets.end.tolist(), strict=True)]

    def advance(self, now_ns: int) -> None:
        pass

    def close(self) -> None:
        pass


def publish(settings: ChannelSettings, listing: Listing, batch: JournalBatch) -> Events:
    """The events of one batch, through encoder, packets and decoder."""
    sinks = {stream: MemorySink() for stream in STREAMS}
    publisher: Publisher = (SbePublisher if settings.protocol == SBE else FastPublisher)(settings, listing, sinks)
    publisher.publish(batch)
    packets = sinks[batch.stream].packets
    if settings.protocol == FAST:
        return FastEventMapper(FAST_DECODER.layout).events(FAST_DECODER.decode(*_joined(_messages(packets))))
    batch_of_packets = SBE_DECODER.decode(*_joined(packets))
    return SbeEventMapper(SBE_DECODER.layout).events(batch_of_packets)


def _messages(packets: list[bytes]) -> list[bytes]:
    """The messages of FIX/FAST packets, of which some have several chunks."""
    messages, chunks = [], b""
    for packet in packets:
        at = 0
        while at < len(packet):
            _, count, chunk, length = HEADER.unpack_from(packet, at)
            at += HEADER.size + length
            chunks += packet[at - length : at]
            if chunk == count:
                messages.append(chunks)
                chunks = b""
    assert not chunks
    return messages


def _joined(parts: list[bytes]) -> tuple[Any, Any, Any]:
    ends = np.cumsum([len(part) for part in parts])
    return np.frombuffer(b"".join(parts), np.uint8).copy(), ends - [len(part) for part in parts], ends
