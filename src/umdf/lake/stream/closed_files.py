"""The closed files of a recording as a Spark stream: one row per file, in the order of the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from umdf.lake.runtime.memory import freeze_loaded_objects
from umdf.transport.recording import MANIFEST, Manifest, read_manifest

FORMAT = "umdf_closed_files"
Offset = dict[str, Any]


class ClosedFiles(DataSource):
    """The data source: one row per closed file of a recording."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "path string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        max_files = self.options.get("max_files")
        return ClosedFilesReader(self.options["recording"], int(max_files) if max_files else None)


class _PathPartition(InputPartition):
    def __init__(self, paths: list[str]) -> None:
        super().__init__(0)
        self.paths = paths


class ClosedFilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is the number of files read, and a digest of their manifest lines. If the first lines of a manifest
    have changed, it is a new manifest: all its files are returned, and the lake, which identifies files by content,
    skips those that it has."""

    def __init__(self, recording: str, max_files: int | None) -> None:
        self._path, self.max_files = Path(recording) / MANIFEST, max_files
        self._target_count: int | None = None  # set by Trigger.AvailableNow

    def initialOffset(self) -> Offset:
        return _offset(Manifest(self._path, {}), 0)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        manifest = read_manifest(self._path)
        last = len(manifest.entries) if self._target_count is None else min(len(manifest.entries), self._target_count)
        files_read = _files_read(manifest, start)
        if isinstance(limit, ReadMaxFiles):
            last = min(last, files_read + limit.max_files)
        return start if last <= files_read else _offset(manifest, last)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self.max_files) if self.max_files else ReadAllAvailable()

    def reportLatestOffset(self) -> Offset:
        manifest = read_manifest(self._path)
        return _offset(manifest, len(manifest.entries))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target_count = len(read_manifest(self._path).entries)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        manifest = read_manifest(self._path)
        # A batch of a manifest that no longer exists is empty: the next one starts with the first file of the new one.
        files = manifest.files[_files_read(manifest, start) : _files_read(manifest, end)]
        return [_PathPartition([str(path) for path in files])]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        assert isinstance(partition, _PathPartition)
        freeze_loaded_objects(FORMAT)
        return ((path,) for path in partition.paths)


def _offset(manifest: Manifest, count: int) -> Offset:
    return {"files": count, "digest": manifest.digest(count)}


def _files_read(manifest: Manifest, offset: Offset) -> int:
    """How many of the manifest's files were read at an offset: none if it belongs to another manifest."""
    count = offset["files"]
    is_same = count <= len(manifest.entries) and manifest.digest(count) == offset.get("digest")
    return count if is_same else 0
