"""What receiving needs is compiled, or loaded from the cache, before anything is received: otherwise the first packets
wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from umdf.kernels import ENTRY_POINTS
from umdf.wire.fast.decode.decoder import warm as warm_decoder
from umdf.wire.fast.templates import TemplateSet

PACKAGES = tuple(f"umdf.{name}." for name in ("book", "feed", "market", "sync", "transport", "wire"))


def compile_all(fast_templates: Iterable[TemplateSet]) -> None:
    for dispatcher, arguments in _kernels():
        if arguments not in dispatcher.overloads:
            dispatcher.compile(arguments)
    for templates in fast_templates:
        warm_decoder(templates)


def uncompiled_kernels() -> int:
    """How many kernels are not in the cache: each takes a second or more to compile."""
    return sum(
        arguments not in dispatcher.overloads and not _is_cached(dispatcher, arguments)
        for dispatcher, arguments in _kernels()
    )


def _kernels() -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Those that are imported, and the types of their arguments."""
    for dispatcher, arguments in ENTRY_POINTS.items():
        if dispatcher.py_func.__module__.startswith(PACKAGES):
            yield dispatcher, arguments


def _is_cached(dispatcher: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether numba's index of the function names them; without a directory that can be written there is no index."""
    cache = dispatcher._cache
    index = getattr(cache, "_cache_file", None)
    return index is not None and cache._index_key(arguments, dispatcher.targetctx.codegen()) in index._load_index()
