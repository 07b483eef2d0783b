"""Reads the files of tables: each page is verified by its checksum.

Invariant: a damaged file causes one clear error that names it, never wrong rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from umdf.errors import UmdfError

if TYPE_CHECKING:
    import pyarrow.dataset as ds

# Spark's reader ignores checksums without it. Passed as an option of the read: the session is not changed.
SPARK_CHECKSUM_OPTION = "parquet.page.verify-checksum.enabled"


def read_error(path: str | os.PathLike[str], reason: str) -> UmdfError:
    lines = reason.splitlines() or ["damaged"]
    return UmdfError(
        f"cannot read {path}: {lines[0]}",
        "find damaged files with `umdf lake verify LAKE --deep`, rebuild their days with `umdf lake rebuild LAKE`",
    )


@contextmanager
def open_file(path: str | os.PathLike[str], **options: Any) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True, **options) as file:
            yield file
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise read_error(path, str(error)) from error


def read_file(path: str | os.PathLike[str], columns: Sequence[str] | None = None, **options: Any) -> pa.Table:
    with open_file(path, **options) as file:
        return file.read(None if columns is None else list(columns))


class TableFiles:
    """Several files of a table, with the part of the interface of Arrow's dataset that is used here."""

    def __init__(self, dataset: ds.Dataset, paths: Sequence[Path]) -> None:
        self._dataset, self._paths = dataset, paths

    def to_table(self, columns: Sequence[str] | None = None, filter: ds.Expression | None = None) -> pa.Table:
        with self._naming_damaged_file():
            return self._dataset.to_table(columns=columns, filter=filter)

    def to_batches(self, columns: Sequence[str] | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        batches = self._dataset.to_batches(columns=columns, **options)
        while True:
            with self._naming_damaged_file():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    @contextmanager
    def _naming_damaged_file(self) -> Iterator[None]:
        """Arrow does not report which file it could not read: the files are read again, one by one, to name it."""
        try:
            yield
        except (OSError, pa.ArrowException):
            for path in self._paths:
                with open_file(path) as file:
                    for group in range(file.num_row_groups):
                        file.read_row_group(group)
            raise
