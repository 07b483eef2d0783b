"""Packets of one line → messages as FIX writes them, with their bytes: the evidence of a step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from umdf.certify.observation import INCREMENTAL, SeenMessage
from umdf.sync.unit_codecs import FastUnits, SbeUnits
from umdf.wire.fast.decode.decoder import Decoder as FastDecoder
from umdf.wire.fast.templates import TemplateSet
from umdf.wire.fast.view import rows as fast_rows
from umdf.wire.sbe.decode import Decoder as SbeDecoder
from umdf.wire.sbe.schema import OtherVersions, Schema
from umdf.wire.sbe.view import fix_fields
from umdf.wire.sbe.view import rows as sbe_rows


class MessageReader:
    """Reads one line of a stream; packets may be divided into calls in any way."""

    def __init__(self, protocol: str, channel: int, stream: str, schema: Schema, templates: TemplateSet) -> None:
        self._channel, self._stream = channel, stream
        if protocol == "fast":
            self._fast = FastDecoder(templates)
            self._fast_units = FastUnits(self._fast, templates, channel)
        else:
            self._sbe = SbeDecoder(schema)
            self._sbe_units = SbeUnits(self._sbe, OtherVersions(schema), channel)
        self._is_fast = protocol == "fast"

    def read(
        self, buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64], ts_ns: NDArray[np.int64]
    ) -> Iterator[SeenMessage]:
        """The messages that these packets complete."""
        codec = self._fast_units if self._is_fast else self._sbe_units
        units, _ = codec.read(buffer, start, end, ts_ns, 0, is_looping=self._stream != INCREMENTAL)
        if not len(units):
            return
        spans = list(zip(units.start.tolist(), units.end.tolist(), strict=True))
        data = [units.buffer[first:last].tobytes() for first, last in spans]
        sequences = units.sequence.tolist()
        if self._is_fast:
            batch = self._fast.decode(units.buffer, units.start, units.end)
            for row in fast_rows(batch):
                at = row.number
                yield SeenMessage(self._channel, self._stream, sequences[at], tuple(row.fix()), data[at])
            return
        decoded = self._sbe.decode(units.buffer, units.start, units.end)
        for row in sbe_rows(decoded, dates=True):
            fields = fix_fields(decoded.layout.message_of(row.node), row.fields)
            yield SeenMessage(self._channel, self._stream, sequences[row.packet], tuple(fields), data[row.packet])
