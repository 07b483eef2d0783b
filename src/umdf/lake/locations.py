"""Where a lake or a capture is: a path, or the file: URL of one.

Invariant: what is not a path of a mounted file system is refused. A commit needs a name that can be created only if
it is absent, and a task needs to read a capture from the middle; neither is promised by object stores.
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
    """The path that is meant. A Path made of a URL (`Path("file:///lake")`) has lost a slash, and is understood."""
    text = os.fspath(location)
    match = SCHEME.match(text)
    if match is None:
        return Path(text)
    path = text[match.end() :]
    if match["scheme"].lower() != "file":
        raise ConfigError(
            f"{text}: lake and captures are read and written as files, and {match['scheme']}: is no file system",
            "mount it at the same path on every machine, and give that path",
        )
    if path.startswith("//"):
        host, _, path = path[2:].partition("/")
        if host not in LOCAL_HOSTS:
            raise ConfigError(f"{text} is on another machine ({host})", "mount it, and give its path: file:///PATH")
        path = f"/{path}"
    return Path(unquote(path, errors="surrogateescape"))


def stored_text(path: str) -> str:
    """An absolute path for a column of texts: one whose bytes are not UTF-8 as a file: URL, which `local_path`
    reads."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return Path(path).as_uri()
    return path
