"""Messages → columns.

    decoder = Decoder(load())
    batch = decoder.decode(buffer, start, end)      # messages as (start, end) within one buffer
    batch.record_batch(152)                         # MDIncrementalRefresh_152
    batch.quarantine                                # rejected messages, and anomalies of the others

A batch owns its memory for as long as anything refers to it; memory that nothing refers to any more is reused.
Templates as the exchange writes them have generated code, all others the interpreter; one with a dynamic template
reference is read by the reference reader, message by message, into the same columns. All agree.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from umdf.buffers import buffer_address
from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.decode.batch import Batch, QuarantineRow
from umdf.wire.fast.decode.codegen import can_generate, is_worth_generating
from umdf.wire.fast.decode.codegen_cache import GeneratedDecode, load_generated
from umdf.wire.fast.decode.column_store import ColumnStore
from umdf.wire.fast.decode.messages_kernel import interpret_messages
from umdf.wire.fast.decode.program import Program
from umdf.wire.fast.decode.reference_rows import ReferenceRows
from umdf.wire.fast.decode.validity_kernel import build_validity, copy_text
from umdf.wire.fast.layout import Layout, Node, has_dynamic_reference
from umdf.wire.fast.loader import load
from umdf.wire.fast.reference.dictionary import Reset
from umdf.wire.fast.reference.transfer_encoding import Limits, write_unsigned
from umdf.wire.fast.templates import TemplateSet

INITIAL_QUARANTINE_ROWS = 64
INITIAL_SCRATCH_BYTES = 4096
OUTSIDE_BUFFER = "a message lies outside the buffer"


class Decoder:
    """Decodes batches of messages by one template set. Not thread-safe: use one per thread.

    `reset`: when dictionaries are reset: before each message, as in this feed, or never. With kept dictionaries, later
    messages cannot be trusted after an error: decoding starts with empty dictionaries, as with a new reader.
    `generated` are the ids of templates to generate code for if possible, by default those where it is worthwhile;
    the first message of such a template waits for the compilation, unless `warm` or another process had it compiled.
    """

    def __init__(
        self,
        templates: TemplateSet,
        reset: Reset = "message",
        limits: Limits | None = None,
        *,
        generated: Collection[int] | None = None,
        validity: bool = True,
    ) -> None:
        self.templates = templates
        self.layout = layout = Layout(templates)
        self.program = Program(layout)
        self.reset: Reset = reset
        self.limits = limits or Limits()
        self._validity = validity
        self._slots = np.zeros((len(templates.slots) + 1, k.SLOT), np.int64)
        self._slots_saved = self._slots.copy()
        self._first_column = [layout.first_column(node) for node in layout.nodes]
        # All tables that hold addresses of columns are in one array, so that moving a node's columns is one assignment.
        self._tables, (self._nodes, self._texts, self._lists, self._columns, self._code) = _one_array(
            layout.node_table(),
            np.zeros((len(layout.text_columns) + 1, k.TEXT), np.int64),
            np.zeros((len(layout.lists) + 1, k.LIST), np.int64),
            np.zeros(sum(len(node.columns) for node in layout.nodes) + 1, np.int64),
            self.program.table(),
        )
        self._code_address: int = self._code.ctypes.data
        self._constants = np.frombuffer(bytes(self.program.constants) + bytes(k.TEXT_SLACK), np.uint8)
        self._programs = np.zeros((len(layout.roots) + 1, k.PROGRAM), np.int64)
        self._stack = np.zeros(k.FRAME * k.MAX_FRAMES, np.int64)
        self._quarantine = np.empty((INITIAL_QUARANTINE_ROWS, k.QUARANTINE_ROW), np.int64)
        self._scratch = np.zeros(INITIAL_SCRATCH_BYTES, np.uint8)
        self._block = np.empty(64, np.uint64)
        self._arguments = np.zeros(k.ARGUMENTS, np.int64)
        self._arguments_address: int = self._arguments.ctypes.data
        self._block_address: int = self._block.ctypes.data
        self._stores = [ColumnStore(node) for node in layout.nodes]
        self._active_stores: list[ColumnStore] = []
        self._used_stores: list[ColumnStore] = []  # of the last batch, which may still refer to their memory
        self._address_words: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}  # by node: words, offsets
        self._retained_memory: list[object] = []  # may still hold kept previous values
        self._previous_texts = np.zeros(0, np.uint8)
        self._reference_quarantine: list[QuarantineRow] = []
        self._dynamic = {tid for tid, root in layout.roots.items() if has_dynamic_reference(root.segment)}
        # With a kept dictionary the reference reader must have seen every message before its own.
        self._always_reference = bool(self._dynamic) and reset == "never"
        self._generated: dict[int, GeneratedDecode] = {}
        self._link_tables()
        rows = self._stores, self._nodes, self._texts, self._grow_store
        self._reference_rows = ReferenceRows(layout, reset, self.limits, *rows)
        if reset == "message":
            self._select_generated(generated)

    def _link_tables(self) -> None:
        """Turn the numbers of the tables into addresses, once."""
        layout, code = self.layout, self._code
        nodes, texts, lists = self._nodes.ctypes.data, self._texts.ctypes.data, self._lists.ctypes.data
        for node in layout.nodes:
            row = self._nodes[node.index]
            first = next((column.text for column in node.texts), 0)
            row[k.N_TEXTS], row[k.N_TEXTS_END] = (texts + 8 * k.TEXT * (first + i) for i in (0, len(node.texts)))
            first = next((item.number for item in node.lists), 0)
            row[k.N_LISTS], row[k.N_LISTS_END] = (lists + 8 * k.LIST * (first + i) for i in (0, len(node.lists)))
        for _, item in layout.lists:
            self._lists[item.number, k.L_CHILD] = nodes + 8 * k.NODE * item.child
        code[:, k.I_SLOT] = self._slots.ctypes.data + 8 * k.SLOT * np.maximum(code[:, k.I_SLOT], 0)
        is_text, is_sequence = code[:, k.I_OP] >= k.TEXTUAL, code[:, k.I_OP] == k.SEQUENCE
        code[is_text, k.I_TEXT] = texts + 8 * k.TEXT * code[is_text, k.I_TEXT]
        code[is_text, k.I_INITIAL] += self._constants.ctypes.data
        code[is_sequence, k.I_TEXT] = nodes + 8 * k.NODE * code[is_sequence, k.I_TEXT]
        for (template_id, root), row in zip(layout.roots.items(), self._programs, strict=False):
            row[k.P_START] = code.ctypes.data + 8 * k.INSTRUCTION * self.program.starts[template_id]
            below = list(layout.descendants(root))
            numbers = [column.text for node in below for column in node.texts]
            row[k.P_ROOT], row[k.P_NODES_END] = (nodes + 8 * k.NODE * i for i in (root.index, root.index + len(below)))
            row[k.P_TEXTS] = texts + 8 * k.TEXT * min(numbers, default=0)
            row[k.P_TEXTS_END] = row[k.P_TEXTS] + 8 * k.TEXT * len(numbers)
            row[k.P_BITS], row[k.P_ID] = root.segment.bits + 1, template_id
            row[k.P_REFERENCE] = template_id in self._dynamic
        size = 1 << (2 * len(layout.roots) + 1).bit_length()
        self._program_index = np.full((size, 2), -1, np.int64)
        for number, template_id in enumerate(layout.roots):
            slot = template_id % size
            while self._program_index[slot, 0] >= 0:
                slot = (slot + 1) % size
            self._program_index[slot] = template_id, self._programs[number].ctypes.data
        # Which lines of code write to which column of a node.
        self._writes: list[list[tuple[int, int, int]]] = [[] for _ in layout.nodes]
        for number, line in enumerate(self.program.code):
            if line.column is not None and not line.column.is_text:
                self._writes[line.node].append((number, k.I_VALUES, line.column.number))
            if line.exponents is not None:
                self._writes[line.node].append((number, k.I_EXPONENTS, line.exponents.number))
        limits, arguments = self.limits, self._arguments
        for slot, array in (
            (k.NODES, self._nodes),
            (k.TEXTS, self._texts),
            (k.LISTS, self._lists),
            (k.COLUMNS, self._columns),
            (k.INSTRUCTIONS, code),
            (k.SLOTS, self._slots),
            (k.SLOTS_SAVED, self._slots_saved),
            (k.PROGRAMS, self._programs),
            (k.PROGRAM_INDEX, self._program_index),
            (k.STACK, self._stack),
            (k.QUARANTINE, self._quarantine),
            (k.SCRATCH, self._scratch),
        ):
            arguments[slot] = array.ctypes.data
        arguments[k.PROGRAM_INDEX_SIZE], arguments[k.SLOT_COUNT] = size, len(self.templates.slots)
        arguments[k.NODE_COUNT], arguments[k.QUARANTINE_CAPACITY] = len(layout.nodes), len(self._quarantine)
        arguments[k.SCRATCH_SIZE], arguments[k.KEEP_DICTIONARY] = len(self._scratch), self.reset == "never"
        arguments[k.EPOCH], arguments[k.TEMPLATE_ID] = 1, -1
        arguments[k.MAX_PRESENCE_BYTES : k.MAX_COMBINED_BYTES + 1] = (
            limits.presence_map_bytes,
            limits.integer_bytes,
            limits.entries,
            limits.empty_entries,
            limits.nesting,
            limits.combined_bytes,
        )

    def _select_generated(self, template_ids: Collection[int] | None) -> None:
        """Let the interpreter stop at messages of templates with generated code."""
        limits = self.limits
        if limits.presence_map_bytes < 9 or limits.integer_bytes < 10 or limits.nesting < k.MAX_FRAMES:
            return
        for number, (template_id, root) in enumerate(self.layout.roots.items()):
            chosen = is_worth_generating(self.layout, root) if template_ids is None else template_id in template_ids
            self._programs[number, k.P_GENERATED] = chosen and can_generate(root)

    def _load_generated(self, template_id: int) -> GeneratedDecode | None:
        """The generated code of a template at its first message."""
        number = list(self.layout.roots).index(template_id)
        code = load_generated(self.layout, self.layout.roots[template_id])
        if code is None:
            self._programs[number, k.P_GENERATED] = 0
        else:
            self._generated[template_id] = code
        return code

    def reserve_message(self, template_id: int, max_bytes: int) -> Batch:
        """Reserve memory for one message of a template at a time, of at most so many bytes, so that kernels can decode
        it (`messages_kernel.interpret_one`) instead of `decode`, which must not be called any more. The batch has the
        memory of the last such message."""
        assert self.reset == "message"
        for node in self.layout.descendants(self.layout.roots[template_id]):
            self._grow_store(node, None, 0)
        self._scratch = np.zeros(max(len(self._scratch), max_bytes + k.SLACK), np.uint8)
        self._arguments[k.SCRATCH], self._arguments[k.SCRATCH_SIZE] = self._scratch.ctypes.data, len(self._scratch)
        self._used_stores = self._active_stores
        return Batch(self, 1, [0] * len(self.layout.nodes))

    @property
    def kernel_tables(self) -> tuple[int, int]:
        """The addresses that `interpret_one` takes."""
        return self._arguments_address, self._block_address

    def node_table(self, node: Node) -> int:
        """The address of a node's table (`tables_kernel.N_ROWS` …), for kernels."""
        return int(self._nodes[node.index].ctypes.data)

    def decode(self, buffer: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> Batch:
        """Decode the messages buffer[start[i]:end[i]]."""
        assert buffer.flags.c_contiguous and len(start) == len(end)
        start, end = np.ascontiguousarray(start, np.int64), np.ascontiguousarray(end, np.int64)
        arguments, messages = self._arguments, len(start)
        self._buffer, self._starts, self._ends = buffer, start, end
        spans = buffer_address(start), buffer_address(end), messages
        arguments[k.BUFFER : k.MESSAGES + 1] = buffer_address(buffer), len(buffer), *spans
        self._nodes[:, k.N_ROWS] = 0
        self._texts[:, k.T_USED] = 0
        arguments[k.QUARANTINE_ROWS] = 0
        self._reference_quarantine = []
        for store in self._used_stores:
            if store.start_batch():
                self._set_addresses(store)
        first = 0
        while first < messages:
            first = (
                self._decode_with_reference(first, None) if self._always_reference else self._advance(first, messages)
            )
        if self._validity:
            build_validity(self._arguments_address, self._block_address)
        rows = self._nodes[:, k.N_ROWS].tolist()
        self._used_stores = [store for store in self._active_stores if rows[store.node.index]]
        batch = Batch(self, messages, rows)
        if self.reset == "never":
            self._save_previous_texts()
        return batch

    def _advance(self, first: int, messages: int) -> int:
        """Decode from this message on, as far as one decoder goes; returns the next message."""
        arguments = self._arguments
        arguments[k.FIRST], arguments[k.FULL] = first, k.NOTHING_FULL
        arguments[k.MESSAGES], arguments[k.USE_GENERATED] = messages, 1
        reached = interpret_messages(self._arguments_address)
        if reached == messages or self._grow_if_full():
            return reached
        template_id = int(arguments[k.CURRENT_TEMPLATE])
        arguments[k.FIRST] = reached
        code = self._generated.get(template_id)
        if code is None:
            if template_id in self._dynamic:
                return self._decode_with_reference(reached, template_id)
            code = self._load_generated(template_id)
            if code is None:
                return reached
        after = code(self._arguments_address)
        if after == reached:
            # Not the usual case: the interpreter decodes this message.
            arguments[k.MESSAGES], arguments[k.USE_GENERATED] = reached + 1, 0
            after = interpret_messages(self._arguments_address)
            self._grow_if_full()
        return after

    def _decode_with_reference(self, message: int, template_id: int | None) -> int:
        """One message by the reference reader; returns the next."""
        start, end = int(self._starts[message]), int(self._ends[message])
        if not 0 <= start <= end <= len(self._buffer):
            raise ValueError(OUTSIDE_BUFFER)
        data = self._buffer[start:end].tobytes()
        self._reference_quarantine += self._reference_rows.decode(message, template_id, data)
        return message + 1

    def _set_addresses(self, store: ColumnStore) -> None:
        """Pass the addresses of this node's columns to the kernels."""
        assert store.memory is not None
        words, offsets = self._address_words[store.node.index]
        self._tables[words] = offsets + store.memory.address

    def _find_address_words(self, store: ColumnStore) -> None:
        """The words of the tables that hold addresses of this node's columns, and how far each is from its memory."""
        table, node = store.layout, store.node
        places: list[tuple[NDArray[np.int64], int]] = []  # a word as an array of one
        row = self._nodes[node.index]
        row[k.N_CAPACITY] = table.capacity
        for word, offset in ((k.N_MASKS, table.masks), (k.N_BITMAPS, table.bitmaps), (k.N_MESSAGE, table.message)):
            places.append((row[word:], offset))
        for column in node.texts:
            text = self._texts[column.text]
            text[k.T_CAPACITY] = table.text_capacity[column.number]
            places.append((text[k.T_OFFSETS :], table.values[column.number]))
            places.append((text[k.T_BYTES :], table.texts[column.number]))
        for item, offset in zip(node.lists, table.lists, strict=True):
            places.append((self._lists[item.number, k.L_OFFSETS :], offset))
        first = self._first_column[node.index]
        places += [(self._columns[first + number :], offset) for number, offset in enumerate(table.values)]
        for line, word, column in self._writes[node.index]:
            places.append((self._code[line, word:], table.values[column]))
        start = self._tables.ctypes.data
        words = np.array([(array.ctypes.data - start) // 8 for array, _ in places], np.int64)
        self._address_words[node.index] = words, np.array([offset for _, offset in places], np.int64)

    def _grow_if_full(self) -> bool:
        """Enlarge what the kernel found full; False if it stopped for another reason."""
        arguments = self._arguments
        full, needed = int(arguments[k.FULL]), int(arguments[k.LENGTH])
        if full == k.NOTHING_FULL:
            return False
        if full == k.OUTSIDE_BUFFER:
            raise ValueError(OUTSIDE_BUFFER)
        if full == k.QUARANTINE_FULL:
            self._quarantine = np.concatenate([self._quarantine, np.empty_like(self._quarantine)])
            arguments[k.QUARANTINE], arguments[k.QUARANTINE_CAPACITY] = (
                self._quarantine.ctypes.data,
                len(self._quarantine),
            )
        elif full == k.SCRATCH_FULL:
            self._scratch = np.zeros(2 * (needed + k.SLACK), np.uint8)
            arguments[k.SCRATCH], arguments[k.SCRATCH_SIZE] = self._scratch.ctypes.data, len(self._scratch)
        elif full >= k.TEXT_FULL:
            node, column = self.layout.text_columns[full - k.TEXT_FULL]
            self._grow_store(node, column.number, needed)
        else:
            self._grow_store(self.layout.nodes[full], None, needed)
        return True

    def _grow_store(self, node: Node, column: int | None, needed: int) -> None:
        store, rows = self._stores[node.index], int(self._nodes[node.index, k.N_ROWS])
        used = {text.number: int(self._texts[text.text, k.T_USED]) for text in node.texts}
        if store.memory is None:
            self._active_stores.append(store)
        elif self.reset == "never":
            self._retained_memory.append(store.memory)
        if column is None:
            store.grow_rows(rows, used, needed)
        else:
            store.grow_text(rows, used, column, needed)
        self._find_address_words(store)
        self._set_addresses(store)

    def _save_previous_texts(self) -> None:
        """Move previous values out of a batch's columns, whose memory will be reused, into memory of their own."""
        slots, epoch = self._slots, int(self._arguments[k.EPOCH])
        texts = (slots[:, k.S_STATE] == 4 * epoch + k.ASSIGNED) & (slots[:, k.S_TYPE] >= k.ASCII)
        lengths = np.where(texts, slots[:, k.S_MORE], 0)
        kept = np.zeros(int(lengths.sum()) + k.TEXT_SLACK, np.uint8)
        at = kept.ctypes.data
        for number in np.flatnonzero(texts):
            length = int(lengths[number])
            copy_text(int(slots[number, k.S_VALUE]), at, length)
            slots[number, k.S_VALUE] = at
            at += length
        self._previous_texts = kept
        self._retained_memory.clear()


def _one_array(*tables: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """The tables one after the other in one array, and each of them as a view of it."""
    joined = np.concatenate([table.ravel() for table in tables])
    ends = np.cumsum([table.size for table in tables])
    return joined, [joined[end - each.size : end].reshape(each.shape) for end, each in zip(ends, tables, strict=True)]


def warm(templates: TemplateSet | None = None) -> None:
    """Compile the kernels, and the generated code of a template set, by default of the packaged one."""
    decoder = Decoder(templates or load())
    # Messages of only a template id: the generated code is called, and leaves them to the interpreter.
    chosen = decoder._programs[decoder._programs[:, k.P_GENERATED] != 0, k.P_ID].tolist()
    messages = [b"\xc0" + write_unsigned(template_id) for template_id in chosen] or [b"\xc0\x80"]
    end = np.cumsum([len(message) for message in messages], dtype=np.int64)
    decoder.decode(np.frombuffer(b"".join(messages), np.uint8), np.concatenate([[0], end[:-1]]), end)
    copy_text(decoder._arguments_address, decoder._arguments_address, 0)


__all__ = ["Batch", "Decoder", "QuarantineRow"]
