"""How every numba kernel is compiled, cached, and how it touches memory.

Invariant: numba code lives in files named `*kernel*.py` (and in generated files) and kernels of other directories
are imported by full name, so that a digest of those files is a complete source stamp. numba itself stamps a cached
function with its own file only and misses a changed callee.

Kernels take raw addresses (plain int64): one signature for every buffer, and the cheapest call.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numba.core.config
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.extending import intrinsic

PACKAGE = Path(__file__).parent
_KERNEL_IMPORT = re.compile(rb"^from (umdf[\w.]*kernel\w*) import", re.M)


def cache_dir() -> Path:
    """Where compiled kernels are kept: numba's own setting, else in the virtual environment, else the user's cache."""
    configured: str = vars(numba.core.config)["CACHE_DIR"]
    if configured:
        return Path(configured)
    if sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK):
        return Path(sys.prefix) / "umdf-cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "umdf"


def package_stamp() -> str:
    """A digest of every kernel source in the package."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*kernel*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def source_stamp(file: Path) -> str:
    """A digest of every source that the kernels of a file can be made of."""
    own = file.read_bytes()
    directories = [file.parent] if PACKAGE in file.parents else _imported_directories(own)
    return hashlib.sha256(
        "".join([hashlib.sha256(own).hexdigest(), *map(_directory_stamp, directories)]).encode()
    ).hexdigest()


@functools.cache
def _directory_stamp(directory: Path) -> str:
    """Of this file, the kernel files of a directory, and those of the directories that they import kernels from."""
    directories, digest = [directory], hashlib.sha256(Path(__file__).read_bytes())
    for current in directories:
        for path in sorted(current.glob("*kernel*.py")):
            source = path.read_bytes()
            digest.update(source)
            directories += [other for other in _imported_directories(source) if other not in directories]
    return digest.hexdigest()


def _imported_directories(source: bytes) -> list[Path]:
    modules = (module.decode().split(".") for module in _KERNEL_IMPORT.findall(source))
    return sorted({PACKAGE.parent.joinpath(*module[:-1]) for module in modules} - {PACKAGE})


class _Locator(_CacheLocator):
    def __init__(self, py_func: Any, py_file: str) -> None:
        self._file = Path(py_file)
        self._line = py_func.__code__.co_firstlineno
        directory = self._file.parent.relative_to(PACKAGE).as_posix() if PACKAGE in self._file.parents else "generated"
        self._path = cache_dir() / directory.replace("/", ".")

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_source_stamp(self) -> str:
        return source_stamp(self._file)

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator | None:
        locator = cls(py_func, py_file)
        try:
            locator.ensure_cache_path()
        except OSError:
            return None
        return locator


class _CacheImpl(CompileResultCacheImpl):
    _locator_classes = [_Locator]


class _Cache(FunctionCache):
    _impl_class = _CacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """As numba's, without first loading everything that only a compilation needs: a third of a cold start."""
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


_jit: Any = numba.njit  # its stubs do not know every option
ENTRY_POINTS: dict[Any, tuple[Any, ...]] = {}  # every kernel that was imported, and the types of its arguments


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls: cached on disk, without the GIL, without reference counting.

    Its arguments are int64 (numbers and addresses), so that `compile_kernels` knows its one signature.
    """
    return _entry_point(function, (types.int64,) * function.__code__.co_argcount)


def array_kernel(*dtypes: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function of an int64 and of contiguous arrays of these types, compiled as soon as it is imported.

    For who needs the addresses of many arrays: numba has them in a twentieth of the time that Python takes. Anything
    else (another type, gaps, arrays that cannot be written to) is a TypeError.
    """
    arrays = (types.Array(numba.from_dtype(np.dtype(kind)), 1, "C") for kind in dtypes)
    arguments = (types.int64, *arrays)

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = _entry_point(function, arguments)
        dispatcher.compile(arguments)
        dispatcher.disable_compile()
        return dispatcher

    return decorate


