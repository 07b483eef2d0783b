"""Digests of the lake's files when they were written, from the intents of the commits.

Invariant: a digest belongs to a path, and no path is written twice. So it stays valid after a restore or an accepted
change, and a file written by another tool has none.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from umdf.lake.commit import log
from umdf.lake.layout import LakePaths
from umdf.lake.parquet.data_files import FileAdd, stamp_of


class FileDigests:
    def __init__(self, paths: LakePaths) -> None:
        self._paths = paths
        self._by_commit: dict[int, dict[tuple[str, str], str]] = {}

    def digest_of(self, add: FileAdd) -> str:
        """As `FileAdd.digest`; empty if it was not recorded."""
        stamp = stamp_of(add.path.rpartition("/")[2])
        if stamp is None:
            return ""
        if stamp.commit not in self._by_commit:
            intent = log.intent(self._paths, stamp.commit)
            added = [add for change in intent.changes for add in change.adds] if intent else []
            self._by_commit[stamp.commit] = {(add.table, add.path): add.digest for add in added}
        return self._by_commit[stamp.commit].get((add.table, add.path), "")


def current_digest(path: Path, written_digest: str) -> str:
    """Digest of the file as it is now, with the algorithm of `written_digest`."""
    algorithm = written_digest.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"
