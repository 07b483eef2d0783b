"""Step 0 of an ingest: what a capture contains, and where. One task per new file, or for several small ones.

A survey lists the multicast groups of the file, the protocol of each, and for every split of some 8 MB the sequences
by epoch and date, so that later tasks read only what they need. It depends only on the file's content, so it is
stored in the lake under the file's digest. Invariant: a file that is not a capture is a result, not an error.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from umdf.errors import CaptureError
from umdf.lake.atomic_files import write_error
from umdf.lake.commit.ledger import FileDigest
from umdf.lake.runtime.spark_tasks import TaskAttempt
from umdf.lake.tasks.survey_scan import SurveyScan, templates
from umdf.sync.stream_detection import StreamSurvey
from umdf.transport.capture import Split, damage_in, open_capture
from umdf.transport.capture_reader import ByteObserver, Header
from umdf.transport.compression import decompressor
from umdf.transport.damage import Damage
from umdf.wire.packet import Protocol, detect_protocols

SPLIT_FIELDS = ("offset", "end", "number", "header", "damage", "has_checksums")  # needed to read a split
SPLIT_BYTES = 8 << 20  # tasks read whole splits, and those at the edges of a span are read by two
COPY_BYTES = 1 << 20
BATCH_PACKETS, CHUNK_BYTES = 1 << 15, 4 << 20  # a batch is also the resolution of `marks`
SURVEY_FORMAT = 5  # version of stored surveys
READABLE_FORMATS = (4, 5)  # 4 has no `clock_offsets`, no `content_digest` and no `announced`

# The packets of one flow, epoch and date in a split. FAST does not state the epoch: it is the last reset seen, if any.
# `marks` are (sequence, ts_recv), one per batch: by then everything up to that sequence had arrived. `few` are
# (offset, sequence) of the packets, if there are only one or two. `announced` is what the last heartbeat says was
# sent: (sequence, ts_recv). Besides the segments, `refused` lists the packets of the split with damaged headers:
# flow, offset, sequence and date.
SEGMENT_FIELDS = (
    "flow", "channel", "epoch", "date", "first", "last", "packets", "ts_first", "ts_last", "marks", "few", "announced",
)  # fmt: skip


def run_all(task: dict[str, Any], attempt: TaskAttempt) -> dict[str, Any]:
    """{"files": the arguments of `run` for each file} → {"surveys"}."""
    return {"surveys": [run(each, attempt) for each in task["files"]]}


def run(task: dict[str, Any], attempt: TaskAttempt) -> dict[str, Any]:
    """{"path", "known": digests of that size, "shorter": sizes and digests of inputs that it may have grown from,
    "decompressed": directory, "split_bytes"} → a survey, or that the file is known; with "grown_from", if it has
    grown."""
    path, is_compressed = task["path"], _is_compressed(task["path"])
    if task["known"] or is_compressed:
        identity = _file_identity(path, FileDigest(path, prefixes=_prefix_sizes(task)), task)
        if identity["digest"] in task["known"]:
            return identity | {"known": True}
        if is_compressed:
            return identity | _survey_compressed(identity, Path(task["decompressed"]), task["split_bytes"])
    digest = FileDigest(path, prefixes=_prefix_sizes(task))  # digest and survey in one pass
    try:
        survey = {"format": SURVEY_FORMAT, "packed": "", **_survey(path, "", task["split_bytes"], digest.update)}
    except CaptureError as error:
        survey = _not_a_capture(path, error)
    identity = _file_identity(path, digest, task)
    if "splits" in survey and survey["splits"][-1]["end"] is not None:
        survey["splits"][-1]["end"] = identity["size_bytes"]  # it may have grown since, with another digest
    return identity | survey


def _prefix_sizes(task: dict[str, Any]) -> list[int]:
    return [size for size, _ in task.get("shorter", ())]


def _survey_compressed(identity: dict[str, Any], directory: Path, split_bytes: int) -> dict[str, Any]:
    path = identity["path"]
    try:
        plain_path, compression, damage = decompress(path, identity["digest"], directory)
        if os.path.getsize(path) != identity["size_bytes"]:
            raise CaptureError(f"{path}: it is compressed and still being written", "ingest it once it is closed")
        content = FileDigest(plain_path)
        survey = _survey(plain_path, damage, split_bytes, content.update)
        return {"format": SURVEY_FORMAT, "packed": compression, "content_digest": content.finish()[0], **survey}
    except CaptureError as error:
        return _not_a_capture(path, error)


def _file_identity(path: str, digest: FileDigest, task: dict[str, Any]) -> dict[str, Any]:
    text, size = digest.finish()
    identity = {"path": path, "digest": text, "size_bytes": size, "mtime_ns": os.stat(path).st_mtime_ns}
    prefixes = [part for length, part in task.get("shorter", ()) if digest.prefix_digests.get(length) == part]
    return identity | ({"grown_from": prefixes} if prefixes else {})


def _not_a_capture(path: str, error: CaptureError) -> dict[str, Any]:
    reason = error.reason.removeprefix(f"{path}: ")
    return {"format": SURVEY_FORMAT, "packed": "", "no_capture": True, "warnings": [(0, reason, 0)]}


def _is_compressed(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return bool(decompressor(file, file.peek(4)[:4]).name)
    except OSError:
        return True  # unreadable: opening it reports why


def decompress(path: str, digest: str, directory: Path) -> tuple[str, str, str]:
    """A file that allows random access: its path, its compression, and damage of the compressed stream."""
    try:
        with open(path, "rb") as file:
            source = decompressor(file, file.peek(4)[:4])
            if not source.name:
                return path, "", ""
            target = directory / f"{digest.partition(':')[2]}.pcap"
            directory.mkdir(parents=True, exist_ok=True)
            chunk = memoryview(bytearray(COPY_BYTES))
            # Another attempt, or another file with this content, may write it too.
            temporary = target.with_suffix(f".{uuid.uuid4().hex}")
            with temporary.open("wb") as plain:
                while read_bytes := source.readinto(chunk):
                    plain.write(chunk[:read_bytes])
            os.replace(temporary, target)
            return str(target), source.name, source.damage
    except OSError as error:
        raise write_error(directory, error) from error


def split_of(content: dict[str, Any], path: str) -> Split:
    header = content["header"]
    if header is not None:
        header = Header(**{**header, "interfaces": bytes.fromhex(header["interfaces"])})
    damage = content.get("damage")  # missing: found when the split is read
    known = None if damage is None else tuple(Damage(path, *each) for each in damage)
    return Split(
        path, content["offset"], content["end"], content["number"], header, known, content.get("has_checksums")
    )


def _survey(path: str, damage: str, split_bytes: int, watch: ByteObserver | None = None) -> dict[str, Any]:
    survey, scan = StreamSurvey(templates()), SurveyScan()
    warnings: list[tuple[int, str, int]] = [(0, damage, 0)] if damage else []
    chunk = min(CHUNK_BYTES, max(split_bytes // 2, 1))  # a split ends with a chunk
    with open_capture(path, batch_packets=BATCH_PACKETS, buffer_bytes=chunk, observer=watch, corrupt=True) as capture:
        splits = [capture.remaining()]
        for batch in capture:
            names: list[Hashable] = [(flow.dest, flow.dest_port) for flow in batch.flows]
            protocol = detect_protocols(batch.buffer, batch.start, batch.end)
            if batch.corrupt is not None:
                protocol[batch.corrupt] = Protocol.UNKNOWN
            survey.add(batch, names, protocol)
            scan.add(batch, names, len(splits) - 1, protocol)
            rest = capture.remaining()
            if rest.offset - splits[-1].offset >= split_bytes and rest.offset < (rest.end or 0):
                splits[-1] = replace(splits[-1], end=rest.offset)
                splits.append(rest)
    scan.end()
    found = [(one.offset, one.reason, one.unread_bytes) for one in capture.warnings]
    known = {"has_checksums": capture.has_checksums}
    return {
        "warnings": warnings + found,
        "counts": vars(capture.counts),
        "flows": list(scan.flows),
        "streams": survey.export(),
        "resets": scan.resets,
        "runs": scan.runs,
        "clock_offsets": scan.clock_offsets,
        "splits": [
            _split_to_json(split, capture.warnings) | known | scan.split_summary(number)
            for number, split in enumerate(splits)
        ],
    }


def _split_to_json(split: Split, damages: Sequence[Damage]) -> dict[str, Any]:
    header = split.header and {**vars(split.header), "interfaces": split.header.interfaces.hex()}
    damage = [(one.offset, one.reason, one.unread_bytes) for one in damage_in(damages, split.offset, split.end)]
    return {"offset": split.offset, "end": split.end, "number": split.number, "header": header, "damage": damage}
