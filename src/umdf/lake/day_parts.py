"""What the tasks of one channel-day have made so far, and the arguments of the tasks that come next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from umdf.lake.files import FileAdd
from umdf.lake.plan import ChannelDay, date_of
from umdf.lake.staging import BUCKETS
from umdf.lake.timeline import Gap, timeline

LEAST_ROWS_A_TASK = 50_000  # of `mbo`, in a task of the books


class DayParts:
    def __init__(self, day: ChannelDay, manifests: list[dict[str, Any]]) -> None:
        self.day = day
        rank = {epoch: number for number, (epoch, _, _) in enumerate(day.epochs)}
        spans = [manifest for manifest in manifests if manifest["role"] == "incremental"]
        self.spans = sorted(spans, key=lambda span: (rank[span["epoch"]], span["span"]))
        self.loops = [manifest for manifest in manifests if manifest["role"] != "incremental"]
        self.files: dict[str, list[FileAdd]] = defaultdict(list)
        self.gaps: list[Gap] = []
        self.stale: list[Any] = []
        self.healed: list[list[dict[str, Any]]] = []  # what each task says of the gaps
        for manifest in manifests:
            self.add_files(manifest["files"])

    def add_files(self, files: Mapping[str, list[dict[str, Any]]]) -> None:
        for name, made in files.items():
            self.files[name] += [FileAdd.from_json(add) for add in made]

    def _staged(self, role: str) -> list[dict[str, Any]]:
        found = self.spans if role == "incremental" else [each for each in self.loops if each["role"] == role]
        return [staged for manifest in found for staged in manifest["staged"]]

    def channel_task(self) -> dict[str, Any]:
        return {
            "description": f"channel {self.day.channel}, {date_of(self.day.date)}",
            "staged": self._staged("incremental"),
            "snapshots": self._staged("snapshot"),
            "instruments": self._staged("instruments"),
        }

    def packs(self, most_rows: int, parallel: int) -> list[tuple[list[int], int]]:
        """Neighbouring buckets together, up to so many rows: a hot instrument's bucket stands alone."""
        rows = [0] * (BUCKETS + 1)
        for staged in self._staged("incremental"):
            if staged["family"] == "mbo":
                for bucket, count in staged["rows"].items():
                    rows[int(bucket)] += count
        target = min(most_rows, max(sum(rows) // (4 * parallel), LEAST_ROWS_A_TASK))
        packs: list[tuple[list[int], int]] = [([], 0)]
        for bucket in range(BUCKETS + 1):
            buckets, size = packs[-1]
            if buckets and size + rows[bucket] > target:
                packs.append(([], 0))
                buckets, size = packs[-1]
            packs[-1] = ([*buckets, bucket], size + rows[bucket])
        return packs

    def book_tasks(self, said: dict[str, Any], packs: list[tuple[list[int], int]]) -> list[dict[str, Any]]:
        common = {
            "staged": self._staged("incremental"),
            "snapshots": self._staged("snapshot"),
            "timeline": timeline(self.day, self.gaps, said["resets"]),
            "definitions": said["definitions"],
            "state_in": None,
        }
        name = f"books of channel {self.day.channel}, {date_of(self.day.date)}"
        return [
            common | {"description": f"{name}, buckets {min(pack)} to {max(pack)}", "buckets": pack, "rows": rows}
            for pack, rows in packs
        ]

    def gap_tasks(self, most_rows: int, parallel: int) -> list[dict[str, Any]]:
        chosen = {"staged": "mbo", "snapshots": "snapshot"}
        files = {"staged": self._staged("incremental"), "snapshots": self._staged("snapshot")}
        begun = [
            {"seq_version": epoch, "ts_send": ts}
            for (epoch, *_), ts in zip(self.day.epochs, self.day.begun, strict=True)
        ]
        common = {
            "description": f"gaps of channel {self.day.channel}, {date_of(self.day.date)}",
            "channel_id": self.day.channel,
            "trading_date": self.day.date,
            "epochs": begun,
            "gaps": [gap.to_json() for gap in self.gaps],
            **{name: [said for said in files[name] if said["family"] == family] for name, family in chosen.items()},
        }
        return [common | {"buckets": pack} for pack, _ in self.packs(most_rows, parallel)]
