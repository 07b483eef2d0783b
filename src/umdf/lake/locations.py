"""Where a lake or a capture is: a path, or the file: URL of one.

Invariant: only paths of mounted file systems are accepted. A commit needs to create a name only if it does not exist,
and a task needs to read a capture from the middle; object stores do not guarantee either.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from umdf.errors import ConfigError

SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?=/)")
LOCAL_HOSTS = ("", "localhost")


def local_path(location: str | os.PathLike[str]) -> Path:
    """The local path. A Path made from a URL (`Path("file:///lake")`), which lost a slash, is accepted too."""
    text = os.fspath(location)
    match = SCHEME.match(text)
    if match is None:
        return Path(text)
    path = text[match.end() :]
    if match["scheme"].lower() != "file":
        raise ConfigError(
            f"unsupported URL: {text}", "mount the storage at the same path on every machine and pass that path"
        )
    if path.startswith("//"):
        host, _, path = path[2:].partition("/")
        if host not in LOCAL_HOSTS:
            raise ConfigError(
                f"unsupported URL: {text} names a remote host ({host})", "mount it and pass its path, file:///PATH"
            )
        path = f"/{path}"
    return Path(unquote(path, errors="surrogateescape"))


def stored_text(path: str) -> str:
    """An absolute path for a string column; a path that is not UTF-8 becomes a file: URL, which `local_path` reads."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return Path(path).as_uri()
    return path
