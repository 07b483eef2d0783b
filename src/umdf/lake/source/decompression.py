"""Compressed captures for the DataFrame source: decompressed only while a partition reads them.

Invariant: nothing is shared between tasks, so nothing has to be stored, found again or cleaned up.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from umdf.lake.tasks.survey import decompress

SOURCE_KEYS = ("sources", "before", "after")  # keys of a task
Source = dict[str, Any]


@contextmanager
def temporary_decompression(compressed_digests: frozenset[str]) -> Iterator[Callable[[Source], Source]]:
    """A function that replaces a source's file by a decompressed copy; `compressed_digests` are the digests of
    compressed files."""
    if not compressed_digests:
        yield lambda source: source
        return
    with tempfile.TemporaryDirectory(prefix="umdf-source-") as directory:
        paths: dict[str, str] = {}

        def plain(source: Source) -> Source:
            digest = source["digest"]
            if digest in compressed_digests and digest not in paths:
                paths[digest] = decompress(source["path"], digest, Path(directory))[0]
            earlier = {"earlier": [plain(each) for each in source["earlier"]]} if "earlier" in source else {}
            return source | {"path": paths.get(digest, source["path"])} | earlier

        yield plain


def decompress_tasks(tasks: Sequence[dict[str, Any]], decompress: Callable[[Source], Source]) -> list[dict[str, Any]]:
    return [
        task | {name: [decompress(each) for each in task[name]] for name in SOURCE_KEYS if name in task}
        for task in tasks
    ]
