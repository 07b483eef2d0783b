"""Take inputs out of a lake, with their rows: the days that they belong to are rebuilt from their other inputs.

Invariant: all or nothing. Where another input that a day needs is gone, nothing changes.
"""

from __future__ import annotations

import os

from umdf.errors import ConfigError
from umdf.lake.commit import ledger
from umdf.lake.commit.ledger import DIGEST_ALGORITHM, LedgerEntry
from umdf.lake.commit.writer import Writer
from umdf.lake.ingest import TABLES, IngestSettings, StageProgress, TaskRunner, ingest_captures, no_progress
from umdf.lake.ingest_result import IngestResult

OPTIONAL_TABLES = frozenset({"gaps", "quarantine"})  # a lake may have had nothing for them so far
MIN_DIGEST_DIGITS = 8  # of a digest that is cut short


def find_input(writer: Writer, path_or_digest: str) -> LedgerEntry:
    """The input that is meant: by its path, the file need not exist any more; or by its digest, or the begin of it."""
    entries = ledger.entries(writer.snapshot)
    found = {entry.digest: entry for entry in entries if _matches(entry, path_or_digest)}
    if not found:
        names = sorted({entry.path or entry.digest for entry in entries})
        hint = f"its inputs are {', '.join(names[:5])}{' …' if len(names) > 5 else ''}" if names else "it has none"
        raise ConfigError(f"the lake has no input {path_or_digest}", f"{hint}: see the table ledger")
    if len(found) > 1:
        listed = ", ".join(f"{digest} ({entry.path})" for digest, entry in sorted(found.items()))
        raise ConfigError(f"{path_or_digest} is {len(found)} inputs of the lake: {listed}", "give the digest of one")
    [entry] = found.values()
    return entry


def _matches(entry: LedgerEntry, path_or_digest: str) -> bool:
    digits = path_or_digest.removeprefix(f"{DIGEST_ALGORITHM}:")
    is_digest = len(digits) >= MIN_DIGEST_DIGITS and entry.digest.removeprefix(f"{DIGEST_ALGORITHM}:").startswith(
        digits
    )
    return is_digest or entry.path == os.path.abspath(path_or_digest)


def forget_input(
    writer: Writer, entry: LedgerEntry, runner: TaskRunner, stage: StageProgress = no_progress
) -> IngestResult:
    table_names = frozenset(name for name in TABLES if writer.snapshot.version(name) is not None)
    return ingest_captures(
        [], writer, runner, IngestSettings(tables=table_names | OPTIONAL_TABLES), stage, forget=[entry.digest]
    )
