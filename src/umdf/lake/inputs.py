"""The files of an ingest: which of them are new, what is in them (their surveys, kept in the lake), where they are now.

The one rule: a file is what its bytes are. One that the lake knows is never read again unless a day needs it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from umdf.errors import CaptureError, ConfigError
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
SHOWN = 19  # characters of a digest: enough to tell it from others


class Inputs:
    """`forget`: digests of inputs that leave the lake."""

    def __init__(
        self,
        writer: Writer,
        step: Step,
        work: Path,
        split_bytes: int,
        parallel: int,
        ahead: Surveys,
        forget: Collection[str] = (),
    ) -> None:
        self._step, self._split_bytes, self._unpacked = step, split_bytes, work / "unpacked"
        self._parallel, self._ahead = parallel, ahead
        self._kept = writer.home.root / "_lake" / "surveys"
        self.known: dict[str, list[ledger.Entry]] = {}
        for entry in ledger.entries(writer.snapshot):
            self.known.setdefault(entry.digest, []).append(entry)
        self.dropped: dict[str, list[ledger.Entry]] = {}  # that leave the ledger: forgotten, or grown to another digest
        self.grown: list[str] = []  # paths
        for digest in forget:
            self._drop(digest)
        self.known_again = 0
        self._paths: dict[str, str] = {}  # where a file was given now, by digest
        self._ready: set[str] = set()

    @property
    def days(self) -> set[Day]:
        """Those that the lake has something of."""
        return days_of_entries(entry for entries in self.known.values() for entry in entries)

    @property
    def dropped_days(self) -> set[Day]:
        return days_of_entries(entry for entries in self.dropped.values() for entry in entries)

    def survey(self, paths: Iterable[str | os.PathLike[str]]) -> list[dict[str, Any]]:
        """Surveys of the files that are new, each content once."""
        sizes: dict[int, list[str]] = defaultdict(list)
        names: dict[str, list[ledger.Entry]] = defaultdict(list)
        for digest, (entry, *_) in self.known.items():
            sizes[entry.size_bytes].append(digest)
            names[os.path.basename(entry.path or "")].append(entry)
        files, surveys = [], []
        for path in sorted({os.path.abspath(path) for path in paths}):
            if not os.path.isfile(path):
                raise CaptureError(f"{path}: no such file", "check the path")
            shorter = _shorter(path, names.get(os.path.basename(path), []))
            if not shorter and (survey := self._ahead(path)) is not None:
                surveys.append(survey)
            else:
                known = sizes.get(os.path.getsize(path), [])
                files.append(survey_task(path, self._unpacked, self._split_bytes, known, shorter))
        surveys += self._surveyed(files, "survey")
        found: dict[str, dict[str, Any]] = {}
        for survey in sorted(surveys, key=lambda survey: survey["path"]):
            digest, parts = survey["digest"], survey.pop("grown_from", [])
            for part in (each for each in parts if each in self.known):
                self._drop(part)
                self.grown.append(survey["path"])
            self._paths.setdefault(digest, survey["path"])
            if survey.get("known") or digest in found or digest in self.known:
                self.known_again += 1
                continue
            found[digest] = survey
            self._ready.add(digest)
            self._keep(survey)
        return list(found.values())

    def _drop(self, digest: str) -> None:
        self.dropped[digest] = self.known.pop(digest)
        _READ.pop(self._place(digest), None)

    def clear_dropped(self) -> None:
        """Once they have left the lake."""
        for digest in self.dropped:
            self._place(digest).unlink(missing_ok=True)

    def _surveyed(self, files: list[dict[str, Any]], description: str) -> list[dict[str, Any]]:
        answers = self._step(packs(files, self._parallel), SURVEY, description)
        return [survey for answer in answers for survey in answer["surveys"]]

    def _keep(self, survey: dict[str, Any]) -> None:
        durable.create_once(self._place(survey["digest"]), survey)

    def _place(self, digest: str) -> Path:
        return self._kept / f"{digest.partition(':')[2]}.json"

    def _of(self, dates: set[int]) -> list[tuple[str, ledger.Entry]]:
        """Known files that have something of these dates, with one of their entries."""
        days = {date_of(date) for date in dates}
        found = sorted(self.known.items())
        return [
            (digest, entries[0]) for digest, entries in found if any(entry.trading_date in days for entry in entries)
        ]

    def _known_survey(self, digest: str) -> dict[str, Any] | None:
        kept = self._place(digest)
        survey = _READ.get(kept) or durable.read(kept)
        if survey is None or survey["format"] != FORMAT:
            return None
        if len(_READ) < MOST_READ:
            _READ[kept] = survey
        return survey

    def grown_paths(self, dates: set[int]) -> list[str]:
        """Files with something of these dates that were ingested while they were being written, and are longer now."""
        found = []
        for digest, entry in self._of(dates):
            path = (self._known_survey(digest) or {}).get("path") or entry.path or ""
            is_longer = digest not in self._paths and os.path.isfile(path) and os.path.getsize(path) > entry.size_bytes
            if is_longer and ledger.digest_of(path, entry.size_bytes)[0] == digest:
                found.append(path)
        return found

    def old(self, dates: set[int]) -> list[dict[str, Any]]:
        """Surveys of known files that have something of these dates."""
        return [self._known_survey(digest) or self._again(digest, entry) for digest, entry in self._of(dates)]

    def _again(self, digest: str, entry: ledger.Entry) -> dict[str, Any]:
        path = self._paths.get(digest) or entry.path or ""
        _refuse_changed(path, digest, entry.size_bytes)
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
                _refuse_changed(path, digest, survey["size_bytes"])
            if path != survey["path"] and not os.path.isfile(survey["path"]):  # moved: whoever needs it next finds it
                survey["path"] = path
                durable.replace(self._place(digest), survey)
            if survey["packed"]:
                unpack(path, digest, self._unpacked)
            self._ready.add(digest)

    def is_moved(self, survey: dict[str, Any], entries: Iterable[ledger.Entry]) -> bool:
        """Whether the entries of a known file would be others by now."""
        known, now = self.known[survey["digest"]], set(entries)
        if any(entry.flow is None for entry in known):  # of a lake that was made before flows were kept
            now = {replace(entry, flow=None) for entry in now}
        return now != set(known)

    def ledger_rows(
        self,
        new: Iterable[dict[str, Any]],
        moved: Iterable[dict[str, Any]],
        entries_of: Callable[[dict[str, Any]], list[ledger.Entry]],
    ) -> tuple[list[ledger.Entry], bool]:
        """What a commit adds to the ledger; and whether that stands in the place of all that was in it: the ledger is
        small, and one of its files cannot lose a row."""
        entries, again = [entry for survey in new for entry in entries_of(survey)], list(moved)
        if not again and not self.dropped:
            return entries, False
        other = self.known.keys() - {survey["digest"] for survey in again}
        entries += [entry for digest in sorted(other) for entry in self.known[digest]]
        return entries + [entry for survey in again for entry in entries_of(survey)], True


def _shorter(path: str, known: Sequence[ledger.Entry]) -> list[tuple[int, str]]:
    """Inputs that a file may have grown from: of its name, and not elsewhere. Its content decides."""
    size = os.path.getsize(path)
    mine = (entry for entry in known if entry.path == path or not os.path.exists(entry.path or ""))
    return [(entry.size_bytes, entry.digest) for entry in mine if entry.size_bytes < size]


def _refuse_changed(path: str, digest: str, size: int) -> None:
    """A file that a day needs must be what it was."""
    needed = "the lake needs it, because a day that it belongs to is made again from all its files"
    if not os.path.isfile(path):
        hint = f"give the file along with the new ones, wherever it is now; or `umdf lake forget LAKE {digest[:SHOWN]}`"
        raise CaptureError(f"{path} is gone; {needed}", hint)
    now, length = ledger.digest_of(path)
    if now == digest:
        return
    if length > size and ledger.digest_of(path, size)[0] == digest:
        raise CaptureError(f"{path} has grown since it was ingested; {needed}", "`umdf ingest` it: that adds the rest")
    raise CaptureError(
        f"{path} has changed: it is not the file that was ingested; {needed}",
        f"put the old one back, or `umdf lake forget LAKE {digest[:SHOWN]}` and ingest the new one",
    )


def survey_task(
    path: str,
    unpacked: Path,
    split_bytes: int,
    known: Sequence[str] = (),
    shorter: Sequence[tuple[int, str]] = (),
) -> dict[str, Any]:
    about = {"path": path, "known": list(known), "shorter": list(shorter)}
    return about | {"unpacked": str(unpacked), "split_bytes": split_bytes}


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


def known_days(writer: Writer, date: str | None = None, channel: int | None = None) -> list[Day]:
    """The channel-days that the lake has; of one date or channel only, if one is given."""
    known = days_of_entries(ledger.entries(writer.snapshot))
    found = [day for day in sorted(known) if channel in (None, day[0]) and date in (None, date_of(day[1]).isoformat())]
    if not found:
        dates = ", ".join(sorted({date_of(day).isoformat() for _, day in known})) or "none"
        raise ConfigError(f"the lake has no such day (date {date}, channel {channel})", f"its dates are {dates}")
    return found
