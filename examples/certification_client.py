"""A client for `umdf certify --client external --log client.jsonl`: what it writes is what yours has to write.

    python examples/certification_client.py channels.toml instructions.jsonl client.jsonl

It follows the file of instructions (connect, disconnect, requests to the replayers) and writes a JSON line for each
message that it receives, each book that changes, and each reply of a replayer. It ends with the instruction "end".
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from umdf.book.views import Book
from umdf.certify.replay_session import ReplaySession
from umdf.feed.channel_feed import FeedSettings
from umdf.feed.live import Live
from umdf.feed.replay_client import Span
from umdf.feed.tap import TapRecord
from umdf.transport.channels_file import HISTORICAL_REPLAYER, REPLAYER, read_channels, read_replayer

POLL_S = 0.01


class Client:
    def __init__(self, channels: Path, log: Path) -> None:
        self._channels, self._file = channels, log.open("a", encoding="utf-8", buffering=1)
        self._replay = self._session(REPLAYER)
        self._history: ReplaySession | None = None
        self._live: Live | None = None
        self._is_connected = False

    def follow(self, instruction: dict[str, Any]) -> bool:
        """Do what is said; False at the end."""
        match instruction.get("client"):
            case "connect":
                self._connect(starts_again=instruction["starts_again"])
            case "disconnect":
                self._disconnect()
            case "log_on_to_history":
                self._history = self._session(HISTORICAL_REPLAYER)
            case "request_history":
                self._history = self._history or self._session(HISTORICAL_REPLAYER)
                if self._history is not None:
                    wanted = (instruction[key] for key in ("channel", "first", "last"))
                    self._history.request_span(Span(*wanted))
            case "end":
                return False
        return True

    def poll(self) -> None:
        if self._live is not None:
            self._live.poll(POLL_S)
        for session in (self._replay, self._history):
            if session is None:
                continue
            session.poll()
            if session is self._history:
                session.take()
            for message in session.take_messages():
                self._write({"reply": str(message)})

    def _connect(self, *, starts_again: bool) -> None:
        if starts_again or self._live is None:
            if self._live is not None:
                self._live.close()
            sources = [self._replay] if self._replay is not None else []
            channels = read_channels(self._channels)
            self._live = Live(channels, settings=FeedSettings(keeps_joined=True), sources=sources, tap=self._on_packet)
        elif not self._is_connected:
            for feed in self._live.client.feeds.values():
                for line, address in feed.lines.items():
                    self._live.receiver.join(line, address)
        self._is_connected = True

    def _disconnect(self) -> None:
        if self._live is not None:
            for feed in self._live.client.feeds.values():
                for line in feed.lines:
                    self._live.receiver.leave(line)
        self._is_connected = False

    def _session(self, name: str) -> ReplaySession | None:
        addresses = read_replayer(self._channels, name)
        return ReplaySession(addresses, time.time_ns) if addresses is not None else None

    def _on_packet(self, record: TapRecord) -> None:
        channel = record.feed.key.number
        for security_id, book in record.after.items():
            self._write({"book": _sides(book), "channel": channel, "security_id": security_id})
        if record.line is not None:
            for message in record.messages:
                text = "|".join(f"{tag}={value}" for tag, value in message.fix())
                where = {"channel": channel, "stream": record.line.stream, "sequence": message.sequence}
                self._write({"message": text, **where, "data": record.data.hex()})

    def _write(self, values: dict[str, Any]) -> None:
        self._file.write(json.dumps(values, ensure_ascii=False) + "\n")


def _sides(book: Book | None) -> dict[str, list[list[Any]]]:
    return {
        "bids": [] if book is None else list(_rows(book, "bids")),
        "asks": [] if book is None else list(_rows(book, "asks")),
    }


def _rows(book: Book, side: str) -> Iterator[list[Any]]:
    for level in getattr(book, side):
        price = None if level.price is None else str(Decimal(level.price) / 10**9)
        if book.depth is not None:
            yield [price, level.size]
        for order in level.orders:
            yield [price, order.size, order.order_id]


def main(channels: Path, instructions: Path, log: Path) -> None:
    while not instructions.exists() or not channels.exists():
        time.sleep(0.05)
    client, position, is_running = None, 0, True
    while is_running:
        text = instructions.read_text(encoding="utf-8")
        lines, position = text[position:].split("\n")[:-1], text.rfind("\n") + 1
        for line in lines:
            client = client or Client(channels, log)
            is_running = is_running and client.follow(json.loads(line))
        if client is not None:
            client.poll()
        time.sleep(POLL_S)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
