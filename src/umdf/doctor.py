"""The checks of `umdf doctor`: each returns a status, what was found, and how to fix it.

Invariant: a check takes what it examines as arguments, with the real values as defaults, and prints nothing.
ERROR means that umdf does not work here; WARN that a part of it does not, or not well.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata

from umdf.errors import UmdfError
from umdf.lake.runtime import java as lake_java
from umdf.transport import udp_probe

MIN_PYTHON = (3, 11)
RECEIVE_BUFFER_BYTES = 4 << 20  # for the bursts at the opening and in auctions; the usual default is 208 KiB
LAKE_EXTRAS = {"lake": "lakes without Spark", "spark": "lakes on Spark"}
MIN_OPEN_FILES = 1024
MIN_MEMORY_BYTES = 4 << 30
MIB = 1 << 20


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    check: str
    status: Status
    details: str
    fix: str = ""


def python(
    version: tuple[int, ...] = tuple(sys.version_info[:3]),
    system: str = platform.system(),
    machine: str = platform.machine(),
) -> Finding:
    details = f"Python {'.'.join(map(str, version))} on {system} {machine}"
    if version < MIN_PYTHON:
        return Finding("python", Status.ERROR, details, "install Python 3.11 or newer, then reinstall umdf")
    if (system, machine) != ("Linux", "x86_64"):
        return Finding("python", Status.WARN, details, "umdf is tested on Linux x86_64 only")
    return Finding("python", Status.OK, details)


def packages(requirements: list[str] | None = None, version_of: Callable[[str], str] = metadata.version) -> Finding:
    """Every required package is installed, in a supported version."""
    try:
        requirements = metadata.requires("umdf") or [] if requirements is None else requirements
    except metadata.PackageNotFoundError:
        return Finding(
            "packages", Status.WARN, "umdf is imported from a source tree without being installed", "pip install -e ."
        )
    try:
        faults, count = _faults(requirements, version_of)
    except ImportError:
        return Finding("packages", Status.ERROR, "packaging is missing", "pip install packaging")
    if faults:
        return Finding("packages", Status.ERROR, ", ".join(faults), f"pip install {' '.join(faults.values())}")
    return Finding("packages", Status.OK, f"all {count} required packages")


def extras(requirements: list[str] | None = None, version_of: Callable[[str], str] = metadata.version) -> Finding:
    """Packages for lakes without and with Spark; a base installation has neither."""
    try:
        requirements = metadata.requires("umdf") or [] if requirements is None else requirements
        faults = {extra: _faults(requirements, version_of, extra)[0] for extra in LAKE_EXTRAS}
    except (metadata.PackageNotFoundError, ImportError):
        return Finding("lakes", Status.WARN, "unknown", "fix the packages first")
    lacking = [extra for extra in LAKE_EXTRAS if faults[extra]]
    if not lacking:
        return Finding("lakes", Status.OK, "with and without Spark")
    able = "only without Spark" if lacking == ["spark"] else "not available"
    details = f"{able}: {', '.join(dict.fromkeys(fault for extra in lacking for fault in faults[extra]))}"
    what = "; ".join(f"pip install 'umdf[{extra}]' for {LAKE_EXTRAS[extra]}" for extra in lacking)
    return Finding("lakes", Status.WARN, details, what)


def _faults(requirements: list[str], version_of: Callable[[str], str], extra: str = "") -> tuple[dict[str, str], int]:
    """Faults of the packages of an extra (default: the required ones), with what to install; and their number."""
    from packaging.requirements import Requirement

    faults, count = {}, 0
    for requirement in map(Requirement, requirements):
        marker = requirement.marker
        if (marker is None) == bool(extra) or (marker and not marker.evaluate({"extra": extra})):
            continue
        count += 1
        try:
            version = version_of(requirement.name)
        except metadata.PackageNotFoundError:
            fault = f"{requirement.name} is missing"
        else:
            if requirement.specifier.contains(version, prereleases=True):
                continue
            fault = f"{requirement.name} is {version}"
        faults[fault] = f"'{requirement.name}{requirement.specifier}'"
    return faults, count


def kernel_cache() -> Finding:
    """Compiled kernels can be stored, and are up to date."""
    try:
        from umdf.kernels import cache_dir
        from umdf.warmup import is_warm
    except ImportError as error:
        return Finding(
            "kernel cache",
            Status.ERROR,
            f"cannot import numba: {error}",
            "pip install --force-reinstall numba llvmlite",
        )
    directory = cache_dir()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        writable = os.access(directory, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        hint = "make it writable or set NUMBA_CACHE_DIR, otherwise kernels are compiled at every start"
        return Finding("kernel cache", Status.WARN, f"not writable: {directory}", hint)
    size_bytes = sum(path.stat().st_size for path in directory.glob("**/*") if path.is_file())
    details = f"{directory}, {size_bytes / MIB:.1f} MiB"
    if not is_warm():
        return Finding("kernel cache", Status.WARN, f"not compiled: {details}", "run `umdf doctor --fix`")
    return Finding("kernel cache", Status.OK, f"compiled: {details}")


def java(environ: Mapping[str, str] = os.environ) -> Finding:
    """Only Spark needs Java: checks the first one that the lake would use."""
    javas = lake_java.find_javas(environ)
    if not javas:
        return Finding(
            "java", Status.WARN, "not found (needed by Spark only)", "pip install 'umdf[spark]' installs one"
        )
    first = javas[0]
    if first.is_usable:
        return Finding("java", Status.OK, str(first))
    fallback = next((f"until then umdf uses {java}; " for java in javas if java.is_usable), "")
    if first.release is None:
        details = f"{first.executable} ({first.origin}) cannot be run"
        return Finding("java", Status.WARN, details, f"{fallback}fix it, or unset JAVA_HOME")
    releases = " or ".join(map(str, lake_java.SUPPORTED_RELEASES))
    return Finding("java", Status.WARN, str(first), f"{fallback}Spark needs Java {releases}; set JAVA_HOME")


def receive_buffers(granted_bytes: Callable[[int], int] = udp_probe.granted_receive_buffer_bytes) -> Finding:
    """Bursts wait in the socket's buffer while the process is busy; what does not fit is lost."""
    granted = granted_bytes(RECEIVE_BUFFER_BYTES)
    details = f"{granted / MIB:.1f} of {RECEIVE_BUFFER_BYTES / MIB:.0f} MiB granted"
    if granted < RECEIVE_BUFFER_BYTES:
        fix = f"sudo sysctl -w net.core.rmem_max={RECEIVE_BUFFER_BYTES} (and in /etc/sysctl.d to keep it)"
        return Finding("receive buffers", Status.WARN, details, fix)
    return Finding("receive buffers", Status.OK, details)


