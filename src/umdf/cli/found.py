"""What both protocols' messages look like to a command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class Found:
    """One decoded message."""

    packet: int  # the frame's number in its file, as Wireshark counts
    ts_ns: int  # when it was received
    channel: int | None  # FAST does not say it
    seq_version: int | None
    sequence: int  # of the packet (Binary) or of the message (FAST)
    msg_index: int  # place in the packet
    template_id: int
    name: str
    fields: dict[str, Any]
    fix: Callable[[], Iterable[tuple[int, str]]]

    def as_json(self) -> dict[str, Any]:
        keys = ("packet", "channel", "seq_version", "sequence", "msg_index", "template_id", "name", "fields")
        return {key: getattr(self, key) for key in keys}


@dataclass(frozen=True)
class Fault:
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
        place = [f"packet {self.packet}"] if self.packet is not None else []
        place.append(f"byte {self.offset}")
        if self.template_id is not None:
            place.append(f"template {self.template_id}")
        return f"{self.file}: {', '.join(place)}: {f'{self.field}: ' if self.field else ''}{self.reason}"


class Decoded(Protocol):
    """Some packets of a file, decoded."""

    def messages(self, names: bool) -> Iterator[Found]:
        """In wire order."""
        ...

    def tables(self, most: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
        """By template, of the first `most` messages in wire order, with columns that say where they came from."""
        ...

    @property
    def count(self) -> int:
        """How many messages there are."""
        ...

    def faults(self) -> Iterator[Fault]: ...

    def skipped(self) -> Iterator[str]:
        """Why messages were passed over, a reason each."""
        ...

    def reported(self) -> Iterator[str]:
        """What was odd about messages that were decoded."""
        ...


def with_context(columns: dict[str, NDArray[Any]], table: pa.RecordBatch, own: Iterable[str]) -> pa.RecordBatch:
    """A table of messages with columns in front that say where each came from, instead of its `own` ones."""
    kept = [i for i, name in enumerate(table.schema.names) if name not in set(own)]
    fields = [pa.field(name, pa.from_numpy_dtype(column.dtype), nullable=False) for name, column in columns.items()]
    schema = pa.schema(fields + [table.schema.field(i) for i in kept], table.schema.metadata)
    arrays = [pa.array(column) for column in columns.values()]
    return pa.RecordBatch.from_arrays(arrays + [table.column(i) for i in kept], schema=schema)