def _entry_point(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    dispatcher: Any = _jit(nogil=True, _nrt=False)(function)
    try:
        dispatcher._cache = _Cache(function)
    except RuntimeError:  # no directory can be written: compile in memory, `umdf doctor` says so
        pass
    ENTRY_POINTS[dispatcher] = arguments
    return dispatcher


def compile_kernels() -> None:
    """Compile every imported kernel that is not in the cache."""
    for dispatcher, arguments in ENTRY_POINTS.items():
        if arguments not in dispatcher.overloads:
            dispatcher.compile(arguments)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a helper that only kernels call, into each of them."""
    return _jit(forceinline=True, nogil=True, _nrt=False)(function)


def outlined(function: Callable[..., Any]) -> Any:
    """Compile a helper that only kernels call, as a function of its own: for what is long or rare.

    Called by an inlined helper it is inlined all the same: numba hands `forceinline` down. That was measured against
    real calls, which cost the loops of the books more (their results go through memory) than they save in size.
    """
    return _jit(nogil=True, _nrt=False)(function)


# Unaligned little-endian memory access at base + offset. The offset is a separate argument so that LLVM sees one
# invariant pointer and an induction variable, and can vectorise.


def _pointer(builder: Any, base: Any, offset: Any, bits: int) -> Any:
    first = builder.inttoptr(base, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(first, [offset]), ir.IntType(bits).as_pointer())


def _load(result: Any, bits: int) -> Any:
    @intrinsic
    def load(typingctx: Any, base: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(_pointer(builder, args[0], args[1], bits))
            value.align = 1
            return value

        return result(types.int64, types.int64), codegen

    return load


def _store(kind: Any, bits: int) -> Any:
    @intrinsic
    def store(typingctx: Any, base: Any, offset: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            instruction = builder.store(args[2], _pointer(builder, args[0], args[1], bits))
            instruction.align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, kind), codegen

    return store


load_u8 = _load(types.uint8, 8)
load_u16 = _load(types.uint16, 16)
load_u32 = _load(types.uint32, 32)
load_u64 = _load(types.uint64, 64)
load_i8 = _load(types.int8, 8)
load_i16 = _load(types.int16, 16)
load_i32 = _load(types.int32, 32)
load_i64 = _load(types.int64, 64)
store_u8 = _store(types.uint8, 8)
store_u16 = _store(types.uint16, 16)
store_u32 = _store(types.uint32, 32)
store_u64 = _store(types.uint64, 64)
store_i32 = _store(types.int32, 32)
store_i64 = _store(types.int64, 64)


def _store_pair() -> Any:
    @intrinsic
    def store(typingctx: Any, base: Any, offset: Any, first: Any, second: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pair, index_type = ir.VectorType(ir.IntType(64), 2), ir.IntType(32)
            value = builder.insert_element(ir.Constant(pair, ir.Undefined), args[2], index_type(0))
            value = builder.insert_element(value, args[3], index_type(1))
            pointer = builder.bitcast(_pointer(builder, args[0], args[1], 8), pair.as_pointer())
            builder.store(value, pointer).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.uint64, types.uint64), codegen

    return store


store_pair_u64 = _store_pair()  # two neighbours in one store


def _prefetch() -> Any:
    @intrinsic
    def prefetch_line(typingctx: Any, base: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer, word, name = _pointer(builder, args[0], args[1], 8), ir.IntType(32), "llvm.prefetch.p0i8"
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), word, word, word])
            function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            builder.call(function, [pointer, word(0), word(3), word(1)])  # to read, into every level, data
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return prefetch_line


prefetch = _prefetch()  # asks for the cache line at base + offset, whatever is there: it never faults


def _swap(result: Any, bits: int) -> Any:
    @intrinsic
    def swap(typingctx: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bswap(args[0])

        return result(result), codegen

    return swap


swap_u16 = _swap(types.uint16, 16)
swap_u32 = _swap(types.uint32, 32)
swap_u64 = _swap(types.uint64, 64)
