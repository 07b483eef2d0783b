"""One writer per lake."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from umdf.errors import UmdfError
from umdf.lake.commit import lease
from umdf.lake.commit.lease import acquire, latest_lease, this_process

SECOND = 10**9


class Time:
    """A clock that moves when someone sleeps, and what else happens then."""

    def __init__(self) -> None:
        self.now = 1_000 * SECOND
        self.at: dict[int, object] = {}
        self.slept = 0

    def clock(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)
        self.slept += 1
        happening = self.at.get(self.slept)
        if callable(happening):
            happening()


def test_a_second_writer_gets_an_error_that_names_the_first(tmp_path: Path) -> None:
    time = Time()
    held = acquire(tmp_path, "umdf ingest", clock=time.clock, sleep=time.sleep)
    time.now += 7 * SECOND
    with pytest.raises(
        UmdfError, match=rf"locked by umdf ingest \(process {os.getpid()} on .*last active 7 s ago; wait"
    ):
        acquire(tmp_path, "umdf lake compact", clock=time.clock, sleep=time.sleep)
    held.release()
    assert acquire(tmp_path, "x", clock=time.clock).token == 2


def test_a_second_writer_can_wait(tmp_path: Path) -> None:
    time = Time()
    held = acquire(tmp_path, "first", clock=time.clock)
    time.at = {4: held.release}
    second = acquire(tmp_path, "second", writer_wait_s=10, clock=time.clock, sleep=time.sleep)
    assert (second.token, time.slept, second.taken_over) == (2, 4, None)
    with pytest.raises(UmdfError, match="locked by second"):
        acquire(tmp_path, "third", writer_wait_s=2, clock=time.clock, sleep=time.sleep)
    assert time.slept == 4 + 8


def test_a_silent_writer_is_taken_over_and_notices(tmp_path: Path) -> None:
    time = Time()
    first = acquire(tmp_path, "first", clock=time.clock)
    time.now += 59 * SECOND
    assert first.send_heartbeat()
    time.now += 59 * SECOND
    first.check()
    time.now += 2 * SECOND
    second = acquire(tmp_path, "second", clock=time.clock)
    assert second.token == 2 and second.taken_over == first.record
    with pytest.raises(UmdfError, match="taken over by second"):
        first.check()
    assert not first.send_heartbeat()
    first.release()  # of a lease that is not ours any more: nothing
    second.check()
    assert [path.name for path in tmp_path.iterdir()] == ["00000002.json"]


def test_a_dead_writer_of_this_host_is_taken_over_at_once(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    me = this_process("child")
    owner = dataclasses.replace(me, pid=child.pid, started=lease._start_time(child.pid))
    acquire(tmp_path, "child", owner=owner)
    with pytest.raises(UmdfError, match="locked by child"):
        acquire(tmp_path, "second")
    child.communicate(b"\n")
    assert acquire(tmp_path, "second").token == 2


def test_a_reused_process_number_is_another_process_and_another_host_is_not_asked(tmp_path: Path) -> None:
    me = this_process("me")
    assert not lease.is_dead(me)
    assert lease.is_dead(dataclasses.replace(me, started="1"))
    assert not lease.is_dead(dataclasses.replace(me, started="1", host="elsewhere"))


def test_of_two_takeovers_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()
    acquire(tmp_path, "first", clock=time.clock)
    time.now += 100 * SECOND
    create, rivals = lease.atomic_files.create_exclusively, []

    def rival_is_quicker(path: Path, content: dict[str, object]) -> bool:
        if not rivals:
            rivals.append(None)
            rivals[0] = acquire(tmp_path, "rival", clock=time.clock)
        return create(path, content)

    monkeypatch.setattr(lease.atomic_files, "create_exclusively", rival_is_quicker)
    with pytest.raises(UmdfError, match="locked by rival"):
        acquire(tmp_path, "second", clock=time.clock)
    found = latest_lease(tmp_path)
    assert found is not None and (found.token, found.owner.what) == (2, "rival")


def test_it_beats_by_itself(tmp_path: Path) -> None:
    held = acquire(tmp_path, "x")
    before = held.record.heartbeat_ns
    held.start_heartbeat(interval_s=0.01)
    for _ in range(500):
        found = latest_lease(tmp_path)
        assert found is not None
        if found.heartbeat_ns > before:
            break
        lease.time.sleep(0.01)
    assert found.heartbeat_ns > before
    held.release()
    found = latest_lease(tmp_path)
    assert found is not None and found.released
