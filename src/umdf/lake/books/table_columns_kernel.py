"""Encodes one-character strings as dictionary codes, in one pass."""

from __future__ import annotations

import numpy as np

from umdf.kernels import kernel, load_u8, store_u8

UNSEEN = 255  # in the table of codes
ABSENT, NON_ASCII = 254, 128  # the code of no character; bytes from here on are bad data and share one code


@kernel
def encode_chars(values, rows, codes, out):
    """The code of each character, by first appearance; `codes` has a byte per character. Returns how many."""
    count = 0
    for row in range(rows):
        letter = min(np.int64(load_u8(values, row)), NON_ASCII)
        code = np.int64(load_u8(codes, letter))
        if code == UNSEEN:
            code = count
            count += 1
            store_u8(codes, letter, np.uint8(code))
        store_u8(out, row, np.uint8(code))
    return count
