"""Bytes → columns, for every template, in one table-driven kernel.

Packets are taken in passes, small enough to stay in the cache. A pass is walked first, which leaves for every node (a
message's root block, or a group) a list of where its rows start; then each column is gathered from those places in one
tight loop. A node with few rows waits for more of them until the end of a stretch of passes: starting the loops of its
columns would cost more than they do.
"""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel
from umdf.wire.sbe.gather_kernel import fill, find_presence, gather_node
from umdf.wire.sbe.tables_kernel import (
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
    ENOUGH,
    FIRST,
    FIRST_OF_STRETCH,
    FIXED,
    FULL,
    HIGHEST_OTHER,
    JOURNAL_ROWS,
    LOWEST_OTHER,
    N_CAPACITY,
    N_COLUMNS,
    N_COLUMNS_END,
    N_COUNT,
    N_KEPT,
    N_MOST,
    N_ROOM,
    N_ROWS,
    NO_OTHER,
    NODE,
    NODE_COUNT,
    NODES,
    NOTHING_FULL,
    PACKETS,
    PASS_PACKETS,
    STARTS,
    STRETCH_PACKETS,
    UNUSUAL,
    VALIDITY,
    at,
    put,
)
from umdf.wire.sbe.walk_kernel import walk_pass


@inlined
def _gathered(n):
    """A node whose rows are all in its columns: it has room for as many as its list and its columns hold."""
    put(n, N_COUNT, 0)
    put(n, N_ROOM, min(at(n, N_MOST), at(n, N_CAPACITY) - at(n, N_ROWS)))


@inlined
def _go_back(t, first_node, last_node, journal_rows):
    """As it was before the pass."""
    put(t, JOURNAL_ROWS, journal_rows)
    for i in range(at(t, DATA_COUNT)):
        put(at(t, DATA_USED), i, at(at(t, DATA_SAVED), i))
    for n in range(first_node, last_node, 8 * NODE):
        put(n, N_COUNT, at(n, N_KEPT))


@inlined
def _pass(t, packet, limit, first_node, last_node):
    """Walk the packets up to the limit; returns where the pass came to: `packet` if nothing can be taken as it is.

    Where a buffer is full in mid-packet, it is walked again up to that packet: rare and simple.
    """
    journal_rows = at(t, JOURNAL_ROWS)
    for i in range(at(t, DATA_COUNT)):
        put(at(t, DATA_SAVED), i, at(at(t, DATA_USED), i))
    while True:
        put(t, FULL, NOTHING_FULL)
        reached = walk_pass(t, packet, limit)
        if reached == limit or reached < 0:
            return reached
        _go_back(t, first_node, last_node, journal_rows)
        if reached == packet:
            return packet
        limit = reached


@kernel
def decode_packets(t):
    """Decode packets FIRST … PACKETS - 1; returns the packet that could not be taken because FULL, else PACKETS, or -1
    if one lies outside the buffer."""
    data_count, packet, packets = at(t, DATA_COUNT), at(t, FIRST), at(t, PACKETS)
    first_node, last_node = at(t, NODES), at(t, NODES) + 8 * NODE * at(t, NODE_COUNT)
    if packet == 0:
        put(t, JOURNAL_ROWS, 0)
        put(t, UNUSUAL, 0)
        put(t, LOWEST_OTHER, NO_OTHER)
        put(t, HIGHEST_OTHER, -1)
        for i in range(data_count):
            put(at(t, DATA_USED), i, 0)
        for n in range(first_node, last_node, 8 * NODE):
            if at(n, N_ROWS) > 0:
                put(n, N_ROWS, 0)
                for column in range(at(n, N_COLUMNS), at(n, N_COLUMNS_END)):
                    put(at(t, COLUMNS), COLUMN * column + C_TRACKED, 0)
    for n in range(first_node, last_node, 8 * NODE):
        _gathered(n)
        put(n, N_KEPT, 0)
    while packet < packets:
        first, stretch, full = packet, min(packets, packet + STRETCH_PACKETS), False
        put(t, BASE, at(at(t, STARTS), packet))
        put(t, FIRST_OF_STRETCH, packet)
        while packet < stretch and not full:
            reached = _pass(t, packet, min(stretch, packet + PASS_PACKETS), first_node, last_node)
            if reached < 0:
                return reached
            full = reached == packet
            packet = reached
            enough = ENOUGH if packet < stretch and not full else 1
            for n in range(first_node, last_node, 8 * NODE):
                if at(n, N_COUNT) >= enough:
                    gather_node(t, n, first)
                    _gathered(n)
                put(n, N_KEPT, at(n, N_COUNT))
        if packet == first:
            return packet
    if at(t, VALIDITY) != 0:
        for n in range(first_node, last_node, 8 * NODE):
            rows = at(n, N_ROWS)
            if rows > 0:
                for column in range(at(n, N_COLUMNS), at(n, N_COLUMNS_END)):
                    c = at(t, COLUMNS) + 8 * COLUMN * column
                    if at(c, C_RETIRED) != 0 and at(c, C_TRACKED) == 0:
                        fill(at(c, C_BITMAP), 8, 0, (rows + 63) >> 6, np.uint64(0))
                    elif at(c, C_NULLABLE) != 0 and at(c, C_KIND) == FIXED:
                        find_presence(at(c, C_VALUES), at(c, C_SIZE), np.uint64(at(c, C_NULL)), at(c, C_BITMAP), rows)
    return packets
