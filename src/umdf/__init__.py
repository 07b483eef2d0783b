"""B3's Unified Market Data Feed, end to end: codecs, captures, market model, exchange, client and lakehouse.

    with umdf.open_capture("day.pcap.zst") as capture:
        decoder = umdf.SbeDecoder(umdf.load_sbe_schema())
        for packets in capture:
            batch = decoder.decode(packets.buffer, packets.start, packets.end)
            batch.record_batch(50)      # Order_MBO_50 as Arrow, without a copy

The public API. Names are loaded on first use, so that `import umdf` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from umdf.book.engine import Books as Books
    from umdf.errors import UmdfError as UmdfError
    from umdf.feed.live import Live as Live
    from umdf.lake.query.lake import Lake as Lake
    from umdf.lake.source.data_source import register as register_source
    from umdf.market.fast.events import FastEventMapper as FastEventMapper
    from umdf.market.sbe.events import SbeEventMapper as SbeEventMapper
    from umdf.market.state import MarketState as MarketState
    from umdf.transport.capture import open_capture as open_capture
    from umdf.transport.pcap_writer import PcapWriter as PcapWriter
    from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
    from umdf.wire.fast.encode.encoder import Encoder as FastEncoder
    from umdf.wire.fast.loader import load as load_fast_templates
    from umdf.wire.packet import detect_protocols as detect_protocols
    from umdf.wire.sbe.decode import Decoder as SbeDecoder
    from umdf.wire.sbe.encode import Encoder as SbeEncoder
    from umdf.wire.sbe.loader import load as load_sbe_schema

_EXPORTS = {
    "UmdfError": ("umdf.errors", "UmdfError"),
    "open_capture": ("umdf.transport.capture", "open_capture"),
    "PcapWriter": ("umdf.transport.pcap_writer", "PcapWriter"),
    "detect_protocols": ("umdf.wire.packet", "detect_protocols"),
    "load_sbe_schema": ("umdf.wire.sbe.loader", "load"),
    "SbeDecoder": ("umdf.wire.sbe.decode", "Decoder"),
    "SbeEncoder": ("umdf.wire.sbe.encode", "Encoder"),
    "load_fast_templates": ("umdf.wire.fast.loader", "load"),
    "FastDecoder": ("umdf.wire.fast.decode.decoder", "Decoder"),
    "FastEncoder": ("umdf.wire.fast.encode.encoder", "Encoder"),
    "SbeEventMapper": ("umdf.market.sbe.events", "SbeEventMapper"),
    "FastEventMapper": ("umdf.market.fast.events", "FastEventMapper"),
    "MarketState": ("umdf.market.state", "MarketState"),
    "Books": ("umdf.book.engine", "Books"),
    "Live": ("umdf.feed.live", "Live"),
    "Lake": ("umdf.lake.query.lake", "Lake"),
    "register_source": ("umdf.lake.source.data_source", "register"),
}
__all__ = [
    "Books",
    "FastDecoder",
    "FastEncoder",
    "FastEventMapper",
    "Lake",
    "Live",
    "MarketState",
    "PcapWriter",
    "SbeDecoder",
    "SbeEncoder",
    "SbeEventMapper",
    "UmdfError",
    "__version__",
    "detect_protocols",
    "load_fast_templates",
    "load_sbe_schema",
    "open_capture",
    "register_source",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'umdf' has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
