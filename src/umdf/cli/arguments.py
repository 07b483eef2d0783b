"""Path arguments of commands, also as file: URLs. (A plain Path would lose the second slash of a URL.)"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def parse_path(text: str | Path) -> Path:
    from umdf.lake.locations import local_path

    return local_path(text)


LakeOption = Annotated[Path, typer.Option(parser=parse_path, help="Directory of the lake.", metavar="DIR")]
LakeArgument = Annotated[Path, typer.Argument(parser=parse_path, help="Directory of the lake.", metavar="LAKE")]
