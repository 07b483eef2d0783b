"""Our FIX against one that is not ours (simplefix): a client of our replayer, and a replayer of our client."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from umdf.exchange.replayer.connection import CompIds, ReplayerConnection, ReplayerId
from umdf.exchange.replayer.history import ChannelHistory
from umdf.exchange.replayer.retention import WEEK, Profile
from umdf.exchange.replayer.service import ReplayService, ReplaySettings
from umdf.feed.replay_client import ReplayClient, ReplayClientSettings, ReplayedMessages, ReplayFailure, Span

simplefix = pytest.importorskip("simplefix", reason="pip install -c constraints.txt umdf[dev]")
NOW, MS = 1_794_000_000 * 10**9, 1_000_000
SOH_DATA = b"binary \x01 with 10=000\x01 inside"


def content(sequence: int) -> bytes:
    return b"%d " % sequence + SOH_DATA


class Engine:
    """Messages of the third party, each direction numbered."""

    def __init__(self, own_id: str, peer_id: str, seed: int) -> None:
        self._ids, self._number, self._random = (own_id, peer_id), 0, random.Random(seed)
        self._parser = simplefix.FixParser()

    def message(self, msg_type: str, *fields: tuple[int, Any]) -> bytes:
        """With the fields of the header behind MsgType in any order."""
        self._number += 1
        message = simplefix.FixMessage()
        message.append_pair(8, "FIX.4.4")
        message.append_pair(35, msg_type)
        header = [(49, self._ids[0]), (56, self._ids[1]), (34, self._number), (52, "20261113-12:00:00.000")]
        self._random.shuffle(header)
        for tag, value in (*header, *fields):
            message.append_pair(tag, value)
        return message.encode()

    def read(self, data: bytes) -> list[Any]:
        """Messages, whose lengths and checksums it computes anew."""
        self._parser.append_buffer(data)
        found, encoded = [], b""
        while (message := self._parser.get_message()) is not None:
            found.append(message)
            encoded += message.encode()
        assert encoded == data
        return found


def types(messages: list[Any]) -> list[str]:
    return [message.get(35).decode() for message in messages]


@pytest.mark.parametrize("seed", range(5))
def test_a_third_party_client_gets_what_it_requests(tmp_path: Path, seed: int) -> None:
    history = ChannelHistory(tmp_path)
    history.append((sequence, NOW - 10**9, content(sequence)) for sequence in range(1, 2_001))
    service = ReplayService({"72": history}, ReplaySettings(), Profile(WEEK), lambda: NOW)
    server = ReplayerConnection(ReplayerId("REPLAYER"), CompIds(frozenset()), service, NOW)
    engine = Engine("CLIENT", "REPLAYER", seed)

    def exchange(data: bytes) -> list[Any]:
        server.receive(data, NOW)
        found = []
        while answer := server.take_output(NOW):
            found += engine.read(answer)
        return found

    logon = [(98, 0), (108, 30), (141, "Y")]
    random.Random(seed).shuffle(logon)
    assert types(exchange(engine.message("A", *logon))) == ["A"]
    assert types(exchange(engine.message("1", (112, "are you there")))) == ["0"]
    request = engine.message("BW", (1347, 0), (1346, "q1"), (1351, 1), (1355, "72"), (1183, 2_000), (1182, 11))
    acknowledgment, *parts, report = exchange(request)
    assert (acknowledgment.get(1348), report.get(35), report.get(1426)) == (b"0", b"BY", b"3")
    got: dict[int, bytes] = {}
    for part in parts:
        data, count = part.get(96), int(part.get(10054))
        assert part.get(35) == b"URDR" and int(part.get(911)) == 1_990 and len(part.encode()) < 65_536
        for at in range(1, count + 1):
            # The first 95 is the length of RawData, the others are of the group.
            sequence, offset, size = (int(part.get(tag, nth)) for tag, nth in ((1181, at), (10055, at), (95, at + 1)))
            got[sequence] = data[offset : offset + size]
    assert got == {sequence: content(sequence) for sequence in range(11, 2_001)}
    assert types(exchange(engine.message("5"))) == ["5"] and server.is_closed
    history.close()


class Acceptor:
    """A replayer of the third party: it answers each request of our client in one of the ways of `behaviours`."""

    def __init__(self, behaviours: list[str], seed: int) -> None:
        self._engine, self._behaviours, self._random = (
            Engine("REPLAYER", "CLIENT", seed),
            behaviours,
            random.Random(seed),
        )
        self.requests = 0

    def answer(self, data: bytes) -> bytes:
        output = b""
        for message in self._engine.read(data):
            kind = message.get(35).decode()
            if kind == "A":
                output += self._engine.message("A", (141, "Y"), (108, 30), (98, 0))
            elif kind == "BW":
                output += self._serve(message)
        return output

    def _serve(self, request: Any) -> bytes:
        behaviour = self._behaviours[min(self.requests, len(self._behaviours) - 1)]
        self.requests += 1
        name, first, last = (request.get(tag).decode() for tag in (1346, 1182, 1183))
        one = [(1351, 1), (1355, "72"), (1182, first), (1183, last)]
        if behaviour == "rejects":
            return self._engine.message("j", (45, 2), (372, "BW"), (380, 3), (58, "no"))
        refused = behaviour == "refuses"
        output = self._engine.message("BX", (35021, 0), (1348, 7 if refused else 0), (1347, 0), (1346, name), *one)
        if refused:
            return output
        if behaviour != "drops":
            output += self._raw_data(name, int(first), int(last), behaviour)
        report = [(1347, 0), (1346, name), (1426, 3)]
        self._random.shuffle(report)
        return output + self._engine.message("BY", *report, (1351, 1), (1355, "72"))

    def _raw_data(self, name: str, first: int, last: int, behaviour: str) -> bytes:
        data, group, previous = b"", [], 0
        for sequence in range(first, last + 1):
            own, shift = content(sequence), 10_000 * (behaviour == "other numbers")
            offset = len(data) + 10**6 * (behaviour == "outside")
            entry = [(1350, previous), (95, len(own)), (10055, offset)]
            self._random.shuffle(entry)
            group += [(1181, sequence + shift), *entry]
            data, previous = data + own, sequence
        head = [(1346, name), (911, last - first + 1), (1180, "9" if behaviour == "other channel" else "72")]
        self._random.shuffle(head)
        return self._engine.message("URDR", *head, (95, len(data)), (96, data), (10054, last - first + 1), *group)


def replayed(
    behaviours: list[str], seed: int, step: int = 10**6
) -> tuple[dict[int, bytes], list[ReplayFailure], Acceptor]:
    """What our client has, by parts of so many bytes."""
    client, acceptor, now = ReplayClient(ReplayClientSettings("CLIENT", "REPLAYER")), Acceptor(behaviours, seed), NOW
    client.request(Span(72, 5, 104), now)
    client.open(now)
    got, failed = dict[int, bytes](), list[ReplayFailure]()
    for _ in range(3_000):
        answer = acceptor.answer(client.take_output(now))
        for at in range(0, len(answer), step):
            client.receive(answer[at : at + step], now)
        now += 10 * MS
        client.tick(now)
        for outcome in client.take_outcomes():
            if isinstance(outcome, ReplayedMessages):
                got.update(outcome.messages)
            else:
                failed.append(outcome)
        if client.is_idle:
            break
    return got, failed, acceptor


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("step", [7, 10**6])
def test_our_client_takes_any_order_of_fields_however_slowly_it_comes(seed: int, step: int) -> None:
    got, failed, _ = replayed(["right"], seed, step)
    assert got == {sequence: content(sequence) for sequence in range(5, 105)} and not failed


@pytest.mark.parametrize("wrong", ["drops", "refuses", "other numbers", "other channel", "outside"])
def test_our_client_repeats_a_request_when_an_answer_is_wrong(wrong: str) -> None:
    got, failed, acceptor = replayed([wrong, "right"], 1)
    assert got == {sequence: content(sequence) for sequence in range(5, 105)} and not failed and acceptor.requests == 2
    got, failed, acceptor = replayed([wrong], 1)
    assert not got and sum(len(each.span) for each in failed) == 100 and acceptor.requests == 4


def test_our_client_believes_a_reject() -> None:
    got, failed, acceptor = replayed(["rejects"], 1)
    assert not got and sum(len(each.span) for each in failed) == 100 and acceptor.requests == 1
