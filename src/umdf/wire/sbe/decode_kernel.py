"""Bytes → columns, for every template, in one table-driven kernel.

Packets are taken in passes, small enough to stay in the cache. A pass is walked first, which leaves for every node (a
message's root block, or a group) a short list of where its rows start; then each column is gathered from those places
in one tight loop.
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
    FIRST,
    FIRST_OF_PASS,
    FIXED,
    FULL,
    JOURNAL_ROWS,
    N_CAPACITY,
    N_COLUMNS,
    N_COLUMNS_END,
    N_COUNT,
    N_MOST,
    N_ROOM,
    N_ROWS,
    NODE,
    NODE_COUNT,
    NODES,
    NOTHING_FULL,
    PACKETS,
    PASS_PACKETS,
    STARTS,
    UNUSUAL,
    VALIDITY,
    at,
    put,
)
from umdf.wire.sbe.walk_kernel import walk_pass


@inlined
def _start_pass(n):
    rows = at(n, N_ROWS)
    put(n, N_COUNT, 0)
    put(n, N_ROOM, min(at(n, N_MOST), at(n, N_CAPACITY) - rows))


@kernel
def decode_packets(t):
    """Decode packets FIRST … PACKETS - 1; returns the packet that could not be taken because FULL, else PACKETS, or -1
    if one lies outside the buffer."""
    data_count, packet, packets = at(t, DATA_COUNT), at(t, FIRST), at(t, PACKETS)
    first_node, last_node = at(t, NODES), at(t, NODES) + 8 * NODE * at(t, NODE_COUNT)
    if packet == 0:
        put(t, JOURNAL_ROWS, 0)
        put(t, UNUSUAL, 0)
        for i in range(data_count):
            put(at(t, DATA_USED), i, 0)
        for n in range(first_node, last_node, 8 * NODE):
            if at(n, N_ROWS) > 0:
                put(n, N_ROWS, 0)
                for column in range(at(n, N_COLUMNS), at(n, N_COLUMNS_END)):
                    put(at(t, COLUMNS), COLUMN * column + C_TRACKED, 0)
    for n in range(first_node, last_node, 8 * NODE):
        _start_pass(n)
    while packet < packets:
        limit = min(packets, packet + PASS_PACKETS)
        put(t, BASE, at(at(t, STARTS), packet))
        put(t, FIRST_OF_PASS, packet)
        journal_rows = at(t, JOURNAL_ROWS)
        for i in range(data_count):
            put(at(t, DATA_SAVED), i, at(at(t, DATA_USED), i))
        while True:
            # Walk up to the limit. Where a buffer is full in mid-packet, walk again up to that packet: rare and simple.
            put(t, FULL, NOTHING_FULL)
            reached = walk_pass(t, packet, limit)
            if reached == limit:
                break
            if reached < 0:
                return reached
            put(t, JOURNAL_ROWS, journal_rows)
            for i in range(data_count):
                put(at(t, DATA_USED), i, at(at(t, DATA_SAVED), i))
            if reached == packet:
                return packet
            limit = reached
            for n in range(first_node, last_node, 8 * NODE):
                _start_pass(n)
        for n in range(first_node, last_node, 8 * NODE):
            if at(n, N_COUNT) > 0:
                gather_node(t, n, packet)
                _start_pass(n)
        packet = limit
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
