"""Step 0 of an ingest: what is in a capture file, and where. A task for each new file, or for some small ones.

A survey says which groups the file has, what speaks there, and for every split of some 8 MB which numbers of which
numbering and date are in it, so that a later task reads only what it needs. It depends on the file's content alone, so
it is kept in the lake by the file's digest. The one rule: a file that is no capture is a value, not an error.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from umdf.errors import CaptureError
from umdf.lake.durable import write_fault
from umdf.lake.ledger import Digest
from umdf.lake.survey_walk import Walk, templates
from umdf.lake.tasks import Place
from umdf.sync.streams import Survey
from umdf.transport.capture import Split, damage_in, open_capture
from umdf.transport.capture_walk import Header, Watch
from umdf.transport.compression import decompressor
from umdf.transport.damage import Damage
from umdf.wire.packet import Protocol, recognise

SPLIT = ("offset", "end", "number", "header", "damage", "has_checksums")  # what must be known to read one
SPLIT_BYTES = 8 << 20  # tasks read whole splits, and those at the ends of a span are read by two
COPY_BYTES = 1 << 20
BATCH_PACKETS, CHUNK_BYTES = 1 << 15, 4 << 20  # a batch is also how finely a stream knows what has come until when
FORMAT = 4  # of a survey that is kept

# What a split has of one flow, numbering and date. FAST says no numbering: there it is the reset seen last, if any.
# `marks` are (number, ts_recv), one a batch: up to that number all had come by then. `few` are (offset, number) of the
# packets, where they are one or two. Beside the segments, `refused` are the packets of the split that fit nothing
# around them: flow, offset, number and date.
SEGMENT = ("flow", "channel", "epoch", "date", "first", "last", "packets", "ts_first", "ts_last", "marks", "few")


def run_all(task: dict[str, Any], place: Place) -> dict[str, Any]:
    """{"files": what `run` takes, for each} → {"surveys"}."""
    return {"surveys": [run(each, place) for each in task["files"]]}


def run(task: dict[str, Any], place: Place) -> dict[str, Any]:
    """{"path", "known": digests of that size, "shorter": sizes and digests of inputs that it may have grown from,
    "unpacked": directory, "split_bytes"} → a survey, or that it is known; with "grown_from", if it has."""
    path, is_packed = task["path"], _is_packed(task["path"])
    if task["known"] or is_packed:
        about = _about(path, Digest(path, prefixes=_sizes(task)), task)
        if about["digest"] in task["known"]:
            return about | {"known": True}
        if is_packed:
            return about | _survey_packed(about, Path(task["unpacked"]), task["split_bytes"])
    digest = Digest(path, prefixes=_sizes(task))  # what it is and what is in it, in one go
    try:
        found = {"format": FORMAT, "packed": "", **_survey(path, "", task["split_bytes"], digest.take)}
    except CaptureError as error:
        found = _no_capture(path, error)
    about = _about(path, digest, task)
    if "splits" in found and found["splits"][-1]["end"] is not None:
        found["splits"][-1]["end"] = about["size_bytes"]  # it may have grown since: that is of another digest
    return about | found


def _sizes(task: dict[str, Any]) -> list[int]:
    return [size for size, _ in task.get("shorter", ())]


def _survey_packed(about: dict[str, Any], unpacked: Path, split_bytes: int) -> dict[str, Any]:
    path = about["path"]
    try:
        readable, packed, damage = unpack(path, about["digest"], unpacked)
        if os.path.getsize(path) != about["size_bytes"]:
            raise CaptureError(f"{path}: it is compressed and still being written", "ingest it when it is closed")
        return {"format": FORMAT, "packed": packed, **_survey(readable, damage, split_bytes)}
    except CaptureError as error:
        return _no_capture(path, error)


def _about(path: str, digest: Digest, task: dict[str, Any]) -> dict[str, Any]:
    text, size = digest.end()
    about = {"path": path, "digest": text, "size_bytes": size, "mtime_ns": os.stat(path).st_mtime_ns}
    parts = [part for length, part in task.get("shorter", ()) if digest.of_prefix.get(length) == part]
    return about | ({"grown_from": parts} if parts else {})


def _no_capture(path: str, error: CaptureError) -> dict[str, Any]:
    reason = error.reason.removeprefix(f"{path}: ")
    return {"format": FORMAT, "packed": "", "no_capture": True, "warnings": [(0, reason, 0)]}


def _is_packed(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return bool(decompressor(file, file.peek(4)[:4]).name)
    except OSError:
        return True  # it cannot be read: whoever opens it says why


def unpack(path: str, digest: str, directory: Path) -> tuple[str, str, str]:
    """A file that can be read from anywhere in it: its path, how it was compressed, and what was wrong with that."""
    try:
        with open(path, "rb") as file:
            source = decompressor(file, file.peek(4)[:4])
            if not source.name:
                return path, "", ""
            target = directory / f"{digest.partition(':')[2]}.pcap"
            directory.mkdir(parents=True, exist_ok=True)
            chunk = memoryview(bytearray(COPY_BYTES))
            own = target.with_suffix(f".{uuid.uuid4().hex}")  # a second attempt, or a second file, may be at it too
            with own.open("wb") as plain:
                while got := source.readinto(chunk):
                    plain.write(chunk[:got])
            os.replace(own, target)
            return str(target), source.name, source.damage
    except OSError as error:
        raise write_fault(directory, error) from error


def split_of(said: dict[str, Any], path: str) -> Split:
    header = said["header"]
    if header is not None:
        header = Header(**{**header, "interfaces": bytes.fromhex(header["interfaces"])})
    damage = said.get("damage")  # without: whoever reads it finds out
    known = None if damage is None else tuple(Damage(path, *each) for each in damage)
    return Split(path, said["offset"], said["end"], said["number"], header, known, said.get("has_checksums"))


def _survey(path: str, damage: str, split_bytes: int, watch: Watch | None = None) -> dict[str, Any]:
    survey, walk = Survey(templates()), Walk()
    warnings: list[tuple[int, str, int]] = [(0, damage, 0)] if damage else []
    chunk = min(CHUNK_BYTES, max(split_bytes // 2, 1))  # a split ends with a chunk
    with open_capture(path, batch_packets=BATCH_PACKETS, chunk_bytes=chunk, watch=watch, corrupt=True) as capture:
        splits = [capture.rest()]
        for batch in capture:
            names: list[Hashable] = [(flow.dest, flow.dest_port) for flow in batch.flows]
            protocol = recognise(batch.buffer, batch.start, batch.end)
            if batch.corrupt is not None:
                protocol[batch.corrupt] = Protocol.UNKNOWN
            survey.take(batch, names, protocol)
            walk.take(batch, names, len(splits) - 1, protocol)
            rest = capture.rest()
            if rest.offset - splits[-1].offset >= split_bytes and rest.offset < (rest.end or 0):
                splits[-1] = replace(splits[-1], end=rest.offset)
                splits.append(rest)
    walk.end()
    found = [(one.offset, one.reason, one.unread_bytes) for one in capture.warnings]
    known = {"has_checksums": capture.has_checksums}
    return {
        "warnings": warnings + found,
        "counts": vars(capture.counts),
        "flows": list(walk.flows),
        "streams": survey.export(),
        "resets": walk.resets,
        "splits": [
            _said(split, capture.warnings) | known | walk.of_split(number) for number, split in enumerate(splits)
        ],
    }


def _said(split: Split, damages: Sequence[Damage]) -> dict[str, Any]:
    header = split.header and {**vars(split.header), "interfaces": split.header.interfaces.hex()}
    damage = [(one.offset, one.reason, one.unread_bytes) for one in damage_in(damages, split.offset, split.end)]
    return {"offset": split.offset, "end": split.end, "number": split.number, "header": header, "damage": damage}
