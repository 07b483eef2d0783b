"""`python -m umdf`, and the program to give to spark-submit, which wants a file."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.path[0] == str(Path(__file__).parent):  # run as a file: our packages are no top-level modules
    del sys.path[0]

from umdf.cli import main

if __name__ == "__main__":
    main()
