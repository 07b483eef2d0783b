"""Decoded messages of both protocols, as commands print them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class DecodedMessage:
    """One decoded message."""

    file: str
    packet: int  # the frame's number in its file, as Wireshark counts
    ts_recv: int | None  # time of capture; a raw stream has none
    ts_send: int | None  # when the exchange sent it: the packet (Binary) or the message (FAST)
    channel: int | None  # FAST has none
    seq_version: int | None
    sequence: int  # of the packet (Binary) or of the message (FAST)
    msg_index: int  # position in the packet
    template_id: int
    name: str
    fields: dict[str, Any]
    fix: Callable[[], Iterable[tuple[int, str]]]

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "fix"}


@dataclass(frozen=True)
class QuarantineEntry:
    """A message, or a part of a packet, that is quarantined."""

    file: str
    packet: int | None
    msg_index: int | None
    offset: int
    template_id: int | None
    version: int | None
    field: str | None
    reason: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        location = [f"packet {self.packet}"] if self.packet is not None else []
        location.append(f"byte {self.offset}")
        if self.template_id is not None:
            location.append(f"template {self.template_id}")
        return f"{self.file}: {', '.join(location)}: {f'{self.field}: ' if self.field else ''}{self.reason}"


class DecodedBatch(Protocol):
    """Some packets of a file, decoded."""

    def messages(self, names: bool) -> Iterator[DecodedMessage]:
        """In wire order."""
        ...

    def tables(self, limit: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
        """By template, of the first `limit` messages in wire order, with columns of their source (file, packet …)."""
        ...

    @property
    def count(self) -> int:
        """The number of messages."""
        ...

    def quarantine(self) -> Iterator[QuarantineEntry]: ...

    def skip_reasons(self) -> Iterator[str]:
        """The reason of each message that was skipped."""
        ...

    def anomalies(self) -> Iterator[str]:
        """The rules broken by messages that were decoded nevertheless."""
        ...


def with_source_columns(
    file: str, columns: dict[str, NDArray[Any]], table: pa.RecordBatch, replaced: Iterable[str]
) -> pa.RecordBatch:
    """A table of messages with columns of their source in front, instead of the `replaced` ones."""
    kept_columns = [i for i, name in enumerate(table.schema.names) if name not in set(replaced)]
    files = pa.DictionaryArray.from_arrays(np.zeros(len(table), np.int32), [file])
    arrays = {"file": files, **{name: pa.array(column) for name, column in columns.items()}}
    context = [pa.field(name, array.type, nullable=False) for name, array in arrays.items()]
    schema = pa.schema(context + [table.schema.field(i) for i in kept_columns], table.schema.metadata)
    return pa.RecordBatch.from_arrays([*arrays.values(), *(table.column(i) for i in kept_columns)], schema=schema)
