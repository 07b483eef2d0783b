"""The current values: the latest row of every key of a family (a statistic of a venue, a price band of a type).

Invariant: a row completely replaces the previous row of its key, and a deletion or an operation removes it.
Values stay int64 inside, whatever their column's type: the smallest number of a type is still that number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.market.families import Column, Family
from umdf.market.rows import Numbers, Rows
from umdf.market.statistics_kernel import (
    ACTIONS,
    ARGUMENTS,
    COLUMN,
    COLUMN_COUNT,
    COLUMNS,
    HASH,
    HASH_MASK,
    HEAD,
    I8,
    I16,
    I32,
    I64,
    IDS,
    KEYS,
    KEYS_2,
    KINDS,
    MASKS,
    OP,
    OP_COUNT,
    OPS,
    ORDER,
    ROW,
    ROWS,
    S_ID,
    S_KEY,
    S_NEXT,
    S_PRESENT,
    S_VALUES,
    SLOT_CAPACITY,
    SLOT_COUNT,
    SLOT_SIZE,
    SLOTS,
    TEXT_8,
    TOUCHED,
    U8,
    find_heads,
    fold_rows,
    rebuild_hash,
)

INITIAL_SLOTS = 256
_KIND_OF_DTYPE = {"int64": I64, "int32": I32, "int16": I16, "int8": I8, "uint8": U8}
Operations = NDArray[np.int64]  # rows of OPERATION numbers, in wire order (statistics_kernel)


class SlotTable:
    """The memory of a fold or a tape: slots, the hash that finds them, and the table of arguments."""

    def __init__(self, slot_size: int, arguments: int = ARGUMENTS) -> None:
        self.arguments = np.zeros(arguments, np.int64)
        self.address = buffer_address(self.arguments)
        self.memory: NDArray[np.int64] = np.zeros((0, slot_size), np.int64)
        self.arguments[SLOT_SIZE] = slot_size
        self._resize(INITIAL_SLOTS)

    @property
    def used_slots(self) -> NDArray[np.int64]:
        return self.memory[: int(self.arguments[SLOT_COUNT])]

    def grow_if_full(self) -> None:
        """A new key may need two slots: its own, and its instrument's head."""
        if self.arguments[SLOT_COUNT] + 2 > len(self.memory):
            self._resize(2 * len(self.memory))

    def restore(self, used: NDArray[np.int64]) -> None:
        self.arguments[SLOT_COUNT] = 0
        self._resize(max(INITIAL_SLOTS, 1 << len(used).bit_length()))
        self.memory[: len(used)] = used
        self.arguments[SLOT_COUNT] = len(used)
        rebuild_hash(self.address)

    def _resize(self, capacity: int) -> None:
        used, self.memory = self.used_slots, np.zeros((capacity, self.memory.shape[1]), np.int64)
        self.memory[: len(used)] = used
        self.hash = np.zeros(2 * capacity, np.int32)
        self.touched = np.zeros(capacity, np.int64)
        for argument, value in (
            (SLOTS, buffer_address(self.memory)),
            (SLOT_CAPACITY, capacity),
            (HASH, buffer_address(self.hash)),
            (HASH_MASK, 2 * capacity - 1),
        ):
            self.arguments[argument] = value
        rebuild_hash(self.address)

    def head_slots(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The head slots of some instruments; -1 for one that has none."""
        ids, slot_numbers = np.ascontiguousarray(ids, np.int64), np.empty(len(ids), np.int64)
        if len(ids):
            self.arguments[ROWS], self.arguments[IDS], self.arguments[TOUCHED] = (
                len(ids),
                buffer_address(ids),
                buffer_address(slot_numbers),
            )
            find_heads(self.address)
        return slot_numbers

    def slots_of(self, instrument_id: int) -> Iterator[NDArray[np.int64]]:
        """The slots of an instrument."""
        head = int(self.head_slots(np.array([instrument_id], np.int64))[0])
        number = int(self.memory[head, S_NEXT]) if head >= 0 else -1
        while number >= 0:
            yield self.memory[number]
            number = int(self.memory[number, S_NEXT])


class InstrumentIndex:
    """Assigns numbers to instruments, in the order given, and looks them up."""

    def __init__(self, ids: NDArray[np.int64]) -> None:
        self._slots = SlotTable(S_VALUES)
        slots = np.zeros((len(ids), S_VALUES), np.int64)
        slots[:, S_ID], slots[:, S_KEY], slots[:, S_NEXT] = ids, HEAD, -1
        self._slots.restore(slots)

    def lookup(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of some instruments; -1 for an unknown one."""
        return self._slots.head_slots(ids)


class LatestRows:
    """The latest row of every (instrument, key)."""

    def __init__(self, family: Family, columns: tuple[Column, ...], masks: Mapping[int, int]) -> None:
        self.family, self.columns = family, columns
        self._slots = SlotTable(S_VALUES + len(columns))
        self._masks = np.zeros(KINDS, np.int64)  # by kind of operation: the types that it clears
        for kind, mask in masks.items():
            self._masks[kind] = mask
        self._columns = np.zeros((len(columns), COLUMN), np.int64)
        for c, column in enumerate(columns):
            kind = TEXT_8 if column.is_text else _KIND_OF_DTYPE[column.dtype.name]
            self._columns[c, 1:3] = kind, 0 if column.is_text else column.null

    def apply(self, rows: Rows, keys: Numbers, keys_2: Numbers | None, ops: Operations) -> None:
        """Apply rows, with the operations between them."""
        kept_alive: list[Any] = [keys, keys_2, ops]  # keeps the arrays alive while the kernel reads them
        arguments = self._slots.arguments

        def set_address(argument: int, array: Numbers | None) -> None:
            kept_alive.append(array)
            arguments[argument] = 0 if array is None or not len(array) else buffer_address(array)

        for c, column in enumerate(self.columns):
            if column.is_text:
                offsets, content = rows.texts.get(column.name, (None, None))
                kept_alive += [offsets, content]
                self._columns[c, 0] = 0 if content is None or not len(content) else buffer_address(content)
                self._columns[c, 3] = 0 if offsets is None else buffer_address(offsets)
                self._columns[c, 4] = 0 if content is None else len(content)
                continue
            values = rows.columns.get(column.name)
            if values is not None:
                values = np.ascontiguousarray(values, column.dtype)
                kept_alive.append(values)
            self._columns[c, 0] = 0 if values is None or not len(values) else buffer_address(values)
        set_address(IDS, np.ascontiguousarray(rows.column("instrument_id"), np.int64))
        set_address(ORDER, rows.wire_order)
        actions = rows.columns.get("action")
        set_address(ACTIONS, None if actions is None else np.ascontiguousarray(actions, np.uint8))
        set_address(KEYS, keys)
        set_address(KEYS_2, keys_2)
        set_address(OPS, ops)
        set_address(MASKS, self._masks)
        set_address(COLUMNS, self._columns)
        arguments[ROWS], arguments[ROW], arguments[OP_COUNT], arguments[OP] = len(rows), 0, len(ops), 0
        arguments[COLUMN_COUNT] = len(self.columns)
        done = 0
        while not done:
            self._slots.grow_if_full()
            arguments[TOUCHED] = buffer_address(self._slots.touched)
            done = fold_rows(self._slots.address)

    def values_of(self, instrument_id: int) -> list[tuple[int, dict[str, int]]]:
        """Key and values of an instrument's current rows; absent values are left out."""
        rows = []
        for slot in self._slots.slots_of(instrument_id):
            if slot[S_PRESENT]:
                values = zip(self.columns, slot[S_VALUES:].tolist(), strict=True)
                present_values = {
                    column.name: value for column, value in values if column.is_text or value != column.null
                }
                rows.append((int(slot[S_KEY]), present_values))
        return sorted(rows, key=lambda item: item[0])

    def present_keys(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Instrument and key of every current row."""
        used = self._slots.used_slots
        used = used[used[:, S_PRESENT] == 1]
        return used[:, S_ID], used[:, S_KEY]

    def present_slots(self) -> NDArray[np.int64]:
        """The used slots, by instrument and key."""
        used = self._slots.used_slots
        used = used[used[:, S_PRESENT] == 1]
        return used[np.lexsort((used[:, 2], used[:, S_KEY], used[:, S_ID]))]

    def export(self) -> NDArray[np.int64]:
        return self._slots.used_slots.copy()

    def restore(self, used: NDArray[np.int64]) -> None:
        self._slots.restore(used)


def unpack_text_8(word: int) -> str:
    """A short text that a slot holds as a number."""
    return word.to_bytes(8, "little", signed=True).rstrip(b"\0").decode("utf-8", "replace")
