"""The closed files of a recording as a stream of Spark: a row each, an offset is how many the manifest lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from umdf.lake.memory import keep_loaded
from umdf.transport.recording import closed_files

FORMAT = "umdf_closed_files"


class ClosedFiles(DataSource):
    """The closed files of a recording, a row each."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "path string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        most = self.options.get("max_files")
        return _ClosedFilesReader(self.options["recording"], int(most) if most else None)


class _Paths(InputPartition):
    def __init__(self, paths: list[str]) -> None:
        super().__init__(0)
        self.paths = paths


class _ClosedFilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, recording: str, most: int | None) -> None:
        self.recording, self.most = recording, most
        self._target: int | None = None  # of Trigger.AvailableNow

    def _count(self) -> int:
        count = len(closed_files(self.recording, check=False))
        return count if self._target is None else min(count, self._target)

    def initialOffset(self) -> dict[str, int]:
        return {"files": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        last = self._count()
        if isinstance(limit, ReadMaxFiles):
            last = min(last, start["files"] + limit.max_files)
        return {"files": max(last, start["files"])}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self.most) if self.most else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, int]:
        return {"files": self._count()}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._count()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        files = closed_files(self.recording, check=False)[start["files"] : end["files"]]
        return [_Paths([str(path) for path in files])]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        assert isinstance(partition, _Paths)
        keep_loaded(FORMAT)
        return ((path,) for path in partition.paths)
