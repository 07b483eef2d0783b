"""Take inputs out of a lake, with their rows: the days that they belong to are made again from their other inputs.

The one rule: all or nothing. Where another input that a day needs is gone, nothing changes.
"""

from __future__ import annotations

import os

from umdf.errors import ConfigError
from umdf.lake import ledger
from umdf.lake.advance import TABLES, Runner, Settings, Stage, advance, no_progress
from umdf.lake.ledger import ALGORITHM, Entry
from umdf.lake.outcome import Outcome
from umdf.lake.writer import Writer

MAY_BE_NEW = frozenset({"gaps", "quarantine"})  # a lake may have had nothing for them so far
LEAST_DIGITS = 8  # of a digest that is cut short


def find_input(writer: Writer, given: str) -> Entry:
    """The input that is meant: by its path, the file need not exist any more; or by its digest, or the begin of it."""
    entries = ledger.entries(writer.snapshot)
    found = {entry.digest: entry for entry in entries if _is_meant(entry, given)}
    if not found:
        names = sorted({entry.path or entry.digest for entry in entries})
        hint = f"its inputs are {', '.join(names[:5])}{' …' if len(names) > 5 else ''}" if names else "it has none"
        raise ConfigError(f"the lake has no input {given}", f"{hint}: see the table ledger")
    if len(found) > 1:
        listed = ", ".join(f"{digest} ({entry.path})" for digest, entry in sorted(found.items()))
        raise ConfigError(f"{given} is {len(found)} inputs of the lake: {listed}", "give the digest of one")
    [entry] = found.values()
    return entry


def _is_meant(entry: Entry, given: str) -> bool:
    digits = given.removeprefix(f"{ALGORITHM}:")
    is_digest = len(digits) >= LEAST_DIGITS and entry.digest.removeprefix(f"{ALGORITHM}:").startswith(digits)
    return is_digest or entry.path == os.path.abspath(given)


def forget_input(writer: Writer, entry: Entry, run: Runner, stage: Stage = no_progress) -> Outcome:
    known = frozenset(name for name in TABLES if writer.snapshot.version(name) is not None)
    return advance([], writer, run, Settings(tables=known | MAY_BE_NEW), stage, forget=[entry.digest])
