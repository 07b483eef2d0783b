"""Packets for the tests of the Binary codec, what became of them, and a schema with everything SBE allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from wire.sbe.reference_codec import DecodedPacket, decode_packet

from umdf.wire.sbe import tables_kernel as k
from umdf.wire.sbe.decode import REASONS, Batch, Decoder
from umdf.wire.sbe.encode import EncodedPackets
from umdf.wire.sbe.loader import load, loads
from umdf.wire.sbe.schema import Schema
from umdf.wire.sbe.view import rows

SCHEMA = load()
VERSIONS = range(8, 18)  # 8 to 16 were sent; 17 will be

# Groups in groups, data in groups, wide headers, texts and codes that came and went: what the exchange's file has not
# (yet), and a user's may have.
NESTED = loads(
    b"""<messageSchema package="nested" id="9" version="3" byteOrder="littleEndian">
  <types>
    <composite name="messageHeader">
      <type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
      <type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/>
    </composite>
    <composite name="groupSizeEncoding">
      <type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint8"/>
    </composite>
    <composite name="wide"><type name="blockLength" primitiveType="uint32"/>
      <type name="numInGroup" primitiveType="uint32"/></composite>
    <composite name="bytes8"><type name="length" primitiveType="uint8"/>
      <type name="varData" primitiveType="uint8" length="0"/></composite>
    <composite name="bytes32"><type name="length" primitiveType="uint32"/>
      <type name="varData" primitiveType="uint8" length="0"/></composite>
    <type name="u8" primitiveType="uint8"/><type name="u16" primitiveType="uint16"/>
    <type name="u64" primitiveType="uint64"/>
    <type name="text5" primitiveType="char" length="5"/>
    <type name="mark" primitiveType="char"/>
    <type name="maybe" primitiveType="uint16" presence="optional"/>
    <type name="maybe32" primitiveType="int32" presence="optional"/>
    <type name="maybe64" primitiveType="uint64" presence="optional"/>
  </types>
  <message name="Tree_1" id="1">
    <field name="number" id="1" type="u16" offset="0"/>
    <field name="late" id="2" type="u8" offset="4" sinceVersion="2"/>
    <group name="outer" id="10" dimensionType="groupSizeEncoding">
      <field name="a" id="11" type="u8"/>
      <field name="label" id="12" type="text5"/>
      <group name="inner" id="20" dimensionType="wide">
        <field name="b" id="21" type="maybe32"/>
        <group name="leaf" id="30" dimensionType="groupSizeEncoding" sinceVersion="2">
          <field name="c" id="31" type="u8"/>
        </group>
        <data name="note" id="22" type="bytes32"/>
      </group>
      <group name="empty" id="40" dimensionType="groupSizeEncoding"/>
      <data name="tag" id="13" type="bytes8"/>
    </group>
    <group name="second" id="50" dimensionType="groupSizeEncoding" sinceVersion="3">
      <field name="d" id="51" type="maybe"/>
    </group>
    <data name="first" id="3" type="bytes8"/>
    <data name="last" id="4" type="bytes32" sinceVersion="3"/>
  </message>
  <message name="Flat_2" id="2">
    <field name="big" id="1" type="u64"/>
    <field name="small" id="2" type="mark"/>
    <field name="big_maybe" id="3" type="maybe64"/>
  </message>
  <message name="Gone_3" id="3">
    <field name="name" id="1" type="text5" presence="optional" until="1"/>
    <field name="label" id="2" type="text5" until="1"/>
    <field name="code" id="3" type="u16" until="1"/>
    <field name="maybe" id="4" type="maybe" until="1"/>
    <field name="kept" id="5" type="u8"/>
  </message>
</messageSchema>"""
)


def versions_of(schema: Schema, since: int = 0) -> range:
    """All that were sent, and one that will be; today's comes up first when an example is made simpler."""
    return range(schema.version + 1, max(since, 8 if schema is SCHEMA else 0) - 1, -1)


def concatenate_packets(packets: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One buffer with these packets behind each other: buffer, start, end."""
    end = np.cumsum([len(packet) for packet in packets], dtype=np.int64)
    start = end - np.array([len(packet) for packet in packets], np.int64)
    return np.frombuffer(b"".join(packets), np.uint8), start, end


def packets_of(encoded: EncodedPackets) -> list[bytes]:
    """The packets of an encoding."""
    spans = zip(encoded.start.tolist(), encoded.end.tolist(), strict=True)
    return [encoded.buffer[start:end].tobytes() for start, end in spans]


def decode(packets: Sequence[bytes], schema: Schema = SCHEMA, decoder: Decoder | None = None) -> Batch:
    return (decoder or Decoder(schema)).decode(*concatenate_packets(packets))


def decoded_rows(batch: Batch) -> list[tuple[int, int, int, dict[str, Any]]]:
    """Every row of a batch: packet, msg_index, template, fields."""
    return [(row.packet, row.msg_index, getattr(row.node.block, "template_id", -1), row.fields) for row in rows(batch)]


def fields_of(batch: Batch) -> list[dict[str, Any]]:
    return [fields for *_, fields in decoded_rows(batch)]


def expected(packets: Sequence[bytes], schema: Schema = SCHEMA) -> list[DecodedPacket]:
    return [decode_packet(schema, packet) for packet in packets]


def assert_consistent(batch: Batch) -> None:
    """What must be true of every batch, whatever the bytes were."""
    found = sum(int(batch.rows[node.index]) for node in batch.layout.roots.values())
    whole_packets = sum(entry.template_id is None and entry.offset == 0 for entry in batch.quarantine)
    assert found + len(batch.quarantine) - whole_packets == int(batch.messages.astype(np.int64).sum())
    for template_id in batch.templates:
        table = batch.record_batch(template_id)
        table.validate(full=True)
        assert table.num_rows == int(batch.rows[batch.layout.roots[template_id].index])


def assert_equals_reference(batch: Batch, packets: Sequence[bytes], schema: Schema = SCHEMA) -> None:
    """Rows, headers and journal are those of the reference decoder."""
    assert_consistent(batch)
    wanted = expected(packets, schema)
    assert decoded_rows(batch) == [
        (number, found.msg_index, found.template_id, found.fields)
        for number, packet in enumerate(wanted)
        for found in packet.found
    ]
    headers = (batch.channel, batch.seq_version, batch.sequence, batch.sending_time)
    assert list(zip(*(h.tolist() for h in headers), strict=True)) == [packet.header for packet in wanted]
    assert batch.messages.tolist() == [packet.messages for packet in wanted]
    lines = [
        (e.packet, e.msg_index, e.offset, e.template_id, e.version, e.field, e.reason, e.is_skipped)
        for e in batch.quarantine
    ]
    assert lines == [
        (
            *(number, line.msg_index, line.offset, line.template_id, line.version, line.field),
            REASONS[getattr(k, line.kind)].format(need=line.need, left=line.left),
            line.kind in ("TEMPLATE_UNKNOWN", "SCHEMA_OTHER"),
        )
        for number, packet in enumerate(wanted)
        for line in packet.refused
    ]


def tables(batch: Batch) -> list[pa.RecordBatch]:
    return [batch.record_batch(template_id) for template_id in batch.templates]


def headers(batch: Batch) -> dict[str, np.ndarray]:
    return {name: getattr(batch, name) for name in ("channel", "seq_version", "sequence", "sending_time")}
