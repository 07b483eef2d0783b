"""Checks of snapshots, and of the answers of a TCP Replayer (FIX 4.4)."""

from __future__ import annotations

from dataclasses import dataclass

from umdf.certify.book_expectations import side_text
from umdf.certify.observation import SECURITY_GROUP, SIDE_NAMES, SNAPSHOT, BookState, Observation, Tags

ANY, EMPTY, BIDS, ASKS, MARKET_BID = "any", "empty", "bids", "asks", "market order bid"
BOOK_TEXTS = {
    ANY: "", EMPTY: ", empty book", BIDS: ", BID side only", ASKS: ", ASK side only",
    MARKET_BID: ", order without a price first on BID",
}  # fmt: skip
OF_A_SESSION = {"2": "a trade", "7": "a high", "8": "a low", "9": "a VWAP"}  # statistics that 1174=4 resets (11.3)


@dataclass(frozen=True)
class Snapshot:
    """A Snapshot Full Refresh of the instrument: the phase of its group (625), its own state (326), its book.

    Binary has 625 in SecurityGroupPhase_10 and 326 in SecurityStatus_3 of the same loop.
    """

    phase: int | None = None
    state: int | None = None
    session: int | None = None  # 336
    book: str = ANY
    is_new_session: bool = False  # no statistics of the session before

    @property
    def text(self) -> str:
        tags = " ".join(f"{tag}={value}" for tag, value in self._wanted().items())
        fresh = ", no trade statistics of the day before" if self.is_new_session else ""
        return f"Snapshot Full Refresh (35=W) {tags}{BOOK_TEXTS[self.book]}{fresh}"

    def failure(self, seen: Observation) -> str | None:
        entries = last_snapshot(seen)
        if not entries:
            return "no Snapshot Full Refresh (35=W) of the instrument was received"
        found = status_of(seen, entries)
        for tag, value in self._wanted().items():
            if found.get(tag) is None or int(found[tag]) != value:
                return f"the snapshot has {tag}={found.get(tag, 'absent')}, expected {value}"
        if self.is_new_session:
            left = [text for code, text in OF_A_SESSION.items() if any(entry.get(269) == code for entry in entries)]
            if left:
                return f"the snapshot still has {', '.join(left)} of the session before (1174=4 resets them)"
        return self._book_failure(seen, entries)

    def _wanted(self) -> dict[int, int]:
        found = {625: self.phase, 326: self.state, 336: self.session}
        return {tag: value for tag, value in found.items() if value is not None}

    def _book_failure(self, seen: Observation, entries: list[Tags]) -> str | None:
        sides = {entry.get(269) for entry in entries} & {"0", "1"}
        expected = {EMPTY: set[str](), BIDS: {"0"}, ASKS: {"1"}}.get(self.book)
        after: BookState = seen.after
        shown = f"BID {side_text(after.bids)}; ASK {side_text(after.asks)}"
        if expected is not None:
            if sides != expected:
                return f"the snapshot has entries 269={', '.join(sorted(filter(None, sides))) or 'none'}: {shown}"
            if (bool(after.bids), bool(after.asks)) != ("0" in expected, "1" in expected):
                return f"the book after recovery is another one: {shown}"
        if self.book == MARKET_BID:
            first = next((entry for entry in entries if entry.get(269) == "0"), None)
            if first is None or first.get(270) is not None:
                return f"the first BID of the snapshot is {first.get(270) if first else 'absent'}: {shown}"
            if not after.bids or after.bids[0].price is not None:
                return f"the best BID has a price: {shown}"
        return None


def last_snapshot(seen: Observation) -> list[Tags]:
    """The entries of the last snapshot of the instrument; in Binary, of all messages that belong to it."""
    if seen.protocol == "fast":
        found = [
            message
            for message in seen.messages
            if message.stream == SNAPSHOT
            and message.msg_type == "W"
            and message.entries[0].get(48) == str(seen.security_id)
        ]
        return list(found[-1].entries) if found else []
    own: list[Tags] = []
    for message in seen.messages:
        if message.stream != SNAPSHOT or message.entries[0].get(48) != str(seen.security_id):
            continue
        if message.msg_type == "W" and 369 in message.entries[0]:  # SnapshotFullRefresh_Header_30
            own = []
        own += message.entries
    return own if any(369 in entry for entry in own) else []


