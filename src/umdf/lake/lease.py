"""One writer per lake: a lease with an owner, a heartbeat and a token that only grows.

Leases are numbered files; the number is the token, and whoever creates the next number has it. A lease ends when its
owner says so; one whose owner is dead or silent is taken over with a higher token. The one rule: holding a lease proves
nothing later; a commit asks again, and its numbered intent, created only once, decides (umdf.lake.writer).
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
from umdf.lake import durable

HEARTBEAT_S = 5.0
STALE_S = 60.0
POLL_S = 0.25
Clock = Callable[[], int]  # nanoseconds UTC
Sleep = Callable[[float], None]


@dataclass(frozen=True)
class Owner:
    """A process, such that another one of the same number is not mistaken for it."""

    host: str
    pid: int
    started: str  # by the kernel's clock
    what: str

    def __str__(self) -> str:
        return f"{self.what} (process {self.pid} on {self.host.partition('/')[0]})"


def this_process(what: str) -> Owner:
    return Owner(_host(), os.getpid(), _started(os.getpid()), what)


def _host() -> str:
    """Name, boot and process namespace: the same number means the same process only where all three are the same."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        return f"{platform.node()}/{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_dead(owner: Owner) -> bool:
    """Known to be gone: of this host, and no process is it any more."""
    if owner.host != _host():
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _started(owner.pid) != owner.started


@dataclass(frozen=True)
class Held:
    """What a lease file says."""

    token: int
    owner: Owner
    heartbeat_ns: int
    released: bool = False


def newest(leases: Path) -> Held | None:
    """The lease with the highest number: the only one that counts."""
    while True:
        numbers = [int(path.stem) for path in leases.glob("[0-9]*.json")] if leases.is_dir() else []
        if not numbers:
            return None
        try:
            held = durable.read_as(_path(leases, max(numbers)), _held)
        except durable.DamagedError as error:
            raise UmdfError(error.reason, "if no other process writes to this lake, delete that file") from error
        if held is not None:  # else a newer one has just tidied it away
            return held


def _held(said: dict[str, Any]) -> Held:
    return Held(said["token"], Owner(**said["owner"]), said["heartbeat_ns"], said["released"])


def _path(leases: Path, token: int) -> Path:
    return leases / f"{token:08d}.json"


class Lease:
    """Ours, from `acquire` to `release`. Beats by itself between `start_beating` and `release`."""

    def __init__(self, leases: Path, held: Held, taken_over: Held | None, clock: Clock) -> None:
        self.leases = leases
        self.held = held
        self.taken_over = taken_over  # whose lease had not ended
        self._clock = clock
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def token(self) -> int:
        return self.held.token

    def check(self) -> None:
        """Ours still; else one clear error."""
        now = newest(self.leases)
        if now is None or now.token != self.token or now.released:
            by = f"{now.owner}" if now else "someone who removed it"
            raise UmdfError(f"the lake was taken over by {by} meanwhile; nothing was committed", "run it again")

    def beat(self) -> bool:
        """Say that we are alive; False if nobody cares any more."""
        with self._guard:
            if self._ended.is_set():
                return False
            now = newest(self.leases)
            if now is None or now.token != self.token:
                return False
            self.held = replace(self.held, heartbeat_ns=self._clock())
            durable.replace(_path(self.leases, self.token), asdict(self.held))
            return True

    def start_beating(self, every_s: float = HEARTBEAT_S) -> None:
        def run() -> None:
            while not self._ended.wait(every_s):
                try:
                    if not self.beat():
                        return
                except UmdfError:  # a full disk: the next beat may succeed, and a commit will say so
                    continue

        self._thread = threading.Thread(target=run, name="umdf-lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        self._ended.set()
        if self._thread:
            self._thread.join()
        with self._guard:
            now = newest(self.leases)
            if now is not None and now.token == self.token and not now.released:
                durable.replace(_path(self.leases, self.token), asdict(replace(self.held, released=True)))


def acquire(
    leases: Path,
    what: str,
    *,
    wait_s: float = 0.0,
    stale_s: float = STALE_S,
    clock: Clock = time.time_ns,
    sleep: Sleep = time.sleep,
    owner: Owner | None = None,
) -> Lease:
    """The lake's lease. If another process has it: wait, at most `wait_s`, else an error that names the holder."""
    owner = owner or this_process(what)
    until_ns = clock() + int(wait_s * 1e9)
    while True:
        current = newest(leases)
        if current is None or current.released or _is_stale(current, clock(), stale_s):
            held = Held(current.token + 1 if current else 1, owner, clock())
            if durable.create_once(_path(leases, held.token), asdict(held)):
                for old in leases.glob("[0-9]*.json"):
                    if int(old.stem) < held.token:
                        old.unlink(missing_ok=True)
                return Lease(leases, held, current if current and not current.released else None, clock)
            continue  # another one was quicker: look who
        if clock() >= until_ns:
            silent_s = (clock() - current.heartbeat_ns) / 1e9
            raise UmdfError(
                f"the lake is being written by {current.owner}, heard of {silent_s:.0f} s ago",
                "wait for it (--wait-s SECONDS), or end it",
            )
        sleep(POLL_S)


def _is_stale(held: Held, now_ns: int, stale_s: float) -> bool:
    return is_dead(held.owner) or now_ns - held.heartbeat_ns > stale_s * 1e9
