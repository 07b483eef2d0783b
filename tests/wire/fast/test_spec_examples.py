"""Every worked example of the specifications reads and writes."""

from __future__ import annotations

import pytest
from vectors.fast import APPENDIX, Case, fast_vectors

from umdf.wire.fast.loader import loads
from umdf.wire.fast.reference.reader import Reader
from umdf.wire.fast.reference.writer import Writer


def _named(case: Case) -> str:
    return f"{case.name} {case.stream.hex()}"


def test_every_spec_example_is_present() -> None:
    assert len(APPENDIX) == 20 and len({case.stream for case in APPENDIX}) == 20


@pytest.mark.parametrize("case", fast_vectors(), ids=_named)
def test_spec_example_reads(case: Case) -> None:
    reader = Reader(loads(case.xml), reset="never")
    offset, messages = 0, []
    while offset < len(case.stream):
        message, offset = reader.decode(case.stream, offset)
        assert message.reports == []
        assert message.template.id == case.template_id
        messages.append(message.values)
    assert messages == case.messages


@pytest.mark.parametrize("case", fast_vectors(), ids=_named)
def test_spec_example_writes(case: Case) -> None:
    writer = Writer(loads(case.xml), reset="never")
    written = [writer.encode(case.template_id, values, template_id_always=False) for values in case.messages]
    assert b"".join(written).hex() == case.stream.hex()
