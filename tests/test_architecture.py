"""What each package may import (ARCHITECTURE.md), checked on the source text: nothing is imported to check it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "umdf"

FOUNDATION = {"errors", "units", "kernels", "buffers", "xmltree"}  # everyone may use it; it uses only itself
CORE = {"schemas", "wire", "market", "book", "sync"}
RUNTIMES = {"feed", "lake", "exchange"}  # do not import each other
TOOLS = {"certify", "dashboard"}
ENTRY_POINTS = {"cli", "doctor", "warmup", "__init__", "__main__"}
ALLOWED_IMPORTS: dict[str, set[str]] = {
    "schemas": set(),
    "transport": set(),
    "wire": {"schemas"},
    "market": {"schemas", "wire"},
    "book": {"schemas", "wire", "market"},
    "sync": {"schemas", "wire", "market", "book"},
    **{package: CORE | {"transport"} for package in RUNTIMES},
    **{package: CORE | {"transport"} | RUNTIMES for package in TOOLS},
    **{package: CORE | {"transport"} | RUNTIMES | TOOLS | ENTRY_POINTS for package in ENTRY_POINTS},
    **{package: set() for package in FOUNDATION},
}

# Modules from outside, and the only packages that may import them.
RESTRICTED_IMPORTS: dict[str, set[str]] = {
    "pyspark": {"lake"},
    "deltalake": {"lake"},
    **{name: {"transport"} for name in ("socket", "select", "selectors", "ssl", "asyncio")},
    **{name: set(ALLOWED_IMPORTS) - CORE - FOUNDATION for name in ("time", "random", "secrets")},  # come as arguments
    **{name: {"cli"} for name in ("typer", "rich")},
}
NUMBA = {"numba", "llvmlite"}
NUMBA_EXCEPTIONS = {"warmup.py"}  # asks which processor it compiled for
CLOCKS = {"now", "utcnow", "today"}

MOST_LINES = 400
MOST_MODULES = 25  # of a package
LONG_FILES: dict[str, str] = {  # path: why it is one file
    "src/umdf/market/families.py": "one table: every family and column",
}

SKIPPED = {
    ".git",
    ".venv",
    ".numba",
    ".ruff_cache",
    ".pytest_cache",
    ".hypothesis",
    "__pycache__",
    "build",
    "dist",
    "demo-out",
}
# Built from pieces, so that this file does not contain what it looks for.
MACHINE = re.compile(
    "|".join([r"\.\./" + "shared", r"(?<![\w.])/" + "(?:work|root|home)/", "py" + r"pi\.org", "python" + "hosted"])
)


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every module that is imported, also inside functions: line and full dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                above = path.relative_to(PACKAGE.parent).parts[: -node.level]
                module = ".".join([*above, *([module] if module else [])])
            if module == "umdf":
                yield from ((node.lineno, f"umdf.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def faults_of(path: Path, text: str) -> list[str]:
    """What a source file at `path` does against the rules, with lines."""
    package, faults = package_of(path), []
    tree = ast.parse(text)
    if package not in ALLOWED_IMPORTS:
        return [f"{path.name}: there is no package {package}; add it to ALLOWED_IMPORTS and to ARCHITECTURE.md"]
    allowed = ALLOWED_IMPORTS[package] | FOUNDATION | {package}
    for line, name in imports(path, tree):
        top, _, rest = name.partition(".")
        if top == "umdf" and rest and rest.split(".")[0] in ALLOWED_IMPORTS and rest.split(".")[0] not in allowed:
            faults.append(f"{path}:{line}: {package} may not import {name}")
        elif package not in RESTRICTED_IMPORTS.get(top, {package}):
            faults.append(
                f"{path}:{line}: {package} may not import {name}, only {', '.join(sorted(RESTRICTED_IMPORTS[top]))}"
            )
        elif top in NUMBA and "kernel" not in path.name and path.name not in NUMBA_EXCEPTIONS:
            faults.append(f"{path}:{line}: numba code lives in files named *kernel*.py")
        elif top in {"tests", "conftest", "pytest", "hypothesis"}:
            faults.append(f"{path}:{line}: the package may not import {name}")
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
            and package != "cli"
        ):
            faults.append(f"{path}:{node.lineno}: print belongs to cli")
        if package in CORE | FOUNDATION and isinstance(node, ast.Attribute) and node.attr in CLOCKS:
            base = ast.unparse(node.value).rpartition(".")[2]
            if base in {"datetime", "date"}:
                faults.append(f"{path}:{node.lineno}: {base}.{node.attr}: time comes in as an argument")
    return faults


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_every_file_imports_only_what_its_package_may(path: Path) -> None:
    assert faults_of(path, path.read_text()) == []


@pytest.mark.parametrize(
    ("place", "text", "said"),
    [
        ("wire/sbe/decode.py", "from umdf.transport import udp", "wire may not import umdf.transport"),
        ("wire/sbe/decode.py", "def f():\n    import umdf.market.families", "wire may not import umdf.market.families"),
        ("transport/udp.py", "from umdf import wire", "transport may not import umdf.wire"),
        ("feed/handler.py", "import umdf.lake.tables", "feed may not import umdf.lake.tables"),
        ("errors.py", "import umdf.wire", "errors may not import umdf.wire"),
        ("wire/sbe/decode.py", "from ...transport import udp", "wire may not import umdf.transport"),
        ("transport/__init__.py", "from .. import wire", "transport may not import umdf.wire"),
        ("feed/handler.py", "import pyspark.sql", "only lake"),
        ("exchange/publisher.py", "import socket", "only transport"),
        ("book/engine.py", "from time import monotonic", "book may not import time"),
        ("sync/merge.py", "import random", "sync may not import random"),
        ("market/phases.py", "import datetime\nx = datetime.datetime.now()", "time comes in as an argument"),
        ("wire/sbe/decode.py", "from numba import njit", "files named *kernel*.py"),
        ("wire/sbe/decode.py", "print(1)", "print belongs to cli"),
        ("doctor.py", "import rich.table", "doctor may not import rich.table"),
        ("wire/sbe/decode.py", "from tests.vectors import cases", "may not import tests.vectors"),
        ("utils/things.py", "", "no package utils"),
    ],
)
def test_a_forbidden_import_is_reported(place: str, text: str, said: str) -> None:
    faults = faults_of(PACKAGE / place, text)
    assert len(faults) == 1 and said in faults[0]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("wire/sbe/decode.py", "import umdf.errors, umdf.schemas, umdf.wire.packet"),
        ("wire/sbe/decode.py", "from . import layout\nfrom ..packet import header\nfrom ...errors import UmdfError"),
        ("wire/sbe/decode_kernel.py", "import numba"),
        ("lake/source/data_source.py", "import pyspark, time\nfrom umdf.sync import merge"),
        ("transport/udp.py", "import socket, time"),
        ("cli/commands/decode.py", "import rich\nfrom umdf import __version__, lake\nprint(1)"),
        ("market/phases.py", "import datetime\nx = datetime.datetime(2026, 1, 1)"),
    ],
)
def test_an_allowed_import_is_not_reported(place: str, text: str) -> None:
    assert faults_of(PACKAGE / place, text) == []


def text_files() -> list[Path]:
    found = [path for path in ROOT.rglob("*") if path.is_file()]
    return [
        path
        for path in found
        if not SKIPPED & set(path.relative_to(ROOT).parts) and not path.parent.name.endswith(".egg-info")
    ]


def test_no_file_is_too_long_to_read() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): path.read_bytes().count(b"\n")
        for path in text_files()
        if path.suffix == ".py"
    }
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES and path not in LONG_FILES} == {}
    assert [path for path in LONG_FILES if lengths.get(path, 0) <= MOST_LINES] == [], (
        "no longer long: take it off the list"
    )


def test_no_package_has_too_many_modules() -> None:
    counts = Counter(path.parent.relative_to(PACKAGE).as_posix() for path in sources() if path.name != "__init__.py")
    assert counts["lake/tasks"] > 10, "modules are counted"
    assert {package: count for package, count in counts.items() if count > MOST_MODULES} == {}


def test_nothing_names_this_machine_or_a_registry() -> None:
    assert MACHINE.search("see .." + "/shared/x") and MACHINE.search('"/' + 'root/x"')
    found = []
    for path in text_files():
        for number, line in enumerate(path.read_bytes().decode(errors="replace").splitlines(), 1):
            if MACHINE.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


def test_every_package_is_in_the_architecture_page() -> None:
    drawn = (ROOT / "ARCHITECTURE.md").read_text()
    names = [package for package in ALLOWED_IMPORTS if not package.startswith("__")]
    assert [package for package in names if not re.search(rf"\b{package}\b", drawn)] == []
