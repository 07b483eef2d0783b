"""The files of an ingest: which are new, what they contain (their surveys, stored in the lake), where they are now.

Invariant: a file is identified by its bytes. A known file is never read again unless a day needs it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from umdf.errors import CaptureError, ConfigError
from umdf.lake import atomic_files
from umdf.lake.commit import ledger
from umdf.lake.commit.writer import Writer
from umdf.lake.plan.segments import ChannelDayKey, date_of
from umdf.lake.tasks.survey import READABLE_FORMATS, SURVEY_FORMAT, decompress

RunStep = Callable[[Sequence[dict[str, Any]], str, str], list[dict[str, Any]]]  # tasks, function, description
SurveyLookup = Callable[[str], dict[str, Any] | None]  # the survey of a file, if it is known already
SURVEY_TASK = "umdf.lake.tasks.survey:run_all"
PACK_BYTES = 64 << 20  # files of one task together; a task costs some 20 ms
_SURVEY_CACHE: dict[Path, dict[str, Any]] = {}  # by path: a stream reads the same surveys repeatedly
MAX_CACHED_SURVEYS = 10_000


class Inputs:
    """`forget`: digests of inputs to remove from the lake."""

    def __init__(
        self,
        writer: Writer,
        run_step: RunStep,
        work: Path,
        split_bytes: int,
        parallel: int,
        prefetched: SurveyLookup,
        forget: Collection[str] = (),
    ) -> None:
        self._run_step, self._split_bytes, self._decompressed = run_step, split_bytes, work / "decompressed"
        self._parallel, self._prefetched = parallel, prefetched
        self._surveys = writer.paths.root / "_lake" / "surveys"
        self.known: dict[str, list[ledger.LedgerEntry]] = {}
        for entry in ledger.entries(writer.snapshot):
            self.known.setdefault(entry.digest, []).append(entry)
        self.dropped: dict[
            str, list[ledger.LedgerEntry]
        ] = {}  # to be removed from the ledger: forgotten, or grown to another digest
        self.grown: list[str] = []  # paths
        for digest in forget:
            self._drop(digest)
        self.known_count = 0
        self._paths: dict[str, str] = {}  # current path of a file, by digest
        self._ready: set[str] = set()

    @property
    def days(self) -> set[ChannelDayKey]:
        """The channel-days of the lake."""
        return days_of_entries(entry for entries in self.known.values() for entry in entries)

    @property
    def dropped_days(self) -> set[ChannelDayKey]:
        return days_of_entries(entry for entries in self.dropped.values() for entry in entries)

    def survey(self, paths: Iterable[str | os.PathLike[str]]) -> list[dict[str, Any]]:
        """Surveys of the new files, once per content."""
        sizes: dict[int, list[str]] = defaultdict(list)
        names: dict[str, list[ledger.LedgerEntry]] = defaultdict(list)
        for digest, (entry, *_) in self.known.items():
            sizes[entry.size_bytes].append(digest)
            names[os.path.basename(entry.path or "")].append(entry)
        files, surveys = [], []
        for path in sorted({os.path.abspath(path) for path in paths}):
            if not os.path.isfile(path):
                raise CaptureError(f"{path}: no such file", "check the path")
            possible_prefixes = _possible_prefixes(path, names.get(os.path.basename(path), []))
            if not possible_prefixes and (survey := self._prefetched(path)) is not None:
                surveys.append(survey)
            else:
                known = sizes.get(os.path.getsize(path), [])
                files.append(survey_task(path, self._decompressed, self._split_bytes, known, possible_prefixes))
        surveys += self._run_surveys(files, "survey")
        found: dict[str, dict[str, Any]] = {}
        # A capture is the same whether it is compressed, and how.
        contents = {entry.content_digest or entry.digest for entry, *_ in self.known.values()}
        for survey in sorted(surveys, key=lambda survey: survey["path"]):
            digest, parts = survey["digest"], survey.pop("grown_from", [])
            content = survey.get("content_digest", digest)
            for part in (each for each in parts if each in self.known):
                self._drop(part)
                self.grown.append(survey["path"])
            self._paths.setdefault(digest, survey["path"])
            if survey.get("known") or digest in self.known or content in contents:
                self.known_count += 1
                continue
            contents.add(content)
            found[digest] = survey
            self._ready.add(digest)
            self._store(survey)
        return list(found.values())

    def _drop(self, digest: str) -> None:
        self.dropped[digest] = self.known.pop(digest)
        _SURVEY_CACHE.pop(self._survey_path(digest), None)

    def clear_dropped(self) -> None:
        """Call it after the commit that removed them."""
        for digest in self.dropped:
            self._survey_path(digest).unlink(missing_ok=True)

    def _run_surveys(self, files: list[dict[str, Any]], description: str) -> list[dict[str, Any]]:
        results = self._run_step(pack_survey_tasks(files, self._parallel), SURVEY_TASK, description)
        return [survey for result in results for survey in result["surveys"]]

    def _store(self, survey: dict[str, Any]) -> None:
        atomic_files.create_exclusively(self._survey_path(survey["digest"]), survey)

    def _survey_path(self, digest: str) -> Path:
        return self._surveys / f"{digest.partition(':')[2]}.json"

    def _inputs_of(self, dates: set[int]) -> list[tuple[str, ledger.LedgerEntry]]:
        """Known files with data of these dates, each with one of its entries."""
        days = {date_of(date) for date in dates}
        found = sorted(self.known.items())
        return [
            (digest, entries[0]) for digest, entries in found if any(entry.trading_date in days for entry in entries)
        ]

    def _stored_survey(self, digest: str) -> dict[str, Any] | None:
        path = self._survey_path(digest)
        survey = _SURVEY_CACHE.get(path) or atomic_files.read_json(path)
        if survey is None or survey["format"] not in READABLE_FORMATS:
            return None
        if len(_SURVEY_CACHE) < MAX_CACHED_SURVEYS:
            _SURVEY_CACHE[path] = survey
        return survey

    def grown_paths(self, dates: set[int]) -> list[str]:
        """Files with data of these dates that have grown since they were ingested."""
        found = []
        for digest, entry in self._inputs_of(dates):
            path = (self._stored_survey(digest) or {}).get("path") or entry.path or ""
            is_longer = digest not in self._paths and os.path.isfile(path) and os.path.getsize(path) > entry.size_bytes
            if is_longer and ledger.digest_of(path, entry.size_bytes)[0] == digest:
                found.append(path)
        return found

    def known_surveys(self, dates: set[int]) -> list[dict[str, Any]]:
        """Surveys of known files with data of these dates."""
        return [self._known_survey(digest, entry) for digest, entry in self._inputs_of(dates)]

    def _known_survey(self, digest: str, entry: ledger.LedgerEntry) -> dict[str, Any]:
        """A survey of an older format is replaced, unless the file is no longer there."""
        survey = self._stored_survey(digest)
        if survey is not None and survey["format"] != SURVEY_FORMAT:
            path = self._paths.setdefault(digest, survey["path"])
            survey = None if os.path.isfile(path) else survey
        return survey or self._resurvey(digest, entry)

    def _resurvey(self, digest: str, entry: ledger.LedgerEntry) -> dict[str, Any]:
        path = self._paths.get(digest) or entry.path or ""
        _refuse_changed(path, digest, entry.size_bytes)
        task = survey_task(path, self._decompressed, self._split_bytes)
        [survey] = self._run_surveys([task], "survey of older files")
        survey["path"] = entry.path or path  # as in the ledger; `prepare` records where it is now
        atomic_files.replace(self._survey_path(digest), survey)
        self._ready.add(digest)
        return survey

    def readable_path(self, survey: dict[str, Any]) -> str:
        """Where the file is read: its path, or that of the decompressed copy."""
        digest = survey["digest"]
        if survey.get("packed"):
            return str(self._decompressed / f"{digest.partition(':')[2]}.pcap")
        return self._paths.get(digest) or survey["path"]

    def prepare(self, surveys: Iterable[dict[str, Any]]) -> None:
        """Check that the files exist and are unchanged, and decompress them."""
        for survey in surveys:
            digest = survey["digest"]
            if digest in self._ready:
                continue
            path = self._paths.get(digest) or survey["path"]
            is_same_size = os.path.isfile(path) and os.stat(path).st_size == survey["size_bytes"]
            if not is_same_size or os.stat(path).st_mtime_ns != survey["mtime_ns"]:
                _refuse_changed(path, digest, survey["size_bytes"])
            if path != survey["path"] and not os.path.isfile(survey["path"]):  # moved: record the new path
                survey["path"] = path
                atomic_files.replace(self._survey_path(digest), survey)
            if survey["packed"]:
                decompress(path, digest, self._decompressed)
            self._ready.add(digest)

    def is_reassigned(self, survey: dict[str, Any], entries: Iterable[ledger.LedgerEntry]) -> bool:
        """Whether the entries of a known file would now be different."""
        known, current = self.known[survey["digest"]], set(entries)
        if any(entry.flow is None for entry in known):  # written by an older umdf, without flows
            current = {replace(entry, flow=None) for entry in current}
        return current != set(known)

    def ledger_entries(
        self,
        new_surveys: Iterable[dict[str, Any]],
        reassigned: Iterable[dict[str, Any]],
        entries_of: Callable[[dict[str, Any]], list[ledger.LedgerEntry]],
    ) -> tuple[list[ledger.LedgerEntry], bool]:
        """What a commit adds to the ledger, and whether it replaces the whole ledger: that is small, and a single row
        cannot be removed from one of its files."""
        entries, reassigned_surveys = (
            [entry for survey in new_surveys for entry in entries_of(survey)],
            list(reassigned),
        )
        if not reassigned_surveys and not self.dropped:
            return entries, False
        unchanged = self.known.keys() - {survey["digest"] for survey in reassigned_surveys}
        entries += [entry for digest in sorted(unchanged) for entry in self.known[digest]]
        return entries + [entry for survey in reassigned_surveys for entry in entries_of(survey)], True


def _possible_prefixes(path: str, known: Sequence[ledger.LedgerEntry]) -> list[tuple[int, str]]:
    """Inputs that a file may have grown from: those with its name, and not at another path. The content decides."""
    size = os.path.getsize(path)
    candidates = (entry for entry in known if entry.path == path or not os.path.exists(entry.path or ""))
    return [(entry.size_bytes, entry.digest) for entry in candidates if entry.size_bytes < size]


def _refuse_changed(path: str, digest: str, size: int) -> None:
    """Raise if a file that a day needs has changed."""
    needed = "it is needed to rebuild a channel-day"
    if not os.path.isfile(path):
        forget = f"`umdf lake forget LAKE {digest[: ledger.DIGEST_PREFIX]}`"
        hint = f"pass its current path along with the new files, or remove it with {forget}"
        raise CaptureError(f"{path} no longer exists; {needed}", hint)
    now, length = ledger.digest_of(path)
    if now == digest:
        return
    if length > size and ledger.digest_of(path, size)[0] == digest:
        raise CaptureError(
            f"{path} has grown since it was ingested; {needed}", "run `umdf ingest` on it to load it again"
        )
    raise CaptureError(
        f"{path} has changed since it was ingested; {needed}",
        f"restore the old file, or run `umdf lake forget LAKE {digest[: ledger.DIGEST_PREFIX]}` and ingest the new one",
    )


def survey_task(
    path: str,
    decompressed: Path,
    split_bytes: int,
    known: Sequence[str] = (),
    shorter: Sequence[tuple[int, str]] = (),
) -> dict[str, Any]:
    files = {"path": path, "known": list(known), "shorter": list(shorter)}
    return files | {"decompressed": str(decompressed), "split_bytes": split_bytes}


def pack_survey_tasks(files: list[dict[str, Any]], parallel: int) -> list[dict[str, Any]]:
    """Tasks of SURVEY_TASK with several files each: at least twice as many tasks as can run in parallel, and small
    files together with large ones."""
    sizes = [os.path.getsize(file["path"]) for file in files]
    max_bytes, found, size = min(PACK_BYTES, sum(sizes) * 9 // (16 * parallel)), list[dict[str, Any]](), 0
    for file, file_bytes in zip(files, sizes, strict=True):
        if not found or size + file_bytes > max_bytes:
            found.append({"description": os.path.basename(file["path"]), "files": []})
            size = 0
        found[-1]["files"].append(file)
        size += file_bytes
    return found


def days_of_entries(entries: Iterable[ledger.LedgerEntry]) -> set[ChannelDayKey]:
    return {
        (entry.channel_id, (entry.trading_date - date_of(0)).days)
        for entry in entries
        if entry.channel_id is not None and entry.trading_date is not None
    }


def known_days(writer: Writer, date: str | None = None, channel: int | None = None) -> list[ChannelDayKey]:
    """The channel-days of the lake, perhaps of one date or channel only."""
    known = days_of_entries(ledger.entries(writer.snapshot))
    found = [day for day in sorted(known) if channel in (None, day[0]) and date in (None, date_of(day[1]).isoformat())]
    if not found:
        dates = ", ".join(sorted({date_of(day).isoformat() for _, day in known})) or "none"
        wanted = [f"date {date}"] * (date is not None) + [f"channel {channel}"] * (channel is not None)
        raise ConfigError(f"no data for {', '.join(wanted) or 'any date'}", f"available dates: {dates}")
    return found
