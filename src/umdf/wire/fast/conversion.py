"""Values from one type to another, as the FAST specification allows it (section 8).

Used for the initial values of a template file and for values passed to the encoder. A failed conversion has the
specification's code: D1, D10 and D11 for values without meaning, R1 to R5 for a loss of information.
"""

from __future__ import annotations

import re

from umdf.wire.fast.templates import ASCII, BYTES, DECIMAL, RANGES, UNICODE, Decimal, Value

MAX_EXPONENT = 63  # and -63 (6.2.2)

_BLANKS = " \t\r\n"
_UNSIGNED = re.compile(r"[0-9]+")
_SIGNED = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"(-?)([0-9]*)(?:\.([0-9]+))?")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})*")
_MAX_DIGITS = 4096  # Python refuses to convert longer ones


class ConversionError(Exception):
    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


def from_string(text: str, type: str) -> Value:
    """A value written as text (8.1)."""
    if type == ASCII:
        return _ascii(text)
    if type == UNICODE:
        return _unicode(text)
    if type == BYTES:
        digits = re.sub(f"[{_BLANKS}]", "", text)
        if not _HEX.fullmatch(digits):
            raise ConversionError("D11", "must be pairs of hexadecimal digits")
        return bytes.fromhex(digits)
    text = text.strip(_BLANKS)
    if len(text) > _MAX_DIGITS:
        raise ConversionError("D11", f"{len(text)} characters")
    if type == DECIMAL:
        return _decimal(text)
    if not (_SIGNED if RANGES[type][0] < 0 else _UNSIGNED).fullmatch(text):
        raise ConversionError("D11", "must be digits" + (", with or without a minus" if RANGES[type][0] < 0 else ""))
    return _check_range(int(text), type)


def to_type(value: object, type: str) -> Value:
    """A value passed to the encoder, as the type of its field (8.1 to 8.4)."""
    if isinstance(value, bool) or not isinstance(value, int | str | bytes | tuple):
        raise ConversionError("D1", f"cannot convert {value.__class__.__name__} to {type}")
    if isinstance(value, tuple):
        if len(value) != 2 or any(isinstance(part, bool) or not isinstance(part, int) for part in value):
            raise ConversionError("D1", "a decimal is a pair of integers, exponent and mantissa")
        return _from_decimal(Decimal(*value), type)
    if isinstance(value, bytes):
        if type == BYTES:
            return value
        if type in (ASCII, UNICODE):
            return value.hex()
        raise ConversionError("D10", f"cannot convert a byte vector to {type}")
    if isinstance(value, str):
        return from_string(value, type)
    if type in RANGES:
        return _check_range(value, type)
    if type == DECIMAL:
        return _check_decimal(normalize(0, value))
    if type == BYTES:
        raise ConversionError("D10", "cannot convert an integer to a byte vector")
    return str(value)


def normalize(exponent: int, mantissa: int) -> Decimal:
    """The same number with the shortest mantissa; zero has exponent zero (6.3.2)."""
    if mantissa == 0:
        return Decimal(0, 0)
    while mantissa % 10 == 0:
        exponent, mantissa = exponent + 1, mantissa // 10
    return Decimal(exponent, mantissa)


def _from_decimal(value: Decimal, type: str) -> Value:
    if type == DECIMAL:
        return _check_decimal(value)
    if type == BYTES:
        raise ConversionError("D10", "cannot convert a decimal to a byte vector")
    exponent, mantissa = normalize(*_check_decimal(value))
    if type in RANGES:
        if exponent < 0:
            raise ConversionError("R5", f"{mantissa}e{exponent} is not an integer")
        return _check_range(mantissa * 10**exponent, type)
    if exponent >= 0:
        return str(mantissa * 10**exponent)
    digits = f"{abs(mantissa):0{1 - exponent}d}"
    return f"{'-' if mantissa < 0 else ''}{digits[:exponent]}.{digits[exponent:]}"


def _ascii(text: str) -> str:
    if not text.isascii():
        raise ConversionError("R3", "holds a character that is not ASCII")
    return text


def _unicode(text: str) -> str:
    try:
        # Bytes that were not UTF-8 when read are kept as lone surrogates, and are written unchanged.
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ConversionError("R2", "holds a lone surrogate, which UTF-8 cannot express") from None
    return text


def _decimal(text: str) -> Decimal:
    match = _DECIMAL.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise ConversionError("D11", "must be digits with or without a minus and a decimal point")
    fraction = match[3] or ""
    return _check_decimal(normalize(-len(fraction), int(match[1] + match[2] + fraction)))


def _check_decimal(value: Decimal) -> Decimal:
    low, high = RANGES["int64"]
    if abs(value.exponent) > MAX_EXPONENT or not low <= value.mantissa <= high:
        raise ConversionError(
            "R1", f"{value.mantissa}e{value.exponent} needs an exponent beyond 63 or a longer mantissa"
        )
    return value


def _check_range(value: int, type: str) -> int:
    low, high = RANGES[type]
    if not low <= value <= high:
        raise ConversionError("R4", f"{value} is outside {low} to {high}")
    return value
