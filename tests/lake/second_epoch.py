"""A Binary capture once more, later on the same day and with an epoch of its own: as after a restart of the feed."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from umdf.transport.recording import MANIFEST, closed_files

FILE_HEADER, RECORD = 24, struct.Struct("<IIII")
PAYLOAD = 14 + 20 + 8  # behind Ethernet, IPv4 and UDP
PACKET = struct.Struct("<BBHIQ")  # channel, reserved, version, number, sending time (reference 5.1)
MESSAGE = struct.Struct("<HHHH")  # length, encoding, block length, template
SNAPSHOT_HEADER, BODY, LAST_VERSION = 30, 12, 32  # lastSequenceVersion (37084), from the start of the block
SECOND_NS = 10**9


def renumbered(captured: Path, target: Path, later_ns: int) -> Path:
    """The epoch after the one that it has, so much later."""
    directory = target / "capture"
    directory.mkdir(parents=True)
    for path in closed_files(captured / "capture"):
        (directory / path.name).write_bytes(_moved(bytearray(path.read_bytes()), later_ns))
    shutil.copy(captured / "capture" / MANIFEST, directory / MANIFEST)
    return target


def _moved(content: bytearray, later_ns: int) -> bytearray:
    at = FILE_HEADER
    while at < len(content):
        seconds, nanoseconds, kept, length = RECORD.unpack_from(content, at)
        when = seconds * SECOND_NS + nanoseconds + later_ns
        RECORD.pack_into(content, at, when // SECOND_NS, when % SECOND_NS, kept, length)
        packet, at = at + RECORD.size + PAYLOAD, at + RECORD.size + kept
        channel, reserved, version, number, sent = PACKET.unpack_from(content, packet)
        PACKET.pack_into(content, packet, channel, reserved, version + 1, number, sent + later_ns)
        content[packet - 2 : packet] = bytes(2)  # it has no checksum
        _move_snapshots(content, packet + PACKET.size, at)
    return content


def _move_snapshots(content: bytearray, at: int, end: int) -> None:
    """What a snapshot holds is of the new epoch, too."""
    while at < end:
        length, _, block, template = MESSAGE.unpack_from(content, at)
        if template == SNAPSHOT_HEADER and block > LAST_VERSION:
            place = at + BODY + LAST_VERSION
            (version,) = struct.unpack_from("<H", content, place)
            struct.pack_into("<H", content, place, version + 1)
        at += length