def status_of(seen: Observation, entries: list[Tags]) -> dict[int, str]:
    """Tags 625, 326 and 336 of a snapshot."""
    found: dict[int, str] = {}
    for entry in entries:
        found |= {tag: entry[tag] for tag in (625, 326, 336) if tag in entry}
    if seen.protocol == "sbe":
        phases = [e for e in seen.entries(SNAPSHOT, "f") if e.get(SECURITY_GROUP) == seen.group]
        if phases:
            found |= {tag: phases[-1][tag] for tag in (625, 336) if tag in phases[-1]}
    return found


@dataclass(frozen=True)
class HasOrders:
    """The recovered book has orders on one side only."""

    side: int

    @property
    def text(self) -> str:
        return f"the recovered book has {SIDE_NAMES[self.side]} orders only"

    def failure(self, seen: Observation) -> str | None:
        own, other = seen.after.side(self.side), seen.after.side(1 - self.side)
        if own and not other:
            return None
        return f"the book has {SIDE_NAMES[self.side]} {side_text(own)}; {SIDE_NAMES[1 - self.side]} {side_text(other)}"


@dataclass(frozen=True)
class IndexValue:
    """A value of an index (269=3)."""

    @property
    def text(self) -> str:
        return "index value: 279=0 269=3 270"

    def failure(self, seen: Observation) -> str | None:
        values = [entry for entry in seen.own_entries() if entry.get(269) == "3" and entry.get(270)]
        return None if values else "no index value (269=3) was received"


@dataclass(frozen=True)
class Logon:
    """The replayer acknowledges the logon."""

    @property
    def text(self) -> str:
        return "Logon acknowledged (35=A)"

    def failure(self, seen: Observation) -> str | None:
        found = [message.msg_type for message in seen.replies]
        return None if "A" in found else f"no 35=A was received: {', '.join(found) or 'nothing'}"


@dataclass(frozen=True)
class ReplayAnswer:
    """Request acknowledgment (BX), then messages (URDR) and a report (BY), as far as the request is accepted."""

    response: int = 0  # 1348 of the acknowledgment
    report: int | None = 3  # 1426
    error: int | None = None  # 1354, of the report, or of the acknowledgment if that is the end
    count: int | None = None  # messages that must come; None: at least one

    @property
    def text(self) -> str:
        error = f" 1354={self.error}" if self.error is not None else ""
        if self.report is None:
            return f"35=BX 1348={self.response}{error}"
        data = "35=URDR, " if self.error is None else ""
        return f"35=BX 1348={self.response}, {data}35=BY 1426={self.report}{error}"

    def failure(self, seen: Observation) -> str | None:
        tags = {kind: [dict(m.fields) for m in seen.replies if m.msg_type == kind] for kind in ("BX", "URDR", "BY")}
        if not tags["BX"]:
            return "the request was not answered: no 35=BX"
        acknowledgment = tags["BX"][-1]
        if acknowledgment.get(1348) != str(self.response):
            return f"35=BX has 1348={acknowledgment.get(1348, 'absent')}, expected {self.response}"
        if self.report is None:
            return self._error_failure("BX", acknowledgment)
        if not tags["BY"]:
            return "no report ended the answer: no 35=BY"
        report = tags["BY"][-1]
        if report.get(1426) != str(self.report):
            return f"35=BY has 1426={report.get(1426, 'absent')}, expected {self.report}"
        if self.error is not None:
            return self._error_failure("BY", report)
        return self._data_failure(tags["URDR"])

    def _error_failure(self, kind: str, tags: dict[int, str]) -> str | None:
        found = tags.get(1354)
        wanted = None if self.error is None else str(self.error)
        return None if found == wanted else f"35={kind} has 1354={found or 'absent'}, expected {wanted or 'none'}"

    def _data_failure(self, parts: list[dict[int, str]]) -> str | None:
        if not parts:
            return "no raw data came: no 35=URDR"
        count = sum(int(part.get(10054, "0")) for part in parts)  # NoApplSeqNums of each
        if self.count is not None and count != self.count:
            return f"{count} messages were replayed, expected {self.count}"
        return None if count else "the raw data has no message"