def multicast(probe: Callable[[], str] = udp_probe.multicast_error) -> Finding:
    error = probe()
    if error:
        fix = "sudo ip link set lo multicast on; in a container, attach it to a network"
        return Finding("multicast", Status.WARN, f"multicast on loopback does not work: {error}", fix)
    return Finding("multicast", Status.OK, "multicast on loopback works")


def processors(count: int | None = None, memory_bytes: int | None = None) -> Finding:
    count = len(os.sched_getaffinity(0)) if count is None else count
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if memory_bytes is None else memory_bytes
    details = f"{count} CPUs, {memory_bytes / (1 << 30):.1f} GiB of memory"
    if count < 2 or memory_bytes < MIN_MEMORY_BYTES:
        return Finding("machine", Status.WARN, details, "Spark and the live client need 2 CPUs and 4 GiB of memory")
    return Finding("machine", Status.OK, details)


def open_files(limit: int | None = None) -> Finding:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    details = "no limit on open files" if soft == resource.RLIM_INFINITY else f"{soft} open files"
    if soft != resource.RLIM_INFINITY and soft < MIN_OPEN_FILES:
        return Finding("open files", Status.WARN, details, f"ulimit -n {MIN_OPEN_FILES}")
    return Finding("open files", Status.OK, details)


CHECKS: tuple[Callable[[], Finding], ...] = (
    python,
    packages,
    extras,
    kernel_cache,
    java,
    receive_buffers,
    multicast,
    processors,
    open_files,
)


def run_checks() -> list[Finding]:
    return [check() for check in CHECKS]


def apply_fixes() -> None:
    """Fix what does not need root: compile the kernels."""
    try:
        from umdf.warmup import warm_all

        warm_all()
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "umdf":
            raise  # a missing warmer is our bug
        raise UmdfError(f"cannot compile the kernels: {error}", "run `umdf doctor` without --fix first") from error
