"""Paths as commands take them: also as file: URLs. (A plain Path would lose the second slash before anyone looks.)"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def place(given: str | Path) -> Path:
    from umdf.lake.places import place_of

    return place_of(given)


LakeOption = Annotated[Path, typer.Option(parser=place, help="Directory of the lake.", metavar="DIR")]
LakeArgument = Annotated[Path, typer.Argument(parser=place, help="Directory of the lake.", metavar="LAKE")]
