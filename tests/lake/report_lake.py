"""A lake of a few rows that are written by hand, for the tests of the day report."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from umdf.lake.books.state_record import HEADER, HEADER_FIELDS
from umdf.lake.commit.ledger import LedgerEntry
from umdf.lake.commit.log import Change
from umdf.lake.commit.writer import open_writer
from umdf.lake.parquet.data_files import sort_rows
from umdf.lake.parquet.file_writer import write_file
from umdf.lake.schemas import table
from umdf.market.families import MAYBE_BAD_BOOK

DAY = datetime.date(2026, 11, 13)
OTHER_DAY = datetime.date(2026, 11, 12)
NINE = 1_794_574_800 * 10**9  # 10:00:00 in São Paulo
DIGEST = f"blake2b-256:{7:064x}"
Rows = Mapping[str, Sequence[dict[str, Any]]]  # of tables, each row with its channel


def write_lake(root: Path, rows: Rows, day: datetime.date | None = DAY) -> None:
    """A commit; what a row does not say is absent, or 0 where something must be said."""
    with open_writer(root) as writer:
        changes = []
        for name, own in rows.items():
            for channel in sorted({row.get("channel_id") or 0 for row in own}):
                some = [row for row in own if (row.get("channel_id") or 0) == channel]
                partition = {"trading_date": day, "channel_id": channel or None}
                added = write_file(root, name, writer.stamp, _table(name, some), partition)
                assert added is not None
                changes.append(Change(name, (added,)))
        known = LedgerEntry(DIGEST, 1000, "day.pcap", day, 72, "A", "incremental")
        writer.commit(changes, [known] if day else [])


def _table(name: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    schema = table(name).file_schema
    filled = [{field.name: row.get(field.name, _least(field)) for field in schema} for row in rows]
    return sort_rows(pa.Table.from_pylist(filled, schema), table(name))


def _least(field: pa.Field) -> Any:
    empty = "" if pa.types.is_string(field.type) else [] if pa.types.is_list(field.type) else 0
    return None if field.nullable else empty


def quality(channel: int, line: str, **more: Any) -> dict[str, Any]:
    about = {"channel_id": channel, "line": line, "stream": "incremental", "packets": 100, "ts_first": NINE}
    return about | {"ts_last": NINE + 10 * 10**9} | more


def gap(channel: int, first: int, last: int, **more: Any) -> dict[str, Any]:
    about = {"channel_id": channel, "stream": "incremental", "seq_version": 1, "cause": "loss", "ts_opened": NINE}
    return about | {"first_sequence": first, "last_sequence": last, "missing": last - first + 1} | more


def state(channel: int, instrument: int, *, lending: int = 0, flags: int = 0, sequence: int = 9, **head: int) -> Any:
    said = {"lending": lending} | head
    content = HEADER.pack(*(said.get(name, 0) for name in HEADER_FIELDS))
    about = {"channel_id": channel, "instrument_id": instrument, "seq_version": 1, "sequence": sequence}
    return about | {"flags": flags, "content": content}


def bad_state(channel: int, instrument: int, **head: int) -> Any:
    return state(channel, instrument, flags=MAYBE_BAD_BOOK, **head)


def traded(channel: int, instrument: int, symbol: str, trades: int, size: int, price: str) -> dict[str, Any]:
    """An instrument whose trades were all of one size and one price."""
    number = int(Decimal(price) * 10**9)
    return {
        "channel_id": channel, "instrument_id": instrument, "symbol": symbol, "trade_count": trades,
        "volume": trades * size, "financial_volume": Decimal(price) * trades * size, "events": 10 * trades,
        "high": number, "low": number, "close": number,
    }  # fmt: skip
