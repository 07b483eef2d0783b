"""`import umdf` is quick, and every public name is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import umdf
from umdf.wire.sbe.compose import Packet, compose


@pytest.mark.parametrize("name", umdf.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(umdf, name) is not None
    assert name in dir(umdf)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = umdf.Nothing  # type: ignore[attr-defined]


def test_the_package_alone_loads_nothing_heavy() -> None:
    program = "import sys, umdf; print([n for n in ('numpy', 'numba', 'pyarrow') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_example_in_the_docstring_works(tmp_path: Path) -> None:
    schema = umdf.load_sbe_schema()
    packets = compose(schema, [Packet([("Sequence_2", {"nextSeqNo": number})], 72) for number in (1, 2)])
    with umdf.PcapWriter(tmp_path / "day.pcap") as writer:
        flow = ("10.0.0.1", 1), ("224.0.20.72", 2)
        writer.write_batch(packets.buffer, packets.start, packets.end, np.array([1, 2]), *flow)
    decoder, found = umdf.SbeDecoder(schema), []
    with umdf.open_capture(tmp_path / "day.pcap") as capture:
        for batch in capture:
            found += decoder.decode(batch.buffer, batch.start, batch.end).record_batch(2)["nextSeqNo"].to_pylist()
    assert found == [1, 2]
