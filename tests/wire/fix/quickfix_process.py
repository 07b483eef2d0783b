"""QuickFIX in a process of its own, because some of its builds crash when they stop.

    python quickfix_process.py DIRECTORY ROLE PORT OWN OTHER     # ROLE: initiator or acceptor

Commands are lines of JSON on standard input, a name and its arguments; what happens is written as lines of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import quickfix as fix  # type: ignore[import-not-found]
from quickfix_dictionary import dictionary_xml

GROUPS = {1351: (1355, 1182, 1183, 1354, 35021, 1357), 10054: (1181, 1350, 10055, 95)}
TAGS = (
    34, 35, 43, 58, 112, 123, 36, 371, 373, 911, 1180, 1346, 1347, 1348, 1353, 1356, 1426, 96,
)  # fmt: skip

PART, SLOW_S = 40, 0.3  # messages of a report, and how long one takes if the replayer is slow
OUTPUT = Lock()  # QuickFIX calls from several threads


def content(sequence: int) -> str:
    return f"{sequence}|\x0110=000\x0195=3\x01|"


def report(event: str, *values: Any) -> None:
    with OUTPUT:
        print(json.dumps([event, *values]), flush=True)


def make_message(msg_type: str, fields: list[list[Any]], *groups: list[list[list[Any]]]) -> Any:
    """Fields are tags and values; a group is a list of entries, the first of whose fields is its count tag."""
    own = fix.Message()
    own.getHeader().setField(fix.StringField(8, "FIX.4.4"))
    own.getHeader().setField(fix.StringField(35, msg_type))
    for tag, value in fields:
        own.setField(fix.StringField(tag, str(value)))
    for entries in groups:
        for (count_tag, _), *members in entries:
            entry = fix.Group(count_tag, members[0][0])
            for tag, value in members:
                entry.setField(fix.StringField(tag, str(value)))
            own.addGroup(entry)
    return own


def read_message(message: Any) -> tuple[dict[int, str], dict[int, list[dict[int, str]]]]:
    """The fields and groups of a message; RawData (96) as hexadecimal digits."""
    fields, groups = dict[int, str](), dict[int, list[dict[int, str]]]()
    for part in (message.getHeader(), message):
        fields |= {tag: part.getField(tag) for tag in TAGS if part.isSetField(tag)}
    if 96 in fields:
        fields[96] = fields[96].encode("utf-8", "surrogateescape").hex()
    for count_tag, tags in GROUPS.items():
        for number in range(1, int(message.getField(count_tag)) + 1) if message.isSetField(count_tag) else ():
            entry = fix.Group(count_tag, tags[0])
            message.getGroup(number, entry)
            own = {tag: entry.getField(tag) for tag in tags if entry.isSetField(tag)}
            groups.setdefault(count_tag, []).append(own)
    return fields, groups


def answers(behaviour: str, fields: dict[int, str], group: dict[int, str]) -> Iterator[Any]:
    """What a replayer sends for a request."""
    if behaviour == "rejects":
        yield make_message("j", [[372, "BW"], [380, 3], [58, "not today"]])
    if behaviour in ("rejects", "is silent"):
        return
    channel, first, last = group[1355], int(group[1182]), int(group[1183])
    head = [[1346, fields[1346]], [1353, "R1"]]
    status = [[[1351, 1], [1355, channel], [1182, first], [1183, last], [35021, 0]]]
    yield make_message("BX", [*head, [1347, 0], [1348, 0]], status)
    if behaviour == "acknowledges":
        return
    for part in range(first, last + 1, PART):
        time.sleep(SLOW_S if behaviour == "slow" else 0)
        yield raw_data(behaviour, head, channel, range(part, min(part + PART, last + 1)), last - first + 1)
        if behaviour == "drops":
            yield None
            return
    yield make_message("BY", [*head, [1356, "E1"], [1426, 3], [1347, 0]], [[[1351, 1], [1355, channel], [1357, last]]])


def raw_data(behaviour: str, head: list[list[Any]], channel: str, numbers: range, total: int) -> Any:
    """A report with these messages, unless it is a lie."""
    data, members, previous = "", [], 0
    for sequence in numbers:
        own = content(sequence)
        number = sequence + 10_000 * (behaviour == "other numbers")
        offset, size = len(data) + 10**6 * (behaviour == "outside"), len(own) + 10**6 * (behaviour == "too long")
        members.append([[10054, 0], [1181, number], [1350, previous], [10055, offset], [95, size]])
        data, previous = data + own, sequence
    channel = "9" if behaviour == "other channel" else channel
    body = [[1180, channel], [1352, "Y"], [95, len(data)], [96, data], [911, total]]
    return make_message("URDR", [*head, *body], members)


class Peer(fix.Application):
    def __init__(self) -> None:
        super().__init__()
        self.session_id: Any = None
        self.behaviours = ["serves"]
        self.sender_id = ""

    def onCreate(self, session_id: Any) -> None:  # noqa: N802
        self.session_id = session_id

    def onLogon(self, session_id: Any) -> None:  # noqa: N802
        report("logon")

    def onLogout(self, session_id: Any) -> None:  # noqa: N802
        report("logout")

    def toAdmin(self, message: Any, session_id: Any) -> None:  # noqa: N802
        pass

    def toApp(self, message: Any, session_id: Any) -> None:  # noqa: N802
        if self.sender_id:
            message.getHeader().setField(fix.StringField(49, self.sender_id))

    def fromAdmin(self, message: Any, session_id: Any) -> None:  # noqa: N802
        report("message", *read_message(message))

    def fromApp(self, message: Any, session_id: Any) -> None:  # noqa: N802
        fields, groups = read_message(message)
        report("message", fields, groups)
        if fields[35] == "BW":
            behaviour = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
            for reply in answers(behaviour, fields, groups[1351][0]):
                if reply is None:
                    fix.Session.lookupSession(self.session_id).disconnect()
                else:
                    fix.Session.sendToTarget(reply, self.session_id)

    # Commands

    def send(self, msg_type: str, fields: list[list[Any]], *groups: list[list[list[Any]]]) -> None:
        assert fix.Session.sendToTarget(make_message(msg_type, fields, *groups), self.session_id)

    def forget(self, number: int) -> None:
        """Expect a number that was received already."""
        fix.Session.lookupSession(self.session_id).setNextTargetMsgSeqNum(number)

    def logout(self) -> None:
        fix.Session.lookupSession(self.session_id).logout()

    def logon(self) -> None:
        fix.Session.lookupSession(self.session_id).logon()

    def behave(self, *behaviours: str) -> None:
        self.behaviours = list(behaviours)

    def send_as(self, sender_id: str) -> None:
        self.sender_id = sender_id


def main(directory: str, role: str, port: str, own: str, other: str) -> None:
    dictionary, config = Path(directory, "replayer.xml"), Path(directory, f"{role}.cfg")
    dictionary.write_text(dictionary_xml())
    where = {"initiator": "SocketConnectHost=127.0.0.1\nSocketConnectPort", "acceptor": "SocketAcceptPort"}[role]
    config.write_text(
        f"[DEFAULT]\nConnectionType={role}\nReconnectInterval=1\nStartTime=00:00:00\nEndTime=00:00:00\n"
        f"UseDataDictionary=Y\nDataDictionary={dictionary}\nHeartBtInt=1\nResetOnLogon=Y\n"
        f"[SESSION]\nBeginString=FIX.4.4\nSenderCompID={own}\nTargetCompID={other}\n{where}={port}\n"
    )
    peer, settings, stores = Peer(), fix.SessionSettings(str(config)), fix.MemoryStoreFactory()
    engine = {"initiator": fix.SocketInitiator, "acceptor": fix.SocketAcceptor}[role](peer, stores, settings)
    engine.start()
    report("started")
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        getattr(peer, name)(*arguments)
        report("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
