"""Parts of news become whole texts."""

from __future__ import annotations

from typing import Any

import pytest

from umdf.market.news import MAX_UNFINISHED, NewsAssembler


def part(number: int | None, count: int | None, text: str, headline: str = "Fato relevante") -> dict[str, Any]:
    fixed = {"news_id": None, "news_source": 3, "language": "pt", "total_text_length": 9}
    return {"part_number": number, "part_count": count, "text": text, "headline": headline, **fixed}


def joined(rows: list[dict[str, Any]]) -> list[tuple[str, bool]]:
    assembler = NewsAssembler()
    return [(news.text, news.is_complete) for row in rows for news in assembler.add(row)]


A, B, C = part(1, 3, "abc"), part(2, 3, "def"), part(3, 3, "ghi")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([part(1, 1, "whole")], [("whole", True)]),
        ([part(None, None, "FIX/FAST has no parts")], [("FIX/FAST has no parts", True)]),
        ([A, B, C], [("abcdefghi", True)]),
        ([C, A, B], [("abcdefghi", True)]),  # a late line or the replayer brought the first ones
        ([A, part(1, 1, "other"), B, C], [("other", True), ("abcdefghi", True)]),
        ([A, C, A, B, C], [("abcghi", False), ("abcdefghi", True)]),  # B was lost, then the news were sent again
        ([A, part(1, 2, "x", "Another"), B, part(2, 2, "y", "Another"), C], [("xy", True), ("abcdefghi", True)]),
        ([part(4, 3, "beyond the count")], [("beyond the count", False)]),
        ([part(0, 3, "before the first")], [("before the first", False)]),
    ],
)
def test_parts_are_joined(rows: list[dict[str, Any]], expected: list[tuple[str, bool]]) -> None:
    assert joined(rows) == expected


def test_news_that_never_become_complete_are_given_up_as_incomplete() -> None:
    firsts = [part(1, 2, str(number), f"headline {number}") for number in range(MAX_UNFINISHED + 3)]
    assert joined(firsts) == [("0", False), ("1", False), ("2", False)]
