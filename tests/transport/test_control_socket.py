"""The control socket: only its owner may open it, every line gets an answer, and garbage does no harm."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from umdf.errors import ConfigError
from umdf.transport.control_socket import MAX_LINE_BYTES, ControlServer, request


def echo(line: bytes) -> bytes:
    return b"<" + line + b">"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    server = ControlServer(tmp_path / "x.sock")
    yield server
    server.close()


def ask(server: ControlServer, line: bytes) -> bytes:
    """Send a request from another thread while the server waits."""
    replies: list[bytes] = []
    client = Thread(target=lambda: replies.append(request(server.path, line)))
    client.start()
    while client.is_alive():
        server.wait(0.01, echo)
    client.join()
    return replies[0]


def test_only_the_owner_may_open_it(server: ControlServer) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


def test_each_line_is_answered(server: ControlServer) -> None:
    assert ask(server, b'{"a": 1}') == b'<{"a": 1}>'
    assert ask(server, b"") == b"<>"


def test_pieces_of_lines_and_many_lines_at_once_are_answered_in_order(server: ControlServer) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(server.path))
        client.settimeout(5)
        for piece in (b"on", b"e\ntwo\nth", b"ree\n"):
            client.sendall(piece)
            server.wait(0.01, echo)
        received = b""
        while received.count(b"\n") < 3:
            received += client.recv(100)
    assert received == b"<one>\n<two>\n<three>\n"


def test_a_line_without_end_is_cut_off_and_the_others_go_on(server: ControlServer) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(server.path))
        client.setblocking(False)
        sent = 0
        while sent <= MAX_LINE_BYTES:
            try:
                sent += client.send(b"x" * 65_536)
            except BlockingIOError:
                server.wait(0.001, echo)
            except (BrokenPipeError, ConnectionResetError):
                break
        for _ in range(100):
            server.wait(0.001, echo)
        client.settimeout(5)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while True:
                client.send(b"x" * 65_536)
    assert ask(server, b"still here") == b"<still here>"


def test_the_socket_of_a_running_exchange_is_refused_and_a_stale_one_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    first = ControlServer(path)
    with pytest.raises(ConfigError, match="another exchange is running"):
        ControlServer(path)
    first.close()
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    ControlServer(path).close()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="exists and is not a socket"):
        ControlServer(path)
    assert path.read_text() == "mine"


def test_no_exchange_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no exchange is listening at .*: No such file"):
        request(tmp_path / "none", b"{}")
    with pytest.raises(ConfigError, match="too long"):
        ControlServer(tmp_path / ("x" * 200))
