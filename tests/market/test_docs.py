"""The pages that are drawn from the tables are up to date and say everything."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from umdf.market import phase_tables as p
from umdf.market.families import COMMON, FAMILIES, STATISTICS

ROOT = Path(__file__).parent.parent.parent


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_docs", ROOT / "tools" / "draw_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["events.md", "phases.md"])
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == tool().PAGES[name](), "run python tools/draw_docs.py"


def test_every_column_and_code_is_on_the_page() -> None:
    page = tool().events_page()
    for family in FAMILIES.values():
        every = [*COMMON, *family.columns, *(column for fields in family.lists.values() for column in fields)]
        assert all(f"`{column.name}`" in page for column in every) and f"## {family.name}\n" in page
    assert all(f"| {code} | {name} |" in page for code, name in STATISTICS.items())


def test_every_change_of_membership_is_an_arrow_of_the_diagram() -> None:
    drawn = tool().diagram()
    changes = {(before, after) for (_, before, _), (after, _) in p.INSTRUMENT_MESSAGE.items() if before != after}
    changes |= {(before, after) for (before, _), after in p.GROUP_MESSAGE.items() if before != after}
    assert changes == {
        ("separated", "following"),
        ("following", "separated"),
        ("new", "following"),
        ("new", "separated"),
    }
    assert all(f"{before} --> {after}: " in drawn for before, after in changes)
