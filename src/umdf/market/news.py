"""Joins the parts of news into whole texts (Binary 9.2.4; a FIX/FAST message has its whole text).

Invariant: every part is in exactly one text. A text is complete if each of its parts came, in whatever order; one that
never becomes complete is returned as incomplete once other news take its place.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_UNFINISHED = 16  # news of one channel whose parts are still being received
MAX_UNFINISHED_CHARACTERS = 1 << 22

NewsRow = Mapping[str, Any]  # columns of the family `news`


@dataclass(frozen=True)
class JoinedNews:
    row: NewsRow  # of the first part that there is
    text: str
    is_complete: bool


@dataclass
class _Unfinished:
    parts: dict[int, NewsRow] = field(default_factory=dict)

    def joined(self, *, is_complete: bool) -> JoinedNews:
        rows = [self.parts[number] for number in sorted(self.parts)]
        return JoinedNews(rows[0], "".join(row["text"] or "" for row in rows), is_complete)


class NewsAssembler:
    """The news of one channel."""

    def __init__(self) -> None:
        # News of the matching engine have no number (1472): what their parts share tells them apart.
        self._unfinished: dict[Hashable, _Unfinished] = {}
        self._characters = 0

    def add(self, row: NewsRow) -> list[JoinedNews]:
        """The news that this part completes, and those that are given up for it."""
        count, number = row["part_count"], row["part_number"]
        if count is None or number is None or count == number == 1:
            return [JoinedNews(row, row["text"] or "", is_complete=True)]
        if not 1 <= number <= count:
            return [JoinedNews(row, row["text"] or "", is_complete=False)]
        given_up: list[JoinedNews] = []
        key = row["news_id"], row["news_source"], row["language"], row["headline"], count, row["total_text_length"]
        if key in self._unfinished and number in self._unfinished[key].parts:
            given_up.append(self._take(key, is_complete=False))
        news = self._unfinished.setdefault(key, _Unfinished())
        news.parts[number] = row
        self._characters += len(row["text"] or "")
        if len(news.parts) == count:
            return [*given_up, self._take(key, is_complete=True)]
        while len(self._unfinished) > MAX_UNFINISHED or self._characters > MAX_UNFINISHED_CHARACTERS:
            given_up.append(self._take(next(iter(self._unfinished)), is_complete=False))
        return given_up

    def _take(self, key: Hashable, *, is_complete: bool) -> JoinedNews:
        joined = self._unfinished.pop(key).joined(is_complete=is_complete)
        self._characters -= len(joined.text)
        return joined
