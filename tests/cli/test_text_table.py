from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from umdf.cli.text_table import fit_columns

TABLE = (
    "from umdf.cli.text_table import print_table; print_table({columns!r}, {rows!r}, {{'ok': 'green'}}, keep={keep!r})"
)
PROGRAM = TABLE.format(columns=("name", "state"), rows=[("a [b] c", "ok"), ("d\te", "bad")], keep=())
STEERING = "news\x1b[31m\x07\r\x85\u202e|\n end"  # red, a bell, back to the start, C1, right to left


def on_a_terminal(program: str = PROGRAM, columns: int = 60, **environment: str) -> str:
    """What the program writes to a real (pseudo) terminal."""
    ours, theirs = pty.openpty()
    settings = {"TERM": "xterm", "COLUMNS": str(columns), "PYTHONPATH": ":".join(sys.path), **environment}
    subprocess.run([sys.executable, "-c", program], stdout=theirs, env=settings, check=True)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 4096):
            shown += chunk
    except OSError:  # a closed terminal ends with EIO on Linux
        pass
    os.close(ours)
    return shown.decode()


def test_a_terminal_gets_a_drawn_table_with_colors_and_without_markup() -> None:
    shown = on_a_terminal()
    assert "───" in shown and "\x1b[32mok" in shown and "a [b] c" in shown


def test_no_color_is_respected() -> None:
    assert "\x1b[32m" not in on_a_terminal(NO_COLOR="1")


def test_a_pipe_gets_tabs() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "name\tstate\na [b] c\tok\nd\\te\tbad\n"


def test_control_characters_of_the_feed_are_escaped() -> None:
    program = TABLE.format(columns=("text",), rows=[(STEERING,)], keep=())
    escaped = r"news\x1b[31m\x07\r\x85\u202e|\n end"
    piped = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert piped == f"text\n{escaped}\n"
    shown = on_a_terminal(program, NO_COLOR="1").replace("\r\n", "\n")
    shown = re.sub(r"\x1b\[[01]m", "", shown)  # what is drawn in bold
    assert escaped in shown and all(line.isprintable() for line in shown.split("\n"))


WIDE = [f"column_{number:02}" for number in range(30)]


def wide(columns: int, keep: tuple[str, ...] = ()) -> list[str]:
    rows = [[f"{name}={row}" for name in WIDE] for row in range(2)]
    shown = on_a_terminal(TABLE.format(columns=WIDE, rows=rows, keep=keep), columns, NO_COLOR="1")
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in shown.splitlines()]


def test_a_table_that_is_too_wide_keeps_its_first_and_last_columns_and_says_so() -> None:
    head, _, first, second, *below = wide(82)
    assert head.split() == [*WIDE[:3], *WIDE[-3:]]
    assert first.split() == [f"{name}=0" for name in (*WIDE[:3], *WIDE[-3:])]
    assert "column_29=1" in second
    assert " ".join(below) == f"hidden: {', '.join(WIDE[3:11])} and 16 more; print all with --json"
    assert all(len(line) <= 82 for line in wide(82))
    assert len(wide(400)) == 4 and "hidden" not in "".join(wide(400))


def test_columns_to_keep_stay_where_they_are() -> None:
    head = wide(80, keep=("column_10", "column_12"))[0].split()
    assert head == [*WIDE[:2], "column_10", "column_12", *WIDE[-2:]]


@pytest.mark.parametrize("width", [1, 7, 20, 33, 80, 200])
@pytest.mark.parametrize("natural", [[5], [3, 500], [29] * 12, [6, 18, 7, 8, 3, 25, 900], [1] * 100, [40, 40, 40]])
def test_whatever_the_widths_are_a_table_fits(natural: list[int], width: int) -> None:
    places, widths = fit_columns(natural, width)
    assert len(places) == len(widths) > 0 and min(widths) > 0
    assert places == sorted(set(places)) and set(places) <= set(range(len(natural)))
    assert sum(widths) + 2 * len(widths) <= max(width, 3)
    if sum(natural) + 2 * len(natural) <= width:
        assert places == list(range(len(natural))) and widths == natural


def test_numbers_are_on_the_right_with_their_decimal_points_below_each_other() -> None:
    rows = [("6.6", "1,200", "a"), ("", "7", "10"), ("29", "35", "b"), ("6.59", "", "")]
    shown = on_a_terminal(TABLE.format(columns=("price", "rows", "text"), rows=rows, keep=()), NO_COLOR="1")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in shown.splitlines()]
    assert [line for line in lines if "─" not in line] == [
        "price   rows  text",
        " 6.60  1,200  a",
        "           7  10",
        "29.00     35  b",
        " 6.59",
    ]
