"""What a newcomer's machine meets first: the set-up script, the pins and the Makefile."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
TARGETS = ("help", "setup", "test", "demo", "check", "bench", "bench-lake", "soak", "clean")


def load_setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_script", ROOT / "tools" / "setup.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 4), (4, 0, 0)])
def test_a_python_that_will_do_has_no_problem(version: tuple[int, ...]) -> None:
    assert load_setup().python_problem(version, lambda name: True) == ""


def test_an_old_python_is_refused_in_one_line_that_names_both_versions() -> None:
    line = load_setup().python_problem((3, 9, 2), lambda name: True)
    assert "3.9" in line and "3.11" in line and "\n" not in line


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_a_python_without_venv_gets_the_name_of_the_package_to_install(missing: str) -> None:
    line = load_setup().python_problem((3, 12, 1), lambda name: name != missing)
    assert line.startswith(f"python3 lacks {missing};") and "apt install python3.12-venv" in line and "\n" not in line


def test_the_script_really_ends_with_that_line_and_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    script = tmp_path / "tools" / "setup.py"
    script.write_text((ROOT / "tools" / "setup.py").read_text())
    without = f"import sys, runpy; sys.modules['ensurepip'] = None; sys.argv = ['setup.py', 'dev']; runpy.run_path({str(script)!r}, run_name='__main__')"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"umdf: python3 lacks ensurepip; .*-venv\) and run make again\n", done.stderr)
    assert not (tmp_path / ".venv").exists()


def test_the_script_is_readable_by_old_pythons() -> None:
    compile_for = "import ast, sys; ast.parse(open(sys.argv[1]).read(), feature_version=(3, 7))"
    subprocess.run([sys.executable, "-c", compile_for, ROOT / "tools" / "setup.py"], check=True)


def test_constraints_are_sorted_lines_of_name_and_version_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in lines)
    assert lines == sorted(set(lines))


def test_every_requirement_is_pinned_to_a_version_that_it_accepts() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    asked += [requirement for extra in extras.values() for requirement in extra]
    for requirement in map(Requirement, asked):
        assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)]), requirement


def installed_by(root: str, extras: set[str]) -> set[str]:
    """The names of the packages that a requirement brings along, as far as they are installed."""
    seen: set[str] = set()
    waiting = [(root, extras)]
    while waiting:
        name, wanted = waiting.pop()
        for requirement in map(Requirement, metadata.requires(name) or []):
            needed = canonicalize_name(requirement.name)
            marker = requirement.marker
            applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in wanted | {""})
            if applies and needed not in seen:
                seen.add(needed)
                waiting.append((needed, requirement.extras))
    return seen


def test_what_is_installed_is_what_is_pinned() -> None:
    for name in installed_by("umdf", {"dev", "spark"}):
        assert metadata.version(name) == PINS[name], name


def test_every_schema_file_goes_into_the_wheel() -> None:
    schemas = ROOT / "src" / "umdf" / "schemas"
    globs = PROJECT["tool"]["setuptools"]["package-data"]["umdf.schemas"]
    packed = {path for pattern in globs for path in schemas.glob(pattern)}
    data = {path for path in schemas.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    assert data == packed


def test_make_alone_lists_every_target() -> None:
    listed = subprocess.run(["make", "-C", ROOT, "--no-print-directory"], capture_output=True, text=True, check=True)
    assert [line.split()[1] for line in listed.stdout.splitlines()] == list(TARGETS)
