"""Removes inputs and their rows from a lake: their days are rebuilt from the other inputs.

Invariant: all or nothing. If another input that a day needs is missing, nothing changes.
"""

from __future__ import annotations

import os

from umdf.errors import ConfigError
from umdf.lake.commit import ledger
from umdf.lake.commit.ledger import DIGEST_ALGORITHM, LedgerEntry
from umdf.lake.commit.writer import Writer
from umdf.lake.ingest import TABLES, ingest_captures
from umdf.lake.ingest_result import IngestResult
from umdf.lake.ingest_settings import IngestSettings, StepProgress, TaskRunner, no_progress

OPTIONAL_TABLES = frozenset({"gaps", "quarantine"})  # may still be missing in a lake
MIN_DIGEST_DIGITS = 8  # minimum of an abbreviated digest


def find_input(writer: Writer, path_or_digest: str) -> LedgerEntry:
    """Find an input by its path (the file need not exist) or by its digest, which may be abbreviated."""
    entries = ledger.entries(writer.snapshot)
    found = {entry.digest: entry for entry in entries if _matches(entry, path_or_digest)}
    if not found:
        names = sorted({entry.path or entry.digest for entry in entries})
        listed = f"{', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
        hint = f"inputs are listed in the table ledger: {listed}" if names else "the lake has no inputs"
        raise ConfigError(f"unknown input: {path_or_digest}", hint)
    if len(found) > 1:
        listed = ", ".join(f"{digest} ({entry.path})" for digest, entry in sorted(found.items()))
        raise ConfigError(f"{path_or_digest} matches {len(found)} inputs: {listed}", "pass the digest of one")
    [entry] = found.values()
    return entry


def _matches(entry: LedgerEntry, path_or_digest: str) -> bool:
    digits = path_or_digest.removeprefix(f"{DIGEST_ALGORITHM}:")
    is_digest = len(digits) >= MIN_DIGEST_DIGITS and entry.digest.removeprefix(f"{DIGEST_ALGORITHM}:").startswith(
        digits
    )
    return is_digest or entry.path == os.path.abspath(path_or_digest)


def forget_input(
    writer: Writer, entry: LedgerEntry, runner: TaskRunner, on_step: StepProgress = no_progress
) -> IngestResult:
    table_names = frozenset(name for name in TABLES if writer.snapshot.version(name) is not None)
    return ingest_captures(
        [], writer, runner, IngestSettings(tables=table_names | OPTIONAL_TABLES), on_step, forget=[entry.digest]
    )
