"""A client of a third party, of which we see its log: JSON lines, one for each message and each changed book.

    {"message": "35=X|34=38|268=1|279=0|269=0|48=100380405|270=32.45|…", "channel": 72, "stream": "incremental",
     "sequence": 38, "data": "…"}
    {"book": {"bids": [["32.47", 20, 1000000001]], "asks": []}, "channel": 72, "security_id": 100380405}
    {"reply": "35=BX|1348=0|…"}

A row of a book is price (null without one), size, and in books by order its id. What the client has to do is written to
a file of instructions, which also names each step: {"step": "D1.2", "client": "disconnect"}.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from umdf.certify.client_actions import ReplayRange
from umdf.certify.observation import INCREMENTAL, BookRow, BookState, SeenMessage
from umdf.certify.stage import Stage
from umdf.errors import ConfigError
from umdf.units import fix_timestamp

UNIT = 10**9
SENDING_TIME, MILLISECONDS = 52, 21  # characters of 20261119-10:30:00.000
# For the client to write what was sent, in seconds of real time: at most, and without a new line.
PATIENCE_S, STALL_S = 120.0, 15.0
MOST_AHEAD_NS = 3 * UNIT  # of the exchange's clock, ahead of what the client has written
POLL_S = 0.01
Instruct = Callable[[dict[str, Any]], None]  # sends an instruction to the client


@dataclass(frozen=True)
class Clock:
    """Real time, unless a test has its own."""

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class LoggedClient:
    """Looks like our own client to whoever plays the script. The exchange runs at `speed` times real time, and not far
    ahead of what a client has written: what its buffers have no room for would be lost."""

    def __init__(
        self,
        log: Path,
        instruct: Instruct,
        stage: Stage,
        *,
        settle_s: float = 2.0,
        speed: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or Clock()
        self._log, self._instruct, self._stage = log, instruct, stage
        self._settle_s, self._speed = settle_s, speed
        self._position, self._line = 0, 0
        self._rest = b""
        self._messages: list[SeenMessage] = []
        self._replies: list[SeenMessage] = []
        self._now: dict[tuple[int, int], BookState] = {}
        self._books: dict[tuple[int, int], list[BookState]] = defaultdict(list)
        self._publishers, self._is_connected = stage.exchange.publication.publishers, False
        self._last: dict[int, int] = defaultdict(int)  # sequence of the incremental stream, by channel
        self._written_until = ""  # SendingTime (52) of the newest message, to the millisecond
        self._started = self._clock.now_s(), stage.exchange.now_ns
        self._written_s = self._clock.now_s()  # when the log grew last
        self._is_heard = False  # it has written something since it was connected
        self._sent: deque[int] = deque()  # times of the exchange, after each of which it has sent something
        self._polled = stage.exchange.now_ns, 0  # the last time, and the packets that had been sent
        self.troubles: list[str] = []

    # What the client is told

    def connect(self, *, starts_again: bool) -> None:
        self._is_connected, self._is_heard = bool(self._line), False
        self._instruct({"client": "connect", "starts_again": starts_again})
        self.settle()

    def disconnect(self) -> None:
        self._instruct({"client": "disconnect"})
        self._is_connected = self._is_heard = False
        self.settle()

    def log_on_to_history(self) -> None:
        self._instruct({"client": "log_on_to_history"})
        self.settle()

    def request_history(self, wanted: ReplayRange) -> None:
        self._instruct({"client": "request_history", **vars(wanted)})
        self.settle()

    # Its log

    def wait_for_log(self, patience_s: float) -> None:
        """Until the client has written its first line."""
        until = self._clock.now_s() + patience_s
        while not self._line:
            self.settle()
            if self._clock.now_s() > until:
                raise ConfigError(f"{self._log}: nothing was written within {patience_s:g} s", "start the client")
        self._is_connected = True

    def poll(self) -> None:
        """Wait until real time and the client have caught up with the exchange, and read the log."""
        (began, first_ns), now_ns = self._started, self._stage.exchange.now_ns
        ahead_s = (now_ns - first_ns) / UNIT / self._speed - (self._clock.now_s() - began)
        if ahead_s > 0:
            self._clock.sleep(ahead_s)
        self._read()
        packets = sum(stream[3] for publisher in self._publishers for stream in publisher.sequences())
        if packets > self._polled[1]:
            self._sent.append(self._polled[0])
        self._polled = now_ns, packets
        must_have = 0
        while self._sent and self._sent[0] <= now_ns - MOST_AHEAD_NS:
            must_have = self._sent.popleft()
        written_until = fix_timestamp(must_have, 9)[:MILLISECONDS]
        while self._is_heard and self._written_until < written_until and not self._is_stalled:
            self._clock.sleep(POLL_S)
            self._read()

    @property
    def _is_stalled(self) -> bool:
        return self._clock.now_s() - self._written_s > STALL_S

    def settle(self) -> None:
        """Give the client time to write what was sent until now: the exchange goes on meanwhile."""
        began = self._clock.now_s()
        wanted = {publisher.settings.channel: publisher.sequences()[0][2] for publisher in self._publishers}
        sent_until = fix_timestamp(self._stage.exchange.now_ns, 9)[:MILLISECONDS]

        def has_all() -> bool:
            return self._written_until >= sent_until and all(self._last[each] >= wanted[each] for each in wanted)

        while (waited_s := self._clock.now_s() - began) < self._settle_s or (
            waited_s < (STALL_S if self._is_stalled else PATIENCE_S) and self._is_connected and not has_all()
        ):
            self._stage.exchange.advance(self._stage.exchange.now_ns + round(0.05 * UNIT * self._speed))
            self.poll()

    def _read(self) -> None:
        try:
            with self._log.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:  # the client has not begun
            return
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            self._written_s, self._is_heard = self._clock.now_s(), self._is_connected
        for line in lines:
            self._line += 1
            if line.strip():
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            values = json.loads(line)
            if "message" in values:
                message = _message(values, "message")
                self._messages.append(message)
                sent = next((value for tag, value in message.fields if tag == SENDING_TIME), "")
                self._written_until = max(self._written_until, sent[:MILLISECONDS])
                if message.stream == INCREMENTAL:
                    self._last[message.channel] = max(self._last[message.channel], message.sequence)
            elif "reply" in values:
                self._replies.append(_message(values, "reply"))
            elif "book" in values:
                self._take_book(int(values["channel"]), int(values["security_id"]), values["book"])
            else:
                raise ValueError("neither message, book nor reply")
        except (ValueError, KeyError, TypeError, AttributeError, InvalidOperation) as error:
            raise ConfigError(
                f"{self._log}, line {self._line}: {error}", "see docs/certification.md for the format"
            ) from None

    def _take_book(self, channel: int, security_id: int, sides: dict[str, Any]) -> None:
        state = BookState(*(tuple(map(_row, sides[side])) for side in ("bids", "asks")))
        self._now[channel, security_id] = state
        states = self._books.get((channel, security_id))
        if states is not None and states[-1] != state:
            states.append(state)

    # Evidence

    def begin_step(self) -> None:
        self._read()
        self._messages.clear()
        self._replies.clear()
        self._books.clear()
        self.troubles.clear()

    def mark_books(self, channel: int, security_id: int) -> None:
        self._books[channel, security_id] = [self._now.get((channel, security_id), BookState())]

    def books(self, channel: int, security_id: int) -> tuple[BookState, ...]:
        return tuple(self._books[channel, security_id] or [self._now.get((channel, security_id), BookState())])

    def messages(self, channel: int, streams: Sequence[str]) -> tuple[SeenMessage, ...]:
        return tuple(each for each in self._messages if each.channel == channel and each.stream in streams)

    def replies(self) -> tuple[SeenMessage, ...]:
        replies, self._replies = tuple(self._replies), []
        return replies


def _message(values: dict[str, Any], key: str) -> SeenMessage:
    data = bytes.fromhex(values.get("data", ""))
    where = int(values.get("channel", 0)), str(values.get("stream", key)), int(values.get("sequence", 0))
    return SeenMessage(*where, tuple(_fields(values[key])), data)


def _fields(text: str) -> Iterator[tuple[int, str]]:
    for field in text.split("|"):
        tag, is_field, value = field.partition("=")
        if not is_field or not tag.isdigit():
            raise ValueError(f"not a field: {field}")
        yield int(tag), value


def _row(values: Sequence[Any]) -> BookRow:
    price, size, *order = values
    return BookRow(None if price is None else int(Decimal(price) * UNIT), int(size), *map(int, order))


def instruction_file(path: Path) -> Instruct:
    """Writes each instruction as a line."""
    path.write_text("")

    def instruct(instruction: dict[str, Any]) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(instruction, ensure_ascii=False) + "\n")

    return instruct
