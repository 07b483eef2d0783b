"""Columns that callers pass to an encoder: converted to the wire's type, or an EncodeError that names the fault.

Used by both codecs. Callers never see the wording of Arrow or Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from umdf.errors import EncodeError

MOST_SHOWN = 40  # characters of a value in an error


def exact(array: Any, kind: pa.DataType, name: str) -> pa.Array:
    """The column in this type, if every value fits."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise EncodeError(_type_problem(array, kind, name)) from None


def refuse_non_ascii(array: Any, name: str) -> None:
    """Characters are ASCII on the wire. Bytes are used unchanged."""
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        wrong = pc.call_function("invert", [pc.call_function("string_is_ascii", [array])])
        if pc.call_function("any", [wrong]).as_py():
            raise EncodeError(f"{name}: {shown(array.filter(wrong)[0].as_py())} is not ASCII")


def shown(value: Any) -> str:
    """A value as an error shows it."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def _type_problem(array: pa.Array, kind: pa.DataType, name: str) -> str:
    if not pa.types.is_integer(kind) or pa.types.is_nested(array.type):
        return f"{name} expects {kind}, got {array.type}"
    limits = np.iinfo(kind.to_pandas_dtype())
    low, high = int(limits.min), int(limits.max)
    wrong = next((v for v in array.to_pylist() if v is not None and not _fits(v, low, high)), None)
    if wrong is None:
        return f"{name} expects {kind}, got {array.type}"
    what = "outside" if isinstance(wrong, int) else "not an integer from"
    return f"{name}: {shown(wrong)} is {what} {low} to {high}"


def _fits(value: Any, low: int, high: int) -> bool:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return low <= number <= high and (isinstance(value, str) or number == value)
