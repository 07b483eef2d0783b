"""One-letter texts as the numbers of their letters: a table's dictionary in one pass."""

from __future__ import annotations

import numpy as np

from umdf.kernels import kernel, load_u8, store_u8

UNSEEN = 255  # in the table of codes
ABSENT, NON_ASCII = 254, 128  # the code of no letter; every byte from here on is the same letter: bad data


@kernel
def encode_chars(values, rows, codes, out):
    """The code of each letter, counted by first appearance; `codes` has a byte for each letter. How many there are."""
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
