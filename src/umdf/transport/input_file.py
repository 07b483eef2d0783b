"""Opens input files: a regular file, a pipe, or stdin (`-`).

Invariant: a pipe is read only once. `peek` returns the first bytes of a pipe, however slowly they arrive.
"""

from __future__ import annotations

import io
import os
import stat
from typing import BinaryIO, cast

from ..errors import CaptureError

STDIN = "-"
HEAD_BYTES = 64 << 10


class _Pipe(io.RawIOBase):
    """A pipe whose first bytes are read in advance, so that `peek` can return them."""

    def __init__(self, file: io.FileIO, name: str) -> None:
        self._file, self.name = file, name
        self._head = b""
        while len(self._head) < HEAD_BYTES and (more := file.read(HEAD_BYTES - len(self._head))):
            self._head += more

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        if not self._head:
            return self._file.readinto(buffer)
        count = min(len(buffer), len(self._head))
        buffer[:count], self._head = self._head[:count], self._head[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Whether it can be read only once, from its start: stdin, a pipe, a device."""
    try:
        mode = os.fstat(0).st_mode if os.fspath(path) == STDIN else os.stat(path).st_mode
    except OSError:
        return False  # opening it reports why
    return os.fspath(path) == STDIN or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def need_file(path: str | os.PathLike[str], what: str) -> None:
    """Raise if the input can be read only once, because `what` reads it several times."""
    if is_pipe(path):
        name = "stdin" if os.fspath(path) == STDIN else f"{os.fspath(path)} is not a regular file: it"
        raise CaptureError(
            f"{name} can be read only once, but {what} needs to read it twice", "save it to a file first"
        )


def open_input(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a file for reading; an OSError becomes a CaptureError."""
    name = os.fspath(path)
    try:
        if not is_pipe(name):
            return open(name, "rb")
        if name == STDIN and os.isatty(0):
            raise CaptureError("stdin is a terminal", "pipe a capture into umdf: `zcat day.pcap.gz | umdf decode -`")
        file = io.FileIO(0, closefd=False) if name == STDIN else io.FileIO(name)
        return io.BufferedReader(cast(BinaryIO, _Pipe(file, "stdin" if name == STDIN else name)), HEAD_BYTES)  # type: ignore[arg-type, type-var]
    except OSError as error:
        hint = "check the path" if isinstance(error, FileNotFoundError) else "check the path and its permissions"
        raise CaptureError(f"{name}: {error.strerror or error}", hint) from None
