"""Bytes → columns, for every template, in one table-driven kernel.

Packets are taken in passes, small enough to stay in the cache. A pass is walked first, which leaves for every node (a
message's root block, or a group) a list of where its rows start; then each column is gathered from those offsets in one
tight loop. A node with few rows waits for more of them until the end of several passes: starting the loops of its
columns would cost more than they do.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel
from umdf.wire.sbe.gather_kernel import build_bitmap, fill, gather_node
from umdf.wire.sbe.tables_kernel import (
    ANY_TRACKED,
    BASE,
    C_BITMAP,
    C_KIND,
    C_NULL,
    C_NULLABLE,
    C_RETIRED,
    C_SIZE,
    C_TRACKED,
    C_VALUES,
    COLUMN,
    COLUMNS,
    DATA_COUNT,
    DATA_SAVED,
    DATA_USED,
    FIRST,
    FIXED,
    FULL,
    HIGHEST_OTHER,
    LOWEST_OTHER,
    MIN_GATHER_ROWS,
    N_CAPACITY,
    N_COLUMNS,
    N_COLUMNS_END,
    N_FREE,
    N_MAX_PENDING,
    N_PENDING,
    N_PENDING_BEFORE_PASS,
    N_ROWS,
    NO_OTHER,
    NODE,
    NODE_COUNT,
    NODES,
    NOTHING_FULL,
    PACKETS,
    PASS_PACKETS,
    QUARANTINE_ROWS,
    STARTS,
    VALIDITY,
    WINDOW_FIRST,
    WINDOW_PACKETS,
    get,
    put,
)
from umdf.wire.sbe.walk_kernel import walk_pass


@inlined
def _clear_pending(n):
    """A node whose rows are all in its columns: its capacity is what its list and its columns hold."""
    put(n, N_PENDING, 0)
    put(n, N_FREE, min(get(n, N_MAX_PENDING), get(n, N_CAPACITY) - get(n, N_ROWS)))


@inlined
def _roll_back(t, first_node, last_node, journal_rows):
    """As it was before the pass."""
    put(t, QUARANTINE_ROWS, journal_rows)
    for i in range(get(t, DATA_COUNT)):
        put(get(t, DATA_USED), i, get(get(t, DATA_SAVED), i))
    for n in range(first_node, last_node, 8 * NODE):
        put(n, N_PENDING, get(n, N_PENDING_BEFORE_PASS))


@inlined
def _walk_packets(t, packet, limit, first_node, last_node):
    """Walk the packets up to the limit; returns where the pass came to: `packet` if nothing can be taken as it is.

    Where a buffer is full in mid-packet, it is walked again up to that packet: rare and simple.
    """
    journal_rows = get(t, QUARANTINE_ROWS)
    for i in range(get(t, DATA_COUNT)):
        put(get(t, DATA_SAVED), i, get(get(t, DATA_USED), i))
    while True:
        put(t, FULL, NOTHING_FULL)
        reached = walk_pass(t, packet, limit)
        if reached == limit or reached < 0:
            return reached
        _roll_back(t, first_node, last_node, journal_rows)
        if reached == packet:
            return packet
        limit = reached


@kernel
def decode_packets(t):
    """Decode packets FIRST … PACKETS - 1; returns the packet that could not be taken because FULL, else PACKETS, or -1
    if one lies outside the buffer."""
    data_count, packet, packets = get(t, DATA_COUNT), get(t, FIRST), get(t, PACKETS)
    first_node, last_node = get(t, NODES), get(t, NODES) + 8 * NODE * get(t, NODE_COUNT)
    if packet == 0:
        put(t, QUARANTINE_ROWS, 0)
        put(t, ANY_TRACKED, 0)
        put(t, LOWEST_OTHER, NO_OTHER)
        put(t, HIGHEST_OTHER, -1)
        for i in range(data_count):
            put(get(t, DATA_USED), i, 0)
        for n in range(first_node, last_node, 8 * NODE):
            if get(n, N_ROWS) > 0:
                put(n, N_ROWS, 0)
                for column in range(get(n, N_COLUMNS), get(n, N_COLUMNS_END)):
                    put(get(t, COLUMNS), COLUMN * column + C_TRACKED, 0)
    for n in range(first_node, last_node, 8 * NODE):
        _clear_pending(n)
        put(n, N_PENDING_BEFORE_PASS, 0)
    while packet < packets:
        first, window_end, full = packet, min(packets, packet + WINDOW_PACKETS), False
        put(t, BASE, get(get(t, STARTS), packet))
        put(t, WINDOW_FIRST, packet)
        while packet < window_end and not full:
            reached = _walk_packets(t, packet, min(window_end, packet + PASS_PACKETS), first_node, last_node)
            if reached < 0:
                return reached
            full = reached == packet
            packet = reached
            min_rows = MIN_GATHER_ROWS if packet < window_end and not full else 1
            for n in range(first_node, last_node, 8 * NODE):
                if get(n, N_PENDING) >= min_rows:
                    gather_node(t, n, first)
                    _clear_pending(n)
                put(n, N_PENDING_BEFORE_PASS, get(n, N_PENDING))
        if packet == first:
            return packet
    if get(t, VALIDITY) != 0:
        for n in range(first_node, last_node, 8 * NODE):
            rows = get(n, N_ROWS)
            if rows > 0:
                for column in range(get(n, N_COLUMNS), get(n, N_COLUMNS_END)):
                    c = get(t, COLUMNS) + 8 * COLUMN * column
                    if get(c, C_RETIRED) != 0 and get(c, C_TRACKED) == 0:
                        fill(get(c, C_BITMAP), 8, 0, (rows + 63) >> 6, np.uint64(0))
                    elif get(c, C_NULLABLE) != 0 and get(c, C_KIND) == FIXED:
                        build_bitmap(
                            get(c, C_VALUES), get(c, C_SIZE), np.uint64(get(c, C_NULL)), get(c, C_BITMAP), rows
                        )
    return packets
