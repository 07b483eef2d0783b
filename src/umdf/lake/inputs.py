"""The files of an ingest: which of them are new, what is in them (their surveys, kept in the lake), where they are now.

The one rule: a file is what its bytes are. One that the lake knows is never read again unless a day needs it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from umdf.errors import CaptureError
from umdf.lake import durable, ledger
from umdf.lake.segments import Day, date_of
from umdf.lake.survey import FORMAT, unpack
from umdf.lake.writer import Writer

Step = Callable[[Sequence[dict[str, Any]], str, str], list[dict[str, Any]]]  # tasks, function, description
Surveys = Callable[[str], dict[str, Any] | None]  # what is known of a file already
SURVEY = "umdf.lake.survey:run_all"
PACK_BYTES = 64 << 20  # files of a task together; a task costs some 20 ms
_READ: dict[Path, dict[str, Any]] = {}  # by where they are kept: a stream asks for the same surveys again and again
MOST_READ = 10_000


class Inputs:
    def __init__(
        self,
        writer: Writer,
        step: Step,
        work: Path,
        split_bytes: int,
        parallel: int,
        ahead: Surveys,
    ) -> None:
        self._step, self._split_bytes, self._unpacked = step, split_bytes, work / "unpacked"
        self._parallel, self._ahead = parallel, ahead
        self._kept = writer.home.root / "_lake" / "surveys"
        self.known: dict[str, list[ledger.Entry]] = defaultdict(list)
        for entry in ledger.entries(writer.snapshot):
            self.known[entry.digest].append(entry)
        self.known_again = 0
        self._paths: dict[str, str] = {}  # where a file was given now, by digest
        self._ready: set[str] = set()

    @property
    def days(self) -> set[Day]:
        """Those that the lake has something of."""
        return days_of_entries(entry for entries in self.known.values() for entry in entries)

    def survey(self, paths: Iterable[str | os.PathLike[str]]) -> list[dict[str, Any]]:
        """Surveys of the files that are new, each content once."""
        sizes: dict[int, list[str]] = defaultdict(list)
        for digest, entries in self.known.items():
            sizes[entries[0].size_bytes].append(digest)
        files, surveys = [], []
        for path in sorted({os.path.abspath(path) for path in paths}):
            if not os.path.isfile(path):
                raise CaptureError(f"{path}: no such file", "check the path")
            if (survey := self._ahead(path)) is not None:
                surveys.append(survey)
            else:
                files.append(survey_task(path, self._unpacked, self._split_bytes, sizes.get(os.path.getsize(path), [])))
        surveys += self._surveyed(files, "survey")
        found: dict[str, dict[str, Any]] = {}
        for survey in sorted(surveys, key=lambda survey: survey["path"]):
            digest = survey["digest"]
            self._paths.setdefault(digest, survey["path"])
            if survey.get("known") or digest in found or digest in self.known:
                self.known_again += 1
                continue
            found[digest] = survey
            self._ready.add(digest)
            self._keep(survey)
        return list(found.values())

    def _surveyed(self, files: list[dict[str, Any]], description: str) -> list[dict[str, Any]]:
        answers = self._step(packs(files, self._parallel), SURVEY, description)
        return [survey for answer in answers for survey in answer["surveys"]]

    def _keep(self, survey: dict[str, Any]) -> None:
        durable.create_once(self._place(survey["digest"]), survey)

    def _place(self, digest: str) -> Path:
        return self._kept / f"{digest.partition(':')[2]}.json"

    def old(self, dates: set[int]) -> list[dict[str, Any]]:
        """Surveys of known files that have something of these dates."""
        found = []
        for digest, entries in sorted(self.known.items()):
            if any(entry.trading_date and (entry.trading_date - date_of(0)).days in dates for entry in entries):
                kept = self._place(digest)
                survey = _READ.get(kept) or durable.read(kept)
                if survey is None or survey["format"] != FORMAT:
                    survey = self._again(digest, entries[0])
                if len(_READ) < MOST_READ:
                    _READ[kept] = survey
                found.append(survey)
        return found

    def _again(self, digest: str, entry: ledger.Entry) -> dict[str, Any]:
        path = self._paths.get(digest) or entry.path or ""
        self._refuse_gone(path, digest)
        task = survey_task(path, self._unpacked, self._split_bytes)
        [survey] = self._surveyed([task], "survey of older files")
        durable.replace(self._place(digest), survey)
        self._ready.add(digest)
        return survey

    def path_of(self, survey: dict[str, Any]) -> str:
        """Where it can be read once it is ready."""
        digest = survey["digest"]
        if survey.get("packed"):
            return str(self._unpacked / f"{digest.partition(':')[2]}.pcap")
        return self._paths.get(digest) or survey["path"]

    def make_ready(self, surveys: Iterable[dict[str, Any]]) -> None:
        """Files that are needed must be there, as they were, and unpacked."""
        for survey in surveys:
            digest = survey["digest"]
            if digest in self._ready:
                continue
            path = self._paths.get(digest) or survey["path"]
            there = os.path.isfile(path) and os.stat(path).st_size == survey["size_bytes"]
            if not there or os.stat(path).st_mtime_ns != survey["mtime_ns"]:
                self._refuse_gone(path, digest)
            if path != survey["path"] and not os.path.isfile(survey["path"]):  # moved: whoever needs it next finds it
                survey["path"] = path
                durable.replace(self._place(digest), survey)
            if survey["packed"]:
                unpack(path, digest, self._unpacked)
            self._ready.add(digest)

    def _refuse_gone(self, path: str, digest: str) -> None:
        if not os.path.isfile(path) or ledger.digest_of(path)[0] != digest:
            state = "has changed" if os.path.isfile(path) else "is gone"
            raise CaptureError(
                f"{path} {state}; the lake needs it, because a day that it belongs to is made again from all its files",
                "give the file along with the new ones, wherever it is now",
            )


def survey_task(path: str, unpacked: Path, split_bytes: int, known: Sequence[str] = ()) -> dict[str, Any]:
    return {"path": path, "known": list(known), "unpacked": str(unpacked), "split_bytes": split_bytes}


def packs(files: list[dict[str, Any]], parallel: int) -> list[dict[str, Any]]:
    """Tasks of SURVEY: some files each, twice as many tasks as can run at once or more. A small file finds its place
    beside a large one."""
    sizes = [os.path.getsize(file["path"]) for file in files]
    most, found, size = min(PACK_BYTES, sum(sizes) * 9 // (16 * parallel)), list[dict[str, Any]](), 0
    for file, more in zip(files, sizes, strict=True):
        if not found or size + more > most:
            found.append({"description": os.path.basename(file["path"]), "files": []})
            size = 0
        found[-1]["files"].append(file)
        size += more
    return found


def days_of_entries(entries: Iterable[ledger.Entry]) -> set[Day]:
    return {
        (entry.channel_id, (entry.trading_date - date_of(0)).days)
        for entry in entries
        if entry.channel_id is not None and entry.trading_date is not None
    }
