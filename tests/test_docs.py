"""Links of the pages lead somewhere, and the walk through the code in docs/lake.md names what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
WALK_ROW = re.compile(r"^\| \d+ \| `([^`]+)` \| `([^`]+)` \|", re.MULTILINE)
MAX_WALK_FILES = 12  # to follow one trade; those that only its prose names included


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(target)
    assert broken == []


def test_every_page_is_linked() -> None:
    linked = set()
    for page in PAGES:
        linked |= {(page.parent / target.partition("#")[0]).resolve() for target in LINK.findall(page.read_text())}
    unlinked = [page.name for page in ROOT.glob("docs/**/*.md") if page.resolve() not in linked]
    assert unlinked == []


def test_the_walk_of_a_trade_names_files_and_functions_that_exist() -> None:
    page = (ROOT / "docs" / "lake.md").read_text()
    section = page[page.index("## One trade") : page.index("What the packet has become")]
    walk = WALK_ROW.findall(section)
    assert len(walk) >= 10 and len(set(re.findall(r"`([\w/]+\.py)`", section))) <= MAX_WALK_FILES
    missing = []
    for file, function in walk:
        path = ROOT / "src" / "umdf" / file
        text = path.read_text() if path.exists() else ""
        for name in function.split("."):
            if not re.search(rf"^\s*(?:def|class) {name}\b|^{name}\b.* =", text, re.MULTILINE):
                missing.append(f"{file}: {function}")
    assert missing == []
