"""The command line: parses arguments, calls the other packages, prints; no logic. One module per command in `commands`.

Invariant: a command imports what it needs inside its function, so that `umdf --help` stays fast.
"""

from __future__ import annotations

from umdf.cli.app import main

__all__ = ["main"]
