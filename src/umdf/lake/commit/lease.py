"""One writer per lake: a lease with an owner, a heartbeat and an increasing token.

Leases are numbered files; the number is the token, and the process that creates the next number holds the lease. A
lease ends when its owner releases it; if the owner is dead or silent, another process takes over with a higher token.
Invariant: having held a lease proves nothing later. A commit checks it again, and creating the numbered intent, which
only one process can, decides (umdf.lake.commit.writer).
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from umdf.errors import UmdfError
from umdf.lake import atomic_files

HEARTBEAT_S = 5.0
STALE_S = 60.0
POLL_S = 0.25
Clock = Callable[[], int]  # nanoseconds UTC
Sleep = Callable[[float], None]


@dataclass(frozen=True)
class Owner:
    """A process, identified so that another one with the same PID is not mistaken for it."""

    host: str
    pid: int
    started: str  # start time, in the kernel's ticks
    what: str

    def __str__(self) -> str:
        return f"{self.what} (process {self.pid} on {self.host.partition('/')[0]})"


def this_process(what: str) -> Owner:
    return Owner(_host(), os.getpid(), _start_time(os.getpid()), what)


def _host() -> str:
    """Host name, boot ID and PID namespace: a PID identifies a process only if all three are the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        return f"{platform.node()}/{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _start_time(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_dead(owner: Owner) -> bool:
    """Whether the process ran on this host and has ended."""
    if owner.host != _host():
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _start_time(owner.pid) != owner.started


@dataclass(frozen=True)
class LeaseRecord:
    """The content of a lease file."""

    token: int
    owner: Owner
    heartbeat_ns: int
    released: bool = False


def latest_lease(leases: Path) -> LeaseRecord | None:
    """The lease with the highest number: the only one that counts."""
    while True:
        numbers = [int(path.stem) for path in leases.glob("[0-9]*.json")] if leases.is_dir() else []
        if not numbers:
            return None
        try:
            record = atomic_files.read_json_as(_path(leases, max(numbers)), _record_from_json)
        except atomic_files.DamagedError as error:
            raise UmdfError(error.reason, "if no other process writes to this lake, delete that file") from error
        if record is not None:  # else a newer lease has just deleted it
            return record


def _record_from_json(content: dict[str, Any]) -> LeaseRecord:
    return LeaseRecord(content["token"], Owner(**content["owner"]), content["heartbeat_ns"], content["released"])


def _path(leases: Path, token: int) -> Path:
    return leases / f"{token:08d}.json"


class Lease:
    """The lease of this process, from `acquire` to `release`. `start_heartbeat` keeps it alive in a thread."""

    def __init__(self, leases: Path, record: LeaseRecord, taken_over: LeaseRecord | None, clock: Clock) -> None:
        self.leases = leases
        self.record = record
        self.taken_over = taken_over  # the previous lease, if it was not released
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def token(self) -> int:
        return self.record.token

    def check(self) -> None:
        """Raise if another process holds the lease now."""
        now = latest_lease(self.leases)
        if now is None or now.token != self.token or now.released:
            how = f"taken over by {now.owner}" if now else "removed"
            raise UmdfError(f"the lease was {how}; nothing was committed", "run the command again")

    def send_heartbeat(self) -> bool:
        """Write a heartbeat; False if the lease is over."""
        with self._lock:
            if self._stop.is_set():
                return False
            now = latest_lease(self.leases)
            if now is None or now.token != self.token:
                return False
            self.record = replace(self.record, heartbeat_ns=self._clock())
            atomic_files.replace(_path(self.leases, self.token), asdict(self.record))
            return True

    def start_heartbeat(self, interval_s: float = HEARTBEAT_S) -> None:
        def run() -> None:
            while not self._stop.wait(interval_s):
                try:
                    if not self.send_heartbeat():
                        return
                except UmdfError:  # a full disk: the next heartbeat may succeed, and a commit will report it
                    continue

        self._thread = threading.Thread(target=run, name="umdf-lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()
        with self._lock:
            now = latest_lease(self.leases)
            if now is not None and now.token == self.token and not now.released:
                atomic_files.replace(_path(self.leases, self.token), asdict(replace(self.record, released=True)))


def acquire(
    leases: Path,
    what: str,
    *,
    writer_wait_s: float = 0.0,
    stale_s: float = STALE_S,
    clock: Clock = time.time_ns,
    sleep: Sleep = time.sleep,
    owner: Owner | None = None,
) -> Lease:
    """Acquire the lake's lease. If another process holds it, wait up to `writer_wait_s`, then raise with its name."""
    owner = owner or this_process(what)
    until_ns = clock() + int(writer_wait_s * 1e9)
    while True:
        current = latest_lease(leases)
        if current is None or current.released or _is_stale(current, clock(), stale_s):
            record = LeaseRecord(current.token + 1 if current else 1, owner, clock())
            if atomic_files.create_exclusively(_path(leases, record.token), asdict(record)):
                for old in leases.glob("[0-9]*.json"):
                    if int(old.stem) < record.token:
                        old.unlink(missing_ok=True)
                return Lease(leases, record, current if current and not current.released else None, clock)
            continue  # another process was faster: check again
        if clock() >= until_ns:
            silent_s = (clock() - current.heartbeat_ns) / 1e9
            raise UmdfError(
                f"the lake is locked by {current.owner}, last active {silent_s:.0f} s ago",
                "wait with --writer-wait-s SECONDS, or stop it",
            )
        sleep(POLL_S)


def _is_stale(record: LeaseRecord, now_ns: int, stale_s: float) -> bool:
    return is_dead(record.owner) or now_ns - record.heartbeat_ns > stale_s * 1e9
