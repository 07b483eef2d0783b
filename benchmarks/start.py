"""A fresh process with a warm kernel cache, to its first decoded batch."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

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
FIRST_FAST_BATCH = """
import numpy as np
from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.loader import load
message = bytes.fromhex(
    "c0019881237c487b232d7dfb80815920888009d2821de380803d7e49fb02ad80808080393030b1" + 13 * "80"
)
batch = Decoder(load()).decode(np.frombuffer(message, np.uint8), np.array([0]), np.array([len(message)]))
assert len(batch.quarantine) == 0 and batch.record_batch(152).num_rows == 1
"""


def run() -> Iterator[Result]:
    def python(program: str) -> None:
        subprocess.run([sys.executable, "-c", program], check=True)

    programs = {"imports": IMPORTS, "SBE": FIRST_BATCH, "FAST": FIRST_FAST_BATCH}
    candidates = {name: partial(python, program) for name, program in programs.items()}
    best = fastest(candidates, rounds=7, clock=time.perf_counter)
    for name in ("SBE", "FAST"):
        figure = f"{best[name]:.2f} s; the imports alone {best['imports']:.2f} s"
        ratio = best[name] / best["imports"]
        yield Result(f"fresh process to first {name} batch", figure, ratio, "× import numpy, numba", 2)
