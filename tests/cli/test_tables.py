from __future__ import annotations

import os
import pty
import subprocess
import sys

PROGRAM = "from umdf.cli.tables import show_table; show_table(('name', 'state'), [('a [b] c', 'ok'), ('d\\te', 'bad')], {'ok': 'green'})"  # noqa: E501


def on_a_terminal(**environment: str) -> str:
    """What the program writes to a real (pseudo) terminal."""
    ours, theirs = pty.openpty()
    settings = {"TERM": "xterm", "COLUMNS": "60", "PYTHONPATH": ":".join(sys.path), **environment}
    subprocess.run([sys.executable, "-c", PROGRAM], stdout=theirs, env=settings, check=True)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # a closed terminal ends with EIO on Linux
        pass
    os.close(ours)
    return shown.decode()


def test_a_terminal_gets_a_drawn_table_with_colours_and_without_markup() -> None:
    shown = on_a_terminal()
    assert "───" in shown and "\x1b[32mok" in shown and "a [b] c" in shown


def test_no_color_is_respected() -> None:
    assert "\x1b[32m" not in on_a_terminal(NO_COLOR="1")


def test_a_pipe_gets_tabs() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "name\tstate\na [b] c\tok\nd e\tbad\n"
