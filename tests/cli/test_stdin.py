"""Commands on stdin and on pipes: read once, or refused; nobody waits for ever."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard
from cli.test_decode import BEAT, ORDER, capture
from cli.test_decode_fast import ONE, TWO, frame

from umdf.cli.app import run
from umdf.wire.sbe.compose import Packet

Shown = pytest.CaptureFixture[str]
FAULT = 3


@contextmanager
def stdin_of(data: bytes, piece_bytes: int = 1 << 16) -> Iterator[None]:
    """A pipe as stdin, written to in parts."""
    reading, writing = os.pipe()
    kept = os.dup(0)
    os.dup2(reading, 0)
    os.close(reading)
    writer = threading.Thread(target=_write, args=(writing, data, piece_bytes))
    writer.start()
    try:
        yield
    finally:
        os.dup2(kept, 0)  # now nobody reads: who still writes is told so
        os.close(kept)
        writer.join()


def _write(target: int, data: bytes, piece_bytes: int) -> None:
    try:
        for at in range(0, len(data), piece_bytes):
            os.write(target, data[at : at + piece_bytes])
    except BrokenPipeError:
        pass
    finally:
        os.close(target)


@pytest.fixture(name="day")
def _day(tmp_path: Path) -> Path:
    packets = [Packet([BEAT, ("Order_MBO_50", ORDER)], 72, 1, number) for number in range(1, 60)]
    return capture(tmp_path / "day.pcap", packets)


PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("piece_bytes", [1, 1 << 16])
def test_decode_reads_stdin_whatever_it_is_and_however_slowly_it_comes(
    packing: str, piece_bytes: int, day: Path, capsys: Shown
) -> None:
    assert run(["decode", str(day), "--json"]) == 0
    expected = capsys.readouterr().out
    for name in ("-", "/dev/stdin"):
        with stdin_of(PACKINGS[packing](day.read_bytes()), piece_bytes):
            assert run(["decode", name, "--json"]) == 0
        assert [_message(line) for line in capsys.readouterr().out.splitlines()] == [
            _message(line) for line in expected.splitlines()
        ]


def _message(line: str) -> dict[str, object]:
    """Without the name of the file."""
    return {name: value for name, value in json.loads(line).items() if name != "file"}


def test_decode_reads_a_raw_stream_from_stdin(capsys: Shown) -> None:
    with stdin_of(frame(1, ONE) + frame(2, TWO)):
        assert run(["decode", "-", "--json"]) == 0
    assert [json.loads(line)["sequence"] for line in capsys.readouterr().out.splitlines()] == [1, 2]


def test_damage_in_stdin_is_reported_as_in_a_file(day: Path, capsys: Shown) -> None:
    raw = bytearray(day.read_bytes())
    raw[24 + 8 : 24 + 12] = b"\xf0\xff\xff\xff"
    with stdin_of(bytes(raw)):
        assert run(["decode", "-", "--json", "--strict"]) == 4
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2 * 58
    assert "stdin: at offset 24: the record claims 4294967280 bytes" in shown.err and "bytes unread" in shown.err


def test_explain_reads_stdin(day: Path, capsys: Shown) -> None:
    with stdin_of(day.read_bytes()):
        assert run(["explain", "-", "--packet", "7"]) == 0
    assert "sequenceNumber" in capsys.readouterr().out


@pytest.mark.parametrize("data", [b"", b"hello, world: this is no capture"], ids=["empty", "text"])
def test_stdin_that_is_no_capture_is_a_clear_error(data: bytes, capsys: Shown) -> None:
    with stdin_of(data):
        assert run(["decode", "-"]) == FAULT
    said = capsys.readouterr()
    assert (
        said.out == "" and said.err.startswith(("umdf: stdin: ", "umdf: stdin is not ")) and said.err.count("\n") == 1
    )


@pytest.mark.parametrize("words", [("book",), ("ingest", "--no-spark", "--lake", "lake")], ids=["book", "ingest"])
def test_commands_that_read_twice_reject_pipes(
    words: tuple[str, ...], day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Shown
) -> None:
    monkeypatch.chdir(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # nobody writes to it: who opens it waits for ever
    with stdin_of(day.read_bytes()):
        for name in ("-", "/dev/stdin", str(pipe)):
            assert run([words[0], name, *words[1:]]) == FAULT
            assert "read only once" in capsys.readouterr().err
    assert not (tmp_path / "lake").exists()


def test_decode_reads_a_named_pipe(day: Path, tmp_path: Path, capsys: Shown) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(day.read_bytes()))
    writer.start()
    assert run(["decode", str(pipe), "--json"]) == 0
    writer.join()
    assert len(capsys.readouterr().out.splitlines()) == 2 * 59


def test_a_wrong_checksum_is_quarantined_and_not_decoded(day: Path, tmp_path: Path, capsys: Shown) -> None:
    raw = bytearray(day.read_bytes())
    raw[-1] ^= 1
    day.write_bytes(raw)
    faults = tmp_path / "faults.jsonl"
    assert run(["decode", str(day), "--json", "--quarantine", str(faults), "--strict"]) == 4
    assert len(capsys.readouterr().out.splitlines()) == 2 * 58
    fault = json.loads(faults.read_text())
    assert fault["packet"] == 59 and "wrong UDP checksum (record at file offset " in fault["reason"]
    assert run(["book", str(day), "--json"]) == 0
    assert "wrong UDP checksum; 1 packets skipped" in capsys.readouterr().err
    assert run(["explain", str(day), "--packet", "59"]) == 0
