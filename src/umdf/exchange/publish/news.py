"""News items: what a record of news refers to by its number."""

from __future__ import annotations

from dataclasses import dataclass

MAX_PART_BYTES = 1_000  # of the text in one message, which has to fit in a packet


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
