"""A fresh process with a warm kernel cache, to its first decoded batch."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.measure import Result, fastest

IMPORTS = "import numpy, numba"
FIRST_BATCH = """
import numpy as np
from umdf.wire.sbe.decode import Decoder
from umdf.wire.sbe.loader import load
packet = bytes.fromhex("48000100010000000000000000000000" "100050eb0400020002001000" "01000000")
batch = Decoder(load()).decode(np.frombuffer(packet, np.uint8), np.array([0]), np.array([len(packet)]))
assert batch.rows.sum() == 1
"""


def run() -> Iterator[Result]:
    def python(program: str) -> None:
        subprocess.run([sys.executable, "-c", program], check=True)

    best = fastest(
        {"imports": lambda: python(IMPORTS), "first": lambda: python(FIRST_BATCH)}, rounds=7, clock=time.perf_counter
    )
    figure, ratio = f"{best['first']:.2f} s; the imports alone {best['imports']:.2f} s", best["first"] / best["imports"]
    yield Result("fresh process to first SBE batch", figure, ratio, "× import numpy, numba", 2)
