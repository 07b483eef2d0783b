"""The JVM of an embedded Spark session: whether it has ended, and its errors in one line instead of tracebacks."""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_WAIT_S = 5


def how_it_ended(process: subprocess.Popen[bytes] | None, error: Exception) -> str | None:
    """How the JVM ended, after an error that this may have caused; None if it is running."""
    if process is None:
        return None
    if isinstance(error, ConnectionError) or isinstance(error.__context__, ConnectionError):
        try:
            process.wait(EXIT_WAIT_S)  # its sockets are closed before the process ends
        except subprocess.TimeoutExpired:
            return None
    code = process.poll()
    if code is None:
        return None
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@contextmanager
def without_py4j_log() -> Iterator[None]:
    """py4j logs the traceback of a lost JVM to the root logger, which prints it to stderr if it has no handler.

    A logger that the caller configured still receives it.
    """
    silent = logging.NullHandler()
    logging.root.addHandler(silent)
    try:
        yield
    finally:
        logging.root.removeHandler(silent)
