"""Objects as plain values and arrays, to be stored. Nothing is pickled: what is read back can call nothing.

    content = store(value, classes)
    value = restore(content, classes)

A value is a number, a text, a container, an array, or an object of one of `classes`: with all of its attributes, or as
its own pair of functions says. Objects and containers that are shared are shared again.

Invariant: what was stored by another version of the program, or was damaged since, is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import umdf
from umdf.errors import UmdfError

SCALARS = (type(None), bool, int, float, str)
MAPPINGS: dict[str, type[Any]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
COLLECTIONS: dict[str, type[Any]] = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}
IMMUTABLE = (tuple, frozenset, Enum)
PACKAGES = ("sync", "market", "book", "wire")  # whose source decides what is stored, and what it means
DIGEST_BYTES = 32
HINT = "start without a stored state: snapshots recover the books"


class Functions(NamedTuple):
    """How objects of a class become a value that can be stored, and how they come back."""

    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]


Classes = Mapping[type[Any], Functions | None]  # None: all attributes


def store(value: Any, classes: Classes) -> bytes:
    writer = _Writer(classes)
    graph = json.dumps({"source": source_digest(), "value": writer.write(value)}).encode()
    memory = io.BytesIO()
    np.savez(memory, np.frombuffer(graph, np.uint8), *writer.arrays)
    content = memory.getvalue()
    return hashlib.sha256(content).digest() + content


def restore(content: bytes, classes: Classes) -> Any:
    if hashlib.sha256(content[DIGEST_BYTES:]).digest() != content[:DIGEST_BYTES]:
        raise UmdfError("the stored state is damaged", HINT)
    with np.load(io.BytesIO(content[DIGEST_BYTES:]), allow_pickle=False) as stored:
        arrays = [stored[f"arr_{number}"] for number in range(len(stored.files))]
    graph = json.loads(arrays[0].tobytes())
    if graph["source"] != source_digest():
        raise UmdfError("the stored state was written by another version of umdf", HINT)
    return _Reader(classes, arrays[1:]).read(graph["value"])


@cache
def source_digest() -> str:
    """Of the code whose objects are stored: attributes and kernels of another version may mean something else."""
    digest, root = hashlib.sha256(), Path(umdf.__file__).parent
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


class _Writer:
    def __init__(self, classes: Classes) -> None:
        self.arrays: list[NDArray[Any]] = []
        self._classes = classes
        self._known: dict[int, int] = {}  # by identity: the number of what was written
        self._kept_alive: list[Any] = []  # identities are reused

    def write(self, value: Any) -> Any:
        """A value of JSON: a scalar as it is, anything else as a list that begins with its kind."""
        kind: type[Any] = type(value)
        if kind in SCALARS:
            return value
        if isinstance(value, np.bool_ | np.integer | np.floating):
            return value.item()
        if isinstance(value, np.ndarray | bytes):
            is_bytes = isinstance(value, bytes)
            self.arrays.append(np.frombuffer(value, np.uint8) if is_bytes else value)
            return ["bytes" if is_bytes else "array", len(self.arrays) - 1]
        if not issubclass(kind, IMMUTABLE):
            if id(value) in self._known:
                return ["known", self._known[id(value)]]
            self._known[id(value)] = len(self._known)
            self._kept_alive.append(value)
        name = kind.__name__
        if kind is deque:
            return ["deque", value.maxlen, *map(self.write, value)]
        if MAPPINGS.get(name) is kind:
            return [name, *([self.write(key), self.write(each)] for key, each in value.items())]
        if COLLECTIONS.get(name) is kind:
            return [name, *map(self.write, value)]
        return self._write_object(value)

    def _write_object(self, value: Any) -> list[Any]:
        kind = type(value)
        if kind not in self._classes:
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be stored: it is not among the classes")
        functions, name = self._classes[kind], _name_of(kind)
        if functions is not None:
            return ["made", name, self.write(functions.to_plain(value))]
        if isinstance(value, Enum):
            return ["enum", name, value.value]
        if isinstance(value, tuple):
            return ["named", name, *map(self.write, value)]
        found = {each: self.write(getattr(value, each)) for each in _attributes(value)}
        return ["object", name, found]


class _Reader:
    def __init__(self, classes: Classes, arrays: list[NDArray[Any]]) -> None:
        self._classes = {_name_of(kind): (kind, functions) for kind, functions in classes.items()}
        self._arrays, self._known = arrays, list[Any]()

    def read(self, node: Any) -> Any:
        if not isinstance(node, list):
            return node
        kind, *rest = node
        if kind == "array":
            return self._arrays[rest[0]]
        if kind == "bytes":
            return self._arrays[rest[0]].tobytes()
        if kind == "known":
            return self._known[rest[0]]
        if kind in ("tuple", "frozenset"):
            return COLLECTIONS[kind](map(self.read, rest))
        if kind in ("enum", "named"):
            return self._read_immutable(*rest)
        number = len(self._known)
        self._known.append(None)
        if kind == "made":
            name, plain = rest
            self._known[number] = self._classes[name][1].from_plain(self.read(plain))  # type: ignore[union-attr]
        elif kind == "object":
            name, attributes = rest
            found = self._known[number] = object.__new__(self._classes[name][0])
            for each, value in attributes.items():
                object.__setattr__(found, each, self.read(value))
        elif kind == "deque":
            self._known[number] = deque(maxlen=rest[0])
            self._known[number].extend(map(self.read, rest[1:]))
        elif kind in MAPPINGS:
            self._known[number] = MAPPINGS[kind]()
            for key, value in rest:
                self._known[number][self.read(key)] = self.read(value)
        else:
            self._known[number] = COLLECTIONS[kind]()
            add = self._known[number].append if kind == "list" else self._known[number].add
            for each in rest:
                add(self.read(each))
        return self._known[number]

    def _read_immutable(self, name: str, *values: Any) -> Any:
        return self._classes[name][0](*map(self.read, values))


def _name_of(kind: type[Any]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _attributes(value: Any) -> Iterable[str]:
    slots = (name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()))
    return [*vars(value)] if hasattr(value, "__dict__") else [name for name in slots if hasattr(value, name)]
