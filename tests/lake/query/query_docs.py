"""The examples of docs/query.md: the lake of the tests has the symbols that they name."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "query.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def examples(spark: bool) -> list[str]:
    return [block for block in BLOCK.findall(PAGE.read_text()) if ("spark)" in block) == spark]


def run(text: str, names: dict[str, Any]) -> list[Any]:
    """What its lines that are expressions give."""
    shown = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Expr):
            shown.append(eval(compile(ast.Expression(node.value), PAGE.name, "eval"), names))
        else:
            exec(compile(ast.Module([node], []), PAGE.name, "exec"), names)
    return shown
