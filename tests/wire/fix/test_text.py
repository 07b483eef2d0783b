from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from umdf.wire.fix.text import format_fields

FIELD = re.compile(r"(\d+)=((?:[^\\|]|\\.)*)(?:\||$)")
ESCAPED = re.compile(r"\\(x..|u....|U........|.)")


def read_back(text: str) -> list[tuple[int, str]]:
    def plain(escape: re.Match[str]) -> str:
        said = escape[1]
        return (
            chr(int(said[1:], 16))
            if said[0] in "xuU" and len(said) > 1
            else {"n": "\n", "r": "\r", "t": "\t"}.get(said, said)
        )

    return [(int(tag), ESCAPED.sub(plain, value)) for tag, value in FIELD.findall(text)]


TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.tuples(st.integers(1, 99_999), TEXT)))
def test_whatever_values_hold_a_line_can_be_printed_and_read_back(fields: list[tuple[int, str]]) -> None:
    text = format_fields(fields)
    assert text.isprintable() and read_back(text) == fields


def test_a_bar_a_line_end_or_an_escape_of_a_terminal_is_escaped() -> None:
    assert format_fields([(35, "B"), (148, "a|b\\\x1b[2J\x01\n\x9b")]) == r"35=B|148=a\|b\\\x1b[2J\x01\n\x9b"
