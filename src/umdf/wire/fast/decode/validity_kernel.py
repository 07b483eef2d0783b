"""The last step of a batch: every row's presence mask becomes a bit in Arrow's validity bitmaps, 64 rows at a time."""

from __future__ import annotations

import numpy as np

from umdf.kernels import inlined, kernel, load_u64, store_u64
from umdf.wire.fast.decode import tables_kernel as k
from umdf.wire.fast.decode.stop_bit_kernel import copy_bytes
from umdf.wire.fast.decode.tables_kernel import word


@inlined
def _swap_halves(block, width, mask):
    """One step of the transpose of 64 × 64 bits: exchange the off-diagonal halves of all squares of 2 · width."""
    shift = np.uint64(width)
    for first in range(0, 64, 2 * width):
        for at in range(first, first + width):
            above, below = load_u64(block, 8 * at), load_u64(block, 8 * (at + width))
            change = (above >> shift ^ below) & mask
            store_u64(block, 8 * (at + width), below ^ change)
            store_u64(block, 8 * at, above ^ change << shift)


@kernel
def build_validity(t, block):
    """Transpose the masks of all nodes; `block` is 64 words."""
    for node in range(word(t, k.NODES), word(t, k.NODES) + 8 * k.NODE * word(t, k.NODE_COUNT), 8 * k.NODE):
        rows, bits, words = word(node, k.N_ROWS), word(node, k.N_BITS), word(node, k.N_MASK_WORDS)
        if rows == 0 or bits == 0:
            continue
        masks, bitmaps, stride = word(node, k.N_MASKS), word(node, k.N_BITMAPS), word(node, k.N_CAPACITY) >> 3
        for first_bit in range(0, bits, 64):
            for group in range((rows + 63) >> 6):
                source = masks + 8 * (64 * group * words + first_bit // 64)
                for at in range(64):
                    store_u64(block, 8 * at, load_u64(source, 8 * words * at))
                _swap_halves(block, 32, np.uint64(0x00000000FFFFFFFF))
                _swap_halves(block, 16, np.uint64(0x0000FFFF0000FFFF))
                _swap_halves(block, 8, np.uint64(0x00FF00FF00FF00FF))
                _swap_halves(block, 4, np.uint64(0x0F0F0F0F0F0F0F0F))
                _swap_halves(block, 2, np.uint64(0x3333333333333333))
                _swap_halves(block, 1, np.uint64(0x5555555555555555))
                target = bitmaps + 8 * group
                for bit in range(first_bit, min(bits, first_bit + 64)):
                    store_u64(target, stride * bit, load_u64(block, 8 * (bit - first_bit)))


@kernel
def copy_text(source, to, length):
    """Both have TEXT_SLACK bytes behind."""
    copy_bytes(source, to, length)
