"""The front hall: parse, join rooms, print; no logic. One small file per command, `app.py` ties them together.

The one rule: a command's file imports its rooms inside its function, so that `umdf --help` stays quick.
"""

from __future__ import annotations

from umdf.cli.app import main

__all__ = ["main"]
