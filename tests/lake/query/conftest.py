from __future__ import annotations

from pathlib import Path

import pytest
from lake.query.query_lakes import two_days

import umdf


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_days(tmp_path_factory.mktemp("query"))


@pytest.fixture(scope="session")
def lake(root: Path) -> umdf.Lake:
    return umdf.Lake(root)
