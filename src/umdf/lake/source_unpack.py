"""Compressed captures for the DataFrame source: unpacked for as long as a partition reads them, and no longer.

The one rule: nothing is shared between tasks, so nothing has to be kept, found again or swept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from umdf.lake.survey import unpack

SOURCES = ("sources", "before", "after")  # of a task
Source = dict[str, Any]


@contextmanager
def unpacking(packed: frozenset[str]) -> Iterator[Callable[[Source], Source]]:
    """A function from a source to the same source with its file plain; `packed` are digests of compressed files."""
    if not packed:
        yield lambda source: source
        return
    with tempfile.TemporaryDirectory(prefix="umdf-source-") as directory:
        paths: dict[str, str] = {}

        def plain(source: Source) -> Source:
            digest = source["digest"]
            if digest in packed and digest not in paths:
                paths[digest] = unpack(source["path"], digest, Path(directory))[0]
            return source | {"path": paths.get(digest, source["path"])}

        yield plain


def plain_tasks(tasks: Sequence[dict[str, Any]], plain: Callable[[Source], Source]) -> list[dict[str, Any]]:
    return [task | {name: [plain(each) for each in task[name]] for name in SOURCES if name in task} for task in tasks]
