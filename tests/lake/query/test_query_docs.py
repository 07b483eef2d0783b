"""Every example of docs/query.md runs; those with Spark do in test_query_spark.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from lake.query.query_docs import examples, run

from umdf.lake.query.lake import Lake


@pytest.mark.parametrize("number", range(len(examples(spark=False))))
def test_an_example_runs(root: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.chdir(root.parent)
    shown = run(examples(spark=False)[number], {"lake": Lake("lake")})
    assert shown and all(value is not None for value in shown)


def test_there_are_examples_of_everything() -> None:
    text = "".join(examples(spark=False) + examples(spark=True))
    public = [name for name in vars(Lake) if name[0] != "_" and name not in ("path", "register_views", "refresh")]
    assert [name for name in public if f".{name}" not in text] == []
