"""Reads the content of a file, whether it is plain, gzip or zstd.

Invariant: damage is never an exception. All bytes before it are delivered, then the source ends and `damage` has the
reason, the offset in the compressed file and the number of unread bytes.
"""

from __future__ import annotations

import zlib
from typing import BinaryIO, cast

import zstandard

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
READ_BYTES = 128 << 10
MAX_OUTPUT_BYTES = 256 << 10  # maximum per call of a decompressor, and so the most that has to be recovered


class Plain:
    name = ""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.damage = ""

    def readinto(self, view: memoryview) -> int:
        try:
            return self._file.readinto(view)  # type: ignore[attr-defined]
        except OSError as error:
            self.damage = f"reading fails: {error.strerror or error}"
            return 0


class Gzip:
    """Consecutive gzip members (RFC 1952)."""

    name = "gzip"

    def __init__(self, file: BinaryIO) -> None:
        self._source = _CountingReader(file)
        self._inflate = zlib.decompressobj(wbits=31)
        self._input = b""
        self.damage = ""

    def readinto(self, view: memoryview) -> int:
        while not self.damage:
            if self._inflate.eof and not self._next_member():
                return 0
            ended = False
            if not self._input:
                self._input = self._source.read(READ_BYTES)
                ended = not self._input
            output = self._decompress(min(len(view), MAX_OUTPUT_BYTES))
            if output:
                view[: len(output)] = output
                return len(output)
            if ended and not self._inflate.eof:
                self.damage = self._source.damage or f"the gzip stream is cut at its byte {self._source.count}"
        return 0

    def _decompress(self, max_bytes: int) -> bytes:
        # A failing call does not return the bytes decompressed so far; so go back and request fewer.
        while True:
            before = self._inflate.copy()
            try:
                output = self._inflate.decompress(self._input, max_bytes)
            except zlib.error as error:
                self._inflate = before
                max_bytes //= 2
                if max_bytes == 0:
                    near = self._source.count - len(self._input)
                    unread = f"{self._source.drain() + len(self._input):,} bytes of the compressed file unread"
                    self.damage = f"the gzip stream is damaged behind its byte {near} ({error}); {unread}"
                    return b""
            else:
                self._input = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
                return output

    def _next_member(self) -> bool:
        while not (rest := self._input.lstrip(b"\0")):  # padding, which gzip allows
            self._input = self._source.read(READ_BYTES)
            if not self._input:
                self.damage = self._source.damage
                return False
        self._input = rest + self._source.read(2) if len(rest) == 1 else rest
        if not self._input.startswith(GZIP_MAGIC):
            offset = self._source.count - len(self._input)
            unread = f"{self._source.drain() + len(self._input):,} bytes of the compressed file unread"
            self.damage = f"the gzip stream ends at its byte {offset}, behind it is something else; {unread}"
            return False
        self._inflate = zlib.decompressobj(wbits=31)
        return True


class Zstd:
    """Consecutive zstd frames (RFC 8878)."""

    name = "zstd"

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._open_reader()
        self.damage = ""

    def _open_reader(self) -> None:
        self._tracker = _ZstdFrameTracker(self._file)
        self._reader = zstandard.ZstdDecompressor().stream_reader(
            cast(BinaryIO, self._tracker), read_size=READ_BYTES, read_across_frames=True
        )
        self._delivered = 0

    def readinto(self, view: memoryview) -> int:
        if self.damage:
            return 0
        try:
            count = self._reader.readinto(view[:MAX_OUTPUT_BYTES])
        except zstandard.ZstdError as error:
            reason = str(error).removeprefix("zstd decompress error: ")
            before = self._tracker.count
            unread = f"at least {self._tracker.drain():,} bytes of the compressed file unread"
            self.damage = f"the zstd stream is damaged before its byte {before} ({reason}); {unread}"
            return self._recover_partial_block(view)
        self._delivered += count
        if count == 0:
            self.damage = self._tracker.damage
            if not self.damage and not self._tracker.is_complete:
                self.damage = f"the zstd stream is cut at its byte {self._tracker.count}"
        return count

    def _recover_partial_block(self, view: memoryview) -> int:
        """A failing call does not return the bytes decompressed so far; so repeat it byte by byte."""
        if not self._file.seekable():
            return 0
        goal = self._delivered
        count = 0
        try:
            self._file.seek(0)
            self._open_reader()
            while self._delivered < goal and (data := self._reader.read(min(MAX_OUTPUT_BYTES, goal - self._delivered))):
                self._delivered += len(data)
            while count < min(len(view), MAX_OUTPUT_BYTES) and self._reader.readinto(view[count : count + 1]):
                count += 1
        except (zstandard.ZstdError, OSError):
            pass
        return count


class _CountingReader:
    """Reads a file from its start and counts bytes; a read error is treated as the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = 0
        self.damage = ""

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._file.read(size)
        except OSError as error:
            self.damage = f"reading fails: {error.strerror or error}"
            return b""
        self.count += len(data)
        return data

    def drain(self) -> int:
        """Read to the end of the file; returns the number of bytes."""
        before = self.count
        while _CountingReader.read(self, READ_BYTES):
            pass
        return self.count - before


class _ZstdFrameTracker(_CountingReader):
    """Tracks frames and blocks, because the library does not report a truncated last frame."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._header = b""
        self._content_bytes_left = 0  # bytes of content up to the next header
        self._in_frame = False
        self._checksum = 0

    @property
    def is_complete(self) -> bool:
        return not self._in_frame and not self._header and self._content_bytes_left == 0

    def read(self, size: int = -1) -> bytes:
        data = super().read(size)
        at = 0
        while True:
            skipped = min(self._content_bytes_left, len(data) - at)
            self._content_bytes_left -= skipped
            at += skipped
            if at == len(data):
                return data
            self._header += data[at : at + 1]
            at += 1
            if self._in_frame:
                self._parse_block_header()
            else:
                self._parse_frame_header()

    def _parse_block_header(self) -> None:
        if len(self._header) < 3:
            return
        word = int.from_bytes(self._header, "little")
        self._content_bytes_left = 1 if word >> 1 & 3 == 1 else word >> 3  # a run is one byte, repeated
        if word & 1:
            self._content_bytes_left += self._checksum
            self._in_frame = False
        self._header = b""

    def _parse_frame_header(self) -> None:
        if len(self._header) < 8 and self._header[:4] != ZSTD_MAGIC:
            return
        if self._header[:4] != ZSTD_MAGIC:  # a skippable frame: its length in four bytes
            self._content_bytes_left = int.from_bytes(self._header[4:], "little")
        else:
            if len(self._header) < 5:
                return
            descriptor = self._header[4]
            single = descriptor >> 5 & 1
            content_size = (single, 2, 4, 8)[descriptor >> 6]
            self._content_bytes_left = (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content_size
            self._checksum = 4 * (descriptor >> 2 & 1)
            self._in_frame = True
        self._header = b""


def decompressor(file: BinaryIO, head: bytes) -> Plain | Gzip | Zstd:
    """The reader for `file`, which starts with `head`; the name of the file does not matter."""
    if head.startswith(GZIP_MAGIC):
        return Gzip(file)
    if head.startswith(ZSTD_MAGIC) or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5):
        return Zstd(file)
    return Plain(file)
