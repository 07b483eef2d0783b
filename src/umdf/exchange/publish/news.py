"""News items: what a record of news refers to by its number."""

from __future__ import annotations

from dataclasses import dataclass

from umdf.errors import UsageError, one_of

MAX_PART_BYTES = 1_000  # of the text in one message of Binary, which has to fit in a packet
MAX_HEADLINE_BYTES = 300  # with the link: they are in every part
MAX_LINE_BYTES, MAX_TEXT_BYTES = 8_192, 1 << 16  # of a Text (58), and of all
MAX_NEWS_ID = 9_999_999  # seven digits
LANGUAGES = ("", "pt", "en", "es")
SOURCES = (*range(6), 11, *range(13, 21))


@dataclass(frozen=True)
class NewsItem:
    """A news item. An item of the matching engine goes to all order channels; others to the channels that they name,
    the Unified News Channel among them."""

    headline: str
    text: str
    channels: tuple[int, ...] = ()
    source: int = 3  # 6940
    news_id: int | None = None  # 1472: of the Unified News Channel
    language: str = ""  # 1474; empty: Portuguese
    url: str = ""
    related: tuple[int, ...] = ()  # indices in the listing

    def __post_init__(self) -> None:
        lines = [len(line.encode()) for line in self.text.split("\n")]
        header, text = len(self.headline.encode()) + len(self.url.encode()), len(self.text.encode())
        for name, size, most in (
            ("headline and link", header, MAX_HEADLINE_BYTES),
            ("line of text", max(lines), MAX_LINE_BYTES),
            ("text", text, MAX_TEXT_BYTES),
        ):
            if size > most:
                raise UsageError(f"{name} too long: {size} bytes", f"use up to {most}")
        if self.source not in SOURCES:
            raise UsageError(f"unknown news source: {self.source}", f"use {one_of(map(str, SOURCES))} (6940)")
        if self.language not in LANGUAGES:
            raise UsageError(f"unknown language: {self.language}", f"use {one_of(LANGUAGES[1:])} (1474)")
        if self.news_id is not None and not 0 < self.news_id <= MAX_NEWS_ID:
            raise UsageError(f"news number out of range: {self.news_id}", f"use 1 to {MAX_NEWS_ID} (1472)")

    @property
    def parts(self) -> list[str]:
        """The text in parts that fit in a message, cut between characters."""
        found, left = [""], self.text
        size = 0
        for letter in left:
            size += len(letter.encode())
            if size > MAX_PART_BYTES:
                found.append("")
                size = len(letter.encode())
            found[-1] += letter
        return found


BULK_NEWS = (
    NewsItem("Market open", "Continuous trading has begun."),
    NewsItem("Leilão de fechamento", "Início do leilão de fechamento.\nAtenção às ofertas MOC."),
)
