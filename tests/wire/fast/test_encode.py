"""The batch encoder writes what the reference writer writes, for any template and any values, and refuses the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from vectors.fast import field, one_field, template
from wire.fast.strategies import streams, template_sets, values_of

from umdf.errors import EncodeError
from umdf.wire.fast.arrow import arrow_schema
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.encode.columns import message_values as row_values
from umdf.wire.fast.encode.encoder import EncodedMessages, Encoder
from umdf.wire.fast.encode.program import EncodeProgram
from umdf.wire.fast.layout import Layout, Node
from umdf.wire.fast.loader import load, loads
from umdf.wire.fast.reference.dictionary import Reset
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import DECIMAL, RANGES, Decimal, DynamicRef, Group, Segment, Sequence, TemplateSet
from umdf.wire.fast.view import fields_of, rows

PACKAGED = load()
Messages = list[tuple[int, dict[str, Any]]]


class Columns:
    """Messages as RecordBatches; those inside others become rows too, in front."""

    def __init__(self, templates: TemplateSet, messages: Iterable[tuple[int, dict[str, Any]]]) -> None:
        self.layout = Layout(templates)
        self.rows: dict[int, list[dict[str, Any]]] = {}
        for number, (template_id, values) in enumerate(messages):
            self.add(number, template_id, values)

    def add(self, number: int, template_id: int, values: dict[str, Any]) -> tuple[int, int]:
        root = self.layout.roots[template_id]
        row = {"message": number, **self.cells(number, root, root.segment, values, "")}
        self.rows.setdefault(template_id, []).append(row)
        return template_id, len(self.rows[template_id]) - 1

    def cells(self, number: int, node: Node, segment: Segment, values: dict[str, Any], prefix: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for instruction in segment.instructions:
            name, value = prefix + instruction.name, values.get(instruction.name)
            if value is None:
                continue
            if isinstance(instruction, Group):
                found[name] = True
                found |= self.cells(number, node, instruction.body, value, f"{name}.")
            elif isinstance(instruction, Sequence):
                child = self.layout.nodes[next(item.child for item in node.lists if item.name == name)]
                found[name] = [self.cells(number, child, child.segment, entry, "") for entry in value]
            elif isinstance(instruction, DynamicRef):
                found[name], found[f"{name}.row"] = self.add(number, value.template.id, value.values)
            elif instruction.type == DECIMAL:
                found[f"{name}.exponent"], found[name] = value
            else:
                found[name] = value
        return found

    def record_batches(self) -> dict[int, pa.RecordBatch]:
        return {
            template_id: pa.RecordBatch.from_pylist(rows, schema=arrow_schema(self.layout, template_id))
            for template_id, rows in self.rows.items()
        }


def messages_of(encoded: EncodedMessages) -> list[bytes]:
    pieces = zip(encoded.start.tolist(), encoded.end.tolist(), strict=True)
    return [encoded.buffer[start:end].tobytes() for start, end in pieces]


def encodable(templates: TemplateSet, messages: Messages, reset: Reset) -> tuple[Messages, list[bytes]]:
    """Those that the reference writer takes, and what it makes of them."""
    writer, kept, written = Writer(templates, reset), [], []
    for template_id, values in messages:
        try:
            written.append(writer.encode(template_id, values))
            kept.append((template_id, values))
        except EncodeError:
            event("not encodable")
    return kept, written


def assert_equals_reference_writer(templates: TemplateSet, messages: Messages, reset: Reset = "message") -> None:
    writer = Writer(templates, reset)
    written = [writer.encode(template_id, values) for template_id, values in messages]
    assert messages_of(Encoder(templates, reset).encode(Columns(templates, messages).record_batches())) == written


@pytest.mark.parametrize("reset", ["message", "never"])
@given(data=st.data())
def test_random_messages_of_random_templates_are_the_plain_writers_bytes(reset: Reset, data: st.DataObject) -> None:
    templates = data.draw(template_sets())
    assert_equals_reference_writer(templates, encodable(templates, data.draw(streams(templates)), reset)[0], reset)


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_what_is_encoded_decodes_to_the_same_columns_and_messages(data: st.DataObject) -> None:
    templates = data.draw(template_sets())
    messages, written = encodable(templates, data.draw(streams(templates)), "message")
    encoded = Encoder(templates).encode(Columns(templates, messages).record_batches())
    batch = Decoder(templates).decode(encoded.buffer, encoded.start, encoded.end)
    expected = [(template_id, fields_of(templates.by_id[template_id].body, values)) for template_id, values in messages]
    assert not batch.quarantine and [(row.template.id, row.fields) for row in rows(batch)] == expected
    again = Encoder(templates).encode({template_id: batch.record_batch(template_id) for template_id in batch.templates})
    assert messages_of(again) == written


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_random_messages_of_the_packaged_templates_are_the_plain_writers_bytes(data: st.DataObject) -> None:
    template_id = data.draw(st.sampled_from(sorted(PACKAGED.by_id)))
    values = values_of(PACKAGED.by_id[template_id].body, PACKAGED)
    messages = [(template_id, message) for message in data.draw(st.lists(values, min_size=1, max_size=3))]
    assert_equals_reference_writer(PACKAGED, messages)


def with_nulls(draw: Any, cells: Any) -> Any:
    """A row, or an entry, that has lost some values."""
    if isinstance(cells, dict):
        kept = {name: cell for name, cell in cells.items() if name == "message" or draw(st.integers(0, 7))}
        return {name: with_nulls(draw, cell) for name, cell in kept.items()}
    if isinstance(cells, list):
        return [with_nulls(draw, entry) if draw(st.integers(0, 9)) else None for entry in cells]
    return cells


def nullable(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_list(kind):
        return kind
    return pa.list_(pa.struct([pa.field(inner.name, nullable(inner.type)) for inner in kind.value_type]))


@given(data=st.data())
def test_rows_with_nulls_are_encoded_or_rejected_as_by_the_reference_writer(data: st.DataObject) -> None:
    templates = data.draw(template_sets(most_templates=1))
    columns = Columns(templates, encodable(templates, data.draw(streams(templates)), "message")[0])
    cells = [with_nulls(data.draw, row) for row in columns.rows.get(1, [])]
    schema = pa.schema([pa.field(each.name, nullable(each.type)) for each in arrow_schema(columns.layout, 1)])
    batch, root, writer = pa.RecordBatch.from_pylist(cells, schema=schema), columns.layout.roots[1], Writer(templates)
    written, refused = list[bytes](), ""
    for row in cells:
        try:
            values = row_values(columns.layout, root, root.segment, row, lambda *_: pytest.fail("no dynamic reference"))
            written.append(writer.encode(1, values))
        except EncodeError as error:
            refused = f"T1, row {len(written)}: {error.reason.removeprefix('T1: ')}"
            break
    try:
        assert messages_of(Encoder(templates).encode({1: batch})) == written and not refused
    except EncodeError as error:
        assert error.reason == refused


def test_the_kernel_encodes_every_template_of_the_exchange() -> None:
    assert EncodeProgram(Layout(PACKAGED)).starts.keys() == PACKAGED.by_id.keys()


def entry(number: int, **more: Any) -> dict[str, Any]:
    """An order of a book, as an incremental message carries it."""
    return {
        "MDUpdateAction": number % 3,
        "MDEntryType": "01"[number % 2],
        "SecurityID": 200_000_000 + number % 5,
        "RptSeq": 1000 + number,
        "MDEntryPx": Decimal(-2, 2500 + number % 7),
        "MDEntryTime": 133_000_000 + number,
        "MDEntrySize": 100 * (1 + number % 9),
        "MDEntryDate": 20261113,
        "OrderID": str(80_000_000_000 + number),
        **more,
    }


def heartbeat(number: int) -> tuple[int, dict[str, Any]]:
    return 144, {"MsgSeqNum": number, "SendingTime": 20261113133000123}


def incremental(number: int, *entries: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 152, {"MsgSeqNum": number, "SendingTime": 20261113133000123, "MDEntries": list(entries)}


def session() -> Messages:
    """Incrementals, snapshots, instruments and heartbeats as a channel sends them."""
    leg = {"LegSymbol": "DOLF27", "LegSecurityID": 5, "LegSecurityType": "FUT", "LegSecurityExchange": "BVMF"}
    leg |= {"LegRatioQty": Decimal(0, 1), "LegSide": 1}
    rule = {
        "StartTickPriceRange": Decimal(-2, 0),
        "EndTickPriceRange": Decimal(-2, 99),
        "TickIncrement": Decimal(-2, 1),
    }
    instruments = [
        {
            "Symbol": f"PETR{number}",
            "SecurityID": 200_000_000 + number,
            "ApplIDs": [{"ApplID": "72", "MDFeedTypes": [{"MDFeedType": "2", "MarketDepth": 0}]}],
            "SecurityAltIDs": [{"SecurityAltID": "BRPETRACNPR6", "SecurityAltIDSource": "4"}],
            "TickRules": [rule] * (number % 3),
            "Legs": [leg] * (number % 2 * 2),
            "SecurityUpdateAction": "A",
            "Product": 5,
            "MinPriceIncrement": Decimal(-2, 1),
            "SecurityDesc": "Petróleo Brasileiro",
        }
        for number in range(7)
    ]
    instrument_list = {"MsgSeqNum": 1, "SendingTime": "20261113-09:00:00.000", "TotNoRelatedSym": 7}
    snapshot = {"MsgSeqNum": 1, "SendingTime": 20261113133000123, "LastMsgSeqNumProcessed": 40, "TotNumReports": 2}
    orders = [
        {"MDEntryType": "01"[number % 2], "MDEntryPx": Decimal(-2, 2500 - number), "MDEntrySize": 100, "OrderID": "7"}
        for number in range(40)
    ]
    underlying = {"UnderlyingSecurityID": 9, "UnderlyingPx": Decimal(-3, 12345)}
    trade = entry(6, MDEntryType="2", TradeID="10", TradeVolume=10**9, TickDirection="0", Currency="BRL")
    return [
        (1149, {**instrument_list, "RelatedSym": instruments}),
        heartbeat(1),
        (153, {**snapshot, "SecurityID": 200_000_001, "MDEntries": orders}),
        (153, {**snapshot, "SecurityID": 200_000_002, "MDEntries": []}),
        incremental(2, *(entry(number) for number in range(5))),
        heartbeat(3),
        incremental(4, trade, entry(7, Underlyings=[underlying, underlying], MDEntryInterestRate=Decimal(-4, -1))),
        incremental(5),
    ]


def test_a_session_is_the_plain_writers_bytes_and_reads_back_from_its_own_columns() -> None:
    messages = session()
    encoder = Encoder(PACKAGED)
    encoded = encoder.encode(Columns(PACKAGED, messages).record_batches())
    assert messages_of(encoded) == encodable(PACKAGED, messages, "message")[1]
    batch = Decoder(PACKAGED).decode(encoded.buffer, encoded.start, encoded.end)
    again = encoder.encode({template_id: batch.record_batch(template_id) for template_id in batch.templates})
    assert messages_of(again) == messages_of(encoded)


def test_a_result_stays_as_it_is_when_the_encoder_goes_on() -> None:
    encoder, batches = Encoder(PACKAGED), [Columns(PACKAGED, [heartbeat(n)]).record_batches() for n in range(2)]
    first = encoder.encode(batches[0])
    before = messages_of(first)
    assert messages_of(encoder.encode(batches[1])) != before == messages_of(first)


def test_no_messages_are_no_bytes() -> None:
    encoded = Encoder(PACKAGED).encode({})
    assert len(encoded.buffer) == len(encoded.start) == len(encoded.end) == 0
    empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(Layout(PACKAGED), 152))
    assert len(Encoder(PACKAGED).encode({152: empty}).buffer) == 0


def test_the_number_of_a_message_is_its_place_among_all_templates() -> None:
    batches = Columns(PACKAGED, [heartbeat(1), incremental(2, entry(1)), heartbeat(3)]).record_batches()
    beats = batches[144].set_column(0, "message", pa.array([900, 5]))
    orders = batches[152].set_column(0, "message", pa.array([77]))
    written = encodable(PACKAGED, [heartbeat(3), incremental(2, entry(1)), heartbeat(1)], "message")[1]
    assert messages_of(Encoder(PACKAGED).encode({144: beats, 152: orders})) == written


@pytest.mark.parametrize(("first", "count"), [(0, 3), (1, 9), (3, 1), (9, 11), (19, 1)])
def test_a_slice_of_a_batch_is_encoded_like_the_same_rows_alone(first: int, count: int) -> None:
    optional = {"TradeCondition": "R X", "MDStreamID": "E", "NumberOfOrders": 3}
    messages = [
        incremental(n, *(entry(n + m, **dict(list(optional.items())[: (n + m) % 4])) for m in range(n % 4)))
        for n in range(20)
    ]
    part = Columns(PACKAGED, messages).record_batches()[152].slice(first, count)
    assert (
        messages_of(Encoder(PACKAGED).encode({152: part}))
        == encodable(PACKAGED, messages, "message")[1][first:][:count]
    )


def test_presence_maps_of_any_width_are_as_short_as_their_last_bit_allows() -> None:
    count = 150
    fields = "".join(field("uInt32", "<copy/>", optional=True, name=f"F{number}") for number in range(count))
    file = loads(template(f'<sequence name="S">{fields}</sequence>{fields.replace("F", "B")}'))
    present = [[], [0], [149], [63, 64, 65], list(range(150)), [6], [7], [55, 56, 57], [], list(range(0, 150, 7))]
    entries = [{f"F{number}": number for number in some} for some in present]
    bodies = [{f"B{number}": 7 for number in some} for some in present]
    messages = [(1, {"S": entries[: number % 11], **body}) for number, body in enumerate(bodies * 2)]
    assert_equals_reference_writer(file, messages)


def test_long_texts_make_the_buffer_grow() -> None:
    file = loads(template(field("string", name="A") + field("byteVector", name="B") + field("uInt32", name="C")))
    lengths = [0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 5000, 2, 70_000, 1]
    messages = [(1, {"A": "x" * length, "B": b"\xff" * (length // 2), "C": length}) for length in lengths]
    assert_equals_reference_writer(file, messages)


INTEGERS = [0, 1, *(2**bits + more for bits in (6, 7, 13, 14, 31, 32, 55, 56, 62, 63, 64) for more in (-2, -1, 0))]


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("operator", ["", "<delta/>", "<copy/>", "<increment/>", '<default value="1"/>'])
@pytest.mark.parametrize("type", ["int32", "uInt32", "int64", "uInt64"])
def test_integers_at_the_ends_of_groups_and_types(type: str, operator: str, optional: bool) -> None:
    low, high = RANGES[type]
    numbers = sorted({sign * number for number in INTEGERS for sign in (1, -1) if low <= sign * number <= high})
    file = loads(template(f'<sequence name="S">{field(type, operator, optional)}</sequence>'))
    # One behind the other, from either end, so that deltas are as large as they get.
    order = [number for pair in zip(numbers, reversed(numbers), strict=True) for number in pair]
    alone = [(1, {"S": [{"Value": number}]}) for number in numbers]
    together = [(1, {"S": [{"Value": number} for number in some]}) for some in (order, numbers)]
    assert_equals_reference_writer(file, [*alone, *together])


def test_columns_of_another_width_are_taken_if_their_values_fit() -> None:
    batch = Columns(PACKAGED, [heartbeat(1), heartbeat(2)]).record_batches()[144]
    column = batch.schema.get_field_index("MsgSeqNum")
    wide = batch.set_column(column, "MsgSeqNum", pa.array([1, 2], pa.int64()))
    assert messages_of(Encoder(PACKAGED).encode({144: wide})) == messages_of(Encoder(PACKAGED).encode({144: batch}))
    with pytest.raises(EncodeError, match=r"\.MsgSeqNum: -1 is outside 0 to 4294967295"):
        Encoder(PACKAGED).encode({144: batch.set_column(column, "MsgSeqNum", pa.array([1, -1], pa.int64()))})


def test_text_that_is_no_utf8_goes_out_as_it_came() -> None:
    file = loads(one_field("unicode"))
    batch = pa.RecordBatch.from_pydict({"message": [0], "Value": pa.array([b"a\xff"], pa.binary())})
    assert messages_of(Encoder(file).encode({1: batch})) == [bytes.fromhex("c0818261ff")]


SHAPE = template(
    field("uInt32", name="A")
    + field("decimal", name="D", optional=True)
    + '<sequence name="S" presence="optional"><string name="T"/><sequence name="Two"><length><constant value="2"/>'
    + '</length><uInt32 name="B"/></sequence></sequence>'
    + '<group name="G" presence="optional"><uInt32 name="C"/></group><uInt32 name="K"><constant value="5"/></uInt32>'
)
GOOD: dict[str, Any] = {"message": 0, "A": 1, "D": 5, "D.exponent": -2, "G": False}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"A": None}, "T, row 1: A: D1: mandatory field is missing"),
        ({"D.exponent": None}, "T, row 1: D: D1: a decimal needs both its mantissa and its exponent"),
        ({"D.exponent": 64}, "T, row 1: D: R1: 5e64 needs an exponent beyond 63"),
        ({"S": [{"T": "é", "Two": [{"B": 1}, {"B": 1}]}]}, "T, row 1: S\\[0\\].T: R3: 'é': holds a character"),
        ({"S": [{"T": "", "Two": [{"B": 1}]}]}, "T, row 1: S\\[0\\].Two: D3: always 2, cannot be 1"),
        (
            {"S": [{"T": "", "Two": [{"B": 1}, {"B": None}]}]},
            "row 1: S\\[0\\].Two\\[1\\].B: D1: mandatory field is missing",
        ),
        ({"S": [None]}, "T, row 1: S\\[0\\]: D1: expected a dict"),
        ({"G": True}, "T, row 1: G.C: D1: mandatory field is missing"),
        ({"K": 6}, "T, row 1: K: D3: always 5, cannot be 6"),
    ],
)
def test_a_value_that_cannot_be_encoded_is_named_with_its_row(more: dict[str, Any], reason: str) -> None:
    file = loads(SHAPE)
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema(Layout(file), 1)])
    encoder = Encoder(file)
    good, bad = (pa.RecordBatch.from_pylist([GOOD, {**GOOD, "message": 1, **row}], schema=schema) for row in ({}, more))
    before = messages_of(encoder.encode({1: good}))
    with pytest.raises(EncodeError, match=reason):
        encoder.encode({1: bad})
    assert messages_of(encoder.encode({1: good})) == before


@pytest.mark.parametrize(
    ("template_id", "columns", "reason"),
    [
        (2, {"message": [0], "Value": [1]}, "unknown template 2"),
        (1, {"Value": [1]}, "T: column message is missing"),
        (1, {"message": [None], "Value": [1]}, "T: column message is missing, or has no value in some row"),
        (1, {"message": [4, 4], "Value": [1, 2]}, "two rows have message 4"),
        (1, {"message": [0], "Value": ["x"]}, "T.Value: 'x' is not an integer from 0 to 4294967295"),
        (1, {"message": [0], "Value": [1], "Volume": [1]}, "T has no field 'Volume'"),
    ],
)
def test_a_batch_of_another_shape_is_refused(template_id: int, columns: dict[str, list[Any]], reason: str) -> None:
    with pytest.raises(EncodeError, match=reason):
        Encoder(loads(one_field("uInt32"))).encode({template_id: pa.RecordBatch.from_pydict(columns)})


def test_a_batch_with_offsets_that_lead_outside_is_refused() -> None:
    offsets = pa.py_buffer(np.array([0, 900, 1], np.int32))
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"x")])
    with pytest.raises(EncodeError, match="has offsets outside its values"):
        Encoder(loads(one_field("string"))).encode({1: pa.RecordBatch.from_pydict({"message": [0, 1], "Value": text})})


def test_a_refused_batch_leaves_kept_dictionaries_as_they_were() -> None:
    encoder = Encoder(loads(one_field("uInt32", "<copy/>")), "never")
    batches = [pa.RecordBatch.from_pydict({"message": range(2), "Value": values}) for values in ([7, 8], [9, None])]
    encoder.encode({1: batches[0]})
    with pytest.raises(EncodeError, match="T, row 1: Value: D1"):
        encoder.encode({1: batches[1]})
    eight = pa.RecordBatch.from_pydict({"message": [0], "Value": [8]})
    assert messages_of(encoder.encode({1: eight})) == [bytes.fromhex("c081")]
