"""`python -m umdf`, and the file to pass to spark-submit."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.path[0] == str(Path(__file__).parent):  # run as a file: our packages are not top-level modules
    del sys.path[0]

from umdf.cli import main

if __name__ == "__main__":
    main()
