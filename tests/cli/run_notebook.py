"""Runs the cells of a notebook as a kernel would: one after another, in one namespace; the last value of each is shown.

python run_notebook.py NOTEBOOK
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any


def cells_of(notebook: Path) -> list[str]:
    said = json.loads(notebook.read_text())
    return ["".join(cell["source"]) for cell in said["cells"] if cell["cell_type"] == "code"]


def run(notebook: Path) -> list[Any]:
    """What each cell shows: HTML where a notebook would, else a repr."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for number, text in enumerate(cells_of(notebook)):
        tree = ast.parse(text, f"cell {number}")
        last = tree.body[-1] if tree.body else None
        value: Any = None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
        shown.append(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
    return shown


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))))
