"""Files that are written over, instead of being deleted and made anew.

What a micro-batch stages is as much as the next one stages. The pages of a deleted file go back to the system, which
takes several times as long to find new ones as to write to those that are there: on a virtual machine that returns free
memory to its host, ten times. So a stream keeps such files for its next tasks.

Invariant: only a file that its task has closed, and that no task will read again, is given back; it has one owner at
a time, because to take it is to rename it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

MAX_POOL_BYTES = 1 << 30  # the longest of them


class StagingFilePool:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def acquire(self, kind: str, target: Path) -> bool:
        """The longest file of a kind gets a new name; what is in it is of no use. False: there is none."""
        for path in sorted(self.directory.glob(f"{kind}-*"), reverse=True):
            try:
                path.rename(target)
                return True
            except FileNotFoundError:  # another task was quicker
                continue
        return False

    def release(self, files: Iterable[tuple[str, Path]]) -> None:
        """Files of a kind, for which nobody has a use."""
        with suppress(OSError):  # what cannot be kept goes with the directory that it is in
            self.directory.mkdir(parents=True, exist_ok=True)
            for kind, path in files:
                path.rename(self.directory / f"{kind}-{path.stat().st_size:015d}-{uuid.uuid4().hex}")
            self._trim()

    def _trim(self) -> None:
        total_bytes = 0
        for path in sorted(self.directory.iterdir(), key=_size_in_name, reverse=True):
            total_bytes += _size_in_name(path)
            if total_bytes > MAX_POOL_BYTES:
                path.unlink()

    def clear(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def _size_in_name(path: Path) -> int:
    return int(path.name.split("-")[1])
