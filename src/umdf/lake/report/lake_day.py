"""One trading date of a lake, for reports: the requested columns, and which tables have rows.

Invariant: a missing table is distinguished from an empty one.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from umdf.errors import ConfigError, UmdfError
from umdf.lake.commit.lake_snapshot import LakeSnapshot
from umdf.lake.parquet.file_reader import TableFiles
from umdf.lake.schemas import PARTITION, tables

if TYPE_CHECKING:
    import pyarrow.dataset as ds

MAX_DATES_LISTED = 12


def trading_dates(snapshot: LakeSnapshot) -> list[date]:
    """All trading dates of the lake, oldest first."""
    texts = {
        add.partition["trading_date"]
        for name, known in tables().items()
        if "trading_date" in known.partition
        for add in snapshot.adds(name)
    }
    return sorted(date.fromisoformat(text) for text in texts if text)


class LakeDay:
    def __init__(self, snapshot: LakeSnapshot, trading_date: date | None = None) -> None:
        """Without a date, the lake's last one."""
        dates = trading_dates(snapshot)
        if not dates:
            root = snapshot.paths.root
            raise UmdfError(f"the lake {root} is empty", f"load captures with `umdf ingest CAPTURE… --lake {root}`")
        if trading_date is not None and trading_date not in dates:
            raise ConfigError(f"no data for {trading_date}", f"available dates: {_format_dates(dates)}")
        self.snapshot = snapshot
        self.date = trading_date or dates[-1]

    def has(self, name: str) -> bool:
        return bool(self.snapshot.adds(name, trading_date=self.date))

    def dataset(self, name: str) -> TableFiles:
        return self.snapshot.arrow_dataset(name, trading_date=self.date)

    def rows(self, name: str, columns: str, where: ds.Expression | None = None) -> pa.Table:
        """The columns (names separated by spaces) of the rows for which `where` is true."""
        return self.dataset(name).to_table(columns=columns.split(), filter=where)

    def channels(self) -> tuple[int, ...]:
        channel_ids = {
            int(channel)
            for name, known in tables().items()
            if known.partition == PARTITION
            for add in self.snapshot.adds(name, trading_date=self.date)
            if (channel := add.partition["channel_id"]) is not None
        }
        return tuple(sorted(channel_ids))


def has_flag(flag: int) -> ds.Expression:
    """A filter on the column `flags`."""
    return pc.bit_wise_and(pc.field("flags"), flag) != 0  # pyright: ignore[reportAttributeAccessIssue]


def _format_dates(dates: list[date]) -> str:
    if len(dates) <= MAX_DATES_LISTED:
        return ", ".join(map(str, dates))
    return f"{len(dates)} dates from {dates[0]} to {dates[-1]}, the last ones {', '.join(map(str, dates[-3:]))}"
