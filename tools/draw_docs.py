"""Draws docs/events.md and docs/phases.md from the tables in the source: python tools/draw_docs.py

`--check` changes nothing and says whether they are up to date; a test does the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from umdf.market import families as e
from umdf.market import phases as p
from umdf.market.arrow import JOINED, TYPES

DOCS = Path(__file__).parent.parent / "docs"
GENERATED_NOTICE = "<!-- Drawn by tools/draw_docs.py from the tables in src/umdf/market: change those, not this. -->"


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def columns(listed: Iterable[e.Column]) -> str:
    rows = ((f"`{c.name}`", c.type, TYPES[c.type][0], "yes" if c.nullable else "no", c.doc) for c in listed)
    return table(["column", "type", "Arrow", "NULL", "what"], rows)


def events_page() -> str:
    parts = [
        "# Events",
        GENERATED_NOTICE,
        "One vocabulary for both protocols, every book and every table. A family is one set of columns "
        "(`market/families.py`); `market/arrow.py` shows it as a RecordBatch. NULL means absent, never a sentinel.",
        "## Types",
        table(
            ["type", "Arrow", "means"],
            ((k, arrow, ", ".join(f"{a} {b}" for a, b in more.items()) or "-") for k, (arrow, more) in TYPES.items()),
        ),
        "Unsigned numbers of the wire are bit-cast to signed ones. A list of entries is a `list<struct>`, empty where "
        "there are none.",
        "## Columns of every family",
        columns(e.COMMON),
        "Joined where asked for:",
        columns(JOINED),
    ]
    for family in e.FAMILIES.values():
        parts += [f"## {family.name}", family.doc, columns(family.columns)]
        for name, fields in family.lists.items():
            parts += [f"Each entry of `{name}`:", columns(fields)]
    names = ("new", "change", "delete", "delete thru", "delete from", "overlay")
    parts += [
        "## Codes",
        "### flags",
        table(["bit", "means"], e.FLAGS.items()),
        "### conditions",
        "One bit set for FAST's words (277), Binary's sets and its TrdSubType (829).",
        table(["word", "bit", "829"], ((w, b, _sub_type(w)) for w, b in e.CONDITIONS.items())),
        "### stat_type",
        "Up to 99 the numbers are Databento's.",
        table(["stat_type", "means"], e.STATISTICS.items()),
        "### update_action",
        table(["279", "means"], enumerate(names)),
    ]
    return "\n\n".join(parts) + "\n"


def _sub_type(word: str) -> object:
    return next((code for code, name in e.TRD_SUB_TYPES.items() if name == word), "-")


def _event(event: int | None) -> str:
    return {None: "none", p.SESSION_CHANGE: "4, other"}.get(event, str(event))


def diagram() -> str:
    """Membership, drawn from the tables: an arrow for each change that some message makes."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (event, before, relation), (after, _) in p.INSTRUMENT_MESSAGE.items():
        label = f"own 326, 1174 {_event(event)}" + ("" if event in (101, 102) else f", {relation}")
        arrows.setdefault((before, after), []).append(label)
    for (before, _), after in p.GROUP_MESSAGE.items():
        arrows.setdefault((before, after), []).append("group's 625")
    lines = [
        "stateDiagram-v2",
        f"    [*] --> {p.FOLLOWING}: in the list (11.2)",
        f"    [*] --> {p.NEW}: created today (7.1)",
    ]
    for (before, after), labels in arrows.items():
        if before != after:
            lines += [f"    {before} --> {after}: {label}" for label in dict.fromkeys(labels)]
    return "```mermaid\n" + "\n".join(lines) + "\n```"


def phases_page() -> str:
    instrument = (
        (_event(event), before, relation, after, action)
        for (event, before, relation), (after, action) in p.INSTRUMENT_MESSAGE.items()
    )
    snapshot = ((_event(event), r, after, action) for (event, r), (after, action) in p.SNAPSHOT_STATUS.items())
    group = ((before, relation, after, "store 625") for (before, relation), after in p.GROUP_MESSAGE.items())
    parts = [
        "# Phases and states",
        GENERATED_NOTICE,
        "A group has a phase (625), an instrument may have a state of its own (326). The state that rules is the "
        "instrument's own while it is separated, else its group's phase. Groups are known by code and exchange "
        "(11 NOTE).",
        "## Codes",
        table(["625, 326", "phase of a group", "state of an instrument"], ((c, *n) for c, n in p.PHASES.items())),
        "## Membership",
        diagram(),
        "## An instrument's message",
        "`326` is compared with the stored `625`; a phase that is not known is different from every state. The rows "
        "without event are the first table of legacy 14.6; 102 lets the phase be inferred (11 NOTE).",
        table(["1174", "before", "326 to 625", "after", "does"], instrument),
        "## A group's message",
        "It never makes a member leave or rejoin (legacy 14.6, second table); it is the first status of a new one "
        "(7.1).",
        table(["before", "326 to 625", "after", "does"], group),
        "## A snapshot's status, and the first one after a channel reset",
        "It replaces what was known of its instrument (11.4; after a channel reset the states of all instruments are "
        "sent again, 13.9). A phase in a snapshot that is older than what the group said since is not taken.",
        table(["1174", "326 to 625", "after", "does"], snapshot),
        "## What goes with it",
        "- 1174=4 resets the statistics of 11.3, on a group for all members, separated ones too: the session ends for "
        "all of them.\n"
        "- When a group's phase leaves pre-open (21), theoretical opening and imbalance of each member whose own state "
        "is not 21 are removed (10.7); they are also deleted by message (legacy 14.8).\n"
        "- 336 absent is the regular session (1); 342 absent clears the time.\n"
        "- A channel reset leaves phases and states until they are sent again (13.9). A deleted instrument has none "
        "(7.3).",
    ]
    return "\n\n".join(parts) + "\n"


PAGES = {"events.md": events_page, "phases.md": phases_page}


def main(arguments: list[str]) -> int:
    stale = [name for name, draw in PAGES.items() if not _is_up_to_date(name, draw())]
    if "--check" in arguments:
        print(f"out of date: {', '.join(stale)}" if stale else "up to date")
        return bool(stale)
    for name in stale:
        (DOCS / name).write_text(PAGES[name]())
        print(f"drew docs/{name}")
    return 0


def _is_up_to_date(name: str, generated: str) -> bool:
    path = DOCS / name
    return path.exists() and path.read_text() == generated


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
