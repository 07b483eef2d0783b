"""A presence map stands where its segment may need one, even if this time nobody uses a bit of it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from umdf.wire.fast.decode.decoder import Decoder
from umdf.wire.fast.encode.encoder import Encoder
from umdf.wire.fast.loader import loads
from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import Decimal

EXPONENTS = ("", '<default value="-2"/>', "<copy/>", "<delta/>")
MANTISSAS = ("", '<default value="5"/>', "<delta/>", "<copy/>")


@pytest.mark.parametrize(("exponent", "mantissa"), list(product(EXPONENTS, MANTISSAS)))
def test_an_absent_decimal_in_a_group_leaves_the_groups_map(exponent: str, mantissa: str) -> None:
    decimal = f"<exponent>{exponent}</exponent><mantissa>{mantissa}</mantissa>"
    templates = loads(
        f'<templates><template name="T" id="1"><group name="G"><decimal name="D" presence="optional">{decimal}'
        "</decimal></group></template></templates>".encode()
    )
    written = [Writer(templates).encode(1, {"G": group}) for group in ({}, {"D": Decimal(-2, 5)}, {}, {})]
    sizes = np.array([len(data) for data in written], np.int64)
    ends = np.cumsum(sizes)
    whole = np.frombuffer(b"".join(written), np.uint8)
    batch = Decoder(templates).decode(whole, ends - sizes, ends)
    assert not batch.quarantine
    assert Encoder(templates).encode({1: batch.record_batch(1)}).buffer.tobytes() == whole.tobytes()
