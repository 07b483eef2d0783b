"""Where compiled kernels are kept, when they are compiled anew, and how they touch memory."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import numba
import numba.core.config
import numpy as np
import pytest

from umdf import kernels
from umdf.kernels import cache_dir, package_stamp, source_stamp

PACKAGE = kernels.PACKAGE


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with kernels in two directories, of which the first imports from the second."""
    root = tmp_path / "umdf"
    for name, text in {
        "first/a_kernel.py": "from umdf.second.c_kernel import (\n    c,\n)\n",
        "first/b_kernel.py": "b = 1\n",
        "first/plain.py": "x = 1\n",
        "second/c_kernel.py": "c = 1\n",
        "third/d_kernel.py": "d = 1\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(kernels, "PACKAGE", root)
    return root


def stamp(file: Path) -> str:
    kernels._directory_stamp.cache_clear()  # as a new process would find it
    return source_stamp(file)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    kernels._directory_stamp.cache_clear()


@pytest.mark.parametrize(
    ("changed", "anew"),
    [
        ("first/a_kernel.py", True),  # the file itself
        ("first/b_kernel.py", True),  # its neighbour
        ("second/c_kernel.py", True),  # what it imports
        ("third/d_kernel.py", False),
        ("first/plain.py", False),
    ],
)
def test_a_kernel_is_compiled_anew_when_what_it_is_made_of_changes(package: Path, changed: str, anew: bool) -> None:
    before = stamp(package / "first/a_kernel.py")
    assert stamp(package / "first/a_kernel.py") == before
    with (package / changed).open("a") as file:
        file.write("# changed\n")
    assert (stamp(package / "first/a_kernel.py") != before) is anew


def test_a_generated_kernel_is_compiled_anew_when_what_it_imports_changes(package: Path, tmp_path: Path) -> None:
    generated = tmp_path / "generated.py"
    generated.write_text("from umdf.second.c_kernel import c\n")
    before = stamp(generated)
    (package / "second/c_kernel.py").write_text("c = 2\n")
    changed = stamp(generated)
    assert changed != before
    (package / "third/d_kernel.py").write_text("d = 2\n")
    assert stamp(generated) == changed


@pytest.mark.parametrize("changed", ["first/b_kernel.py", "third/d_kernel.py"])
def test_the_stamp_of_the_package_knows_every_kernel(package: Path, changed: str) -> None:
    before = package_stamp()
    (package / changed).write_text("changed = 1\n")
    assert package_stamp() != before


def test_a_new_kernel_file_changes_the_stamp_of_the_package(package: Path) -> None:
    before = package_stamp()
    (package / "third/e_kernel.py").write_text("e = 1\n")
    assert package_stamp() != before


def test_kernels_import_kernels_only_in_the_way_that_the_stamp_sees() -> None:
    """A kernel of another directory by the full name of its file; all have `umdf.kernels` in their stamp."""
    for path in PACKAGE.rglob("*_kernel*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Import) and any("kernel" in alias.name for alias in node.names)), path
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("umdf."):
                place = PACKAGE.parent.joinpath(*(node.module or "").split("."))
                inner = [place / f"{alias.name}.py" for alias in node.names if "kernel" in alias.name]
                assert not any(file.exists() and place != path.parent for file in inner), f"{path}:{node.lineno}"
                assert "kernel" not in place.name or node.col_offset == 0, f"{path}:{node.lineno}"


def test_numbas_own_setting_says_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(numba.core.config), "CACHE_DIR", str(tmp_path / "mine"))
    assert cache_dir() == tmp_path / "mine"


def test_the_cache_is_in_the_virtual_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(numba.core.config), "CACHE_DIR", "")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert cache_dir() == tmp_path / "umdf-cache"


@pytest.mark.parametrize("environment", ["none", "read-only"])
def test_without_an_environment_to_write_to_the_cache_is_the_users(
    environment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(numba.core.config), "CACHE_DIR", "")
    monkeypatch.setattr(sys, "prefix", sys.base_prefix if environment == "none" else str(tmp_path / "not there"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "umdf"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "umdf"


LOADS = [(kernels.load_u8, "u1"), (kernels.load_u16, "<u2"), (kernels.load_u32, "<u4"), (kernels.load_u64, "<u8")]
LOADS += [(kernels.load_i8, "i1"), (kernels.load_i16, "<i2"), (kernels.load_i32, "<i4"), (kernels.load_i64, "<i8")]
STORES = [(kernels.store_u8, "u1"), (kernels.store_u16, "<u2"), (kernels.store_u32, "<u4"), (kernels.store_u64, "<u8")]
STORES += [(kernels.store_i32, "<i4"), (kernels.store_i64, "<i8")]


@pytest.mark.parametrize(("load", "kind"), LOADS, ids=lambda value: value if isinstance(value, str) else "")
def test_loads_are_little_endian_and_need_no_alignment(load: Callable, kind: str) -> None:
    @numba.njit
    def at(base, offset):
        return load(base, offset)

    content = np.array([0x81, 0xF2, 0x03, 0x84, 0xF5, 0x06, 0x87, 0xF8, 0x09, 0x8A], np.uint8)
    size = np.dtype(kind).itemsize
    for offset in range(len(content) - size + 1):
        assert at(content.ctypes.data, offset) == np.frombuffer(content, kind, 1, offset)[0]


@pytest.mark.parametrize(("store", "kind"), STORES, ids=lambda value: value if isinstance(value, str) else "")
def test_stores_write_their_bytes_and_no_others(store: Callable, kind: str) -> None:
    number = np.dtype(kind).type(-2 if np.dtype(kind).kind == "i" else 0xFE)

    @numba.njit
    def put(base, offset, value):
        store(base, offset, value)

    size = np.dtype(kind).itemsize
    for offset in range(4):
        content = np.full(16, 0xAA, np.uint8)
        put(content.ctypes.data, offset, number)
        assert content[offset : offset + size].tobytes() == number.tobytes()
        assert set(content[:offset].tolist() + content[offset + size :].tolist()) == {0xAA}


def test_swaps_turn_big_endian_around() -> None:
    @numba.njit
    def swapped(value):
        return (
            kernels.swap_u16(np.uint16(value)),
            kernels.swap_u32(np.uint32(value)),
            kernels.swap_u64(np.uint64(value)),
        )

    assert swapped(0x0102) == (0x0201, 0x02010000, 0x0201000000000000)
