"""Catalogues as CSV files: a line for each instrument, a column for each field of `InstrumentSpec`.

    symbol,type,security_id,asset,group,…,strike,…,legs
    PETR4,stock,100000631,PETR,S1,…
    WINZ26G27,strategy,100047514,WIN,M1,…,sell WINZ26; buy WING27

A column may be missing if its field has a default, and an empty cell is the default. Everything is checked, and an
error names the file, the line and the field.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from umdf.errors import UsageError, one_of
from umdf.exchange.instruments.catalogue import MAX_INSTRUMENTS, generate_catalogue
from umdf.exchange.instruments.instrument_spec import BUY, SELL, UNIT, InstrumentSpec, Leg, Underlying
from umdf.exchange.instruments.instrument_types import InstrumentType
from umdf.exchange.instruments.isin import DIGITS, check_digit

__all__ = ["generate_catalogue", "load_catalogue", "read_legs", "save_catalogue"]
SIDES = {"buy": BUY, "sell": SELL}
MAX_VALUE = 1 << 63
SECURITY_TYPES: tuple[str, ...] = (
    "CASH", "CORP", "CS", "DTERM", "ETF", "FOPT", "FORWARD", "FUT", "INDEX", "INDEXOPT", "MLEG", "OPT", "OPTEXER", "PS",
    "SECLOAN", "SOPT", "SPOT",
)  # fmt: skip
PRODUCTS = (2, 3, 4, 5, 6, 7, 15, 16)  # 460


class _CellError(ValueError):
    """What is wrong with a cell, and what to do."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.hint = hint


@dataclass(frozen=True)
class _Format:
    parse: Callable[[str], Any]
    write: Callable[[Any], str] = str


def _decimal(text: str) -> int:
    try:
        value = Decimal(text) * UNIT
        number = int(value)
    except (InvalidOperation, OverflowError, ValueError):
        raise _CellError("is not a number", "use digits and a point, as 0.01") from None
    if number != value:
        raise _CellError("has more than 9 decimals", "round it")
    if not -MAX_VALUE < number < MAX_VALUE:
        raise _CellError("is too large", "use less than 9,223,372,036")
    return number


def _plain(value: int) -> str:
    return format((Decimal(value) / UNIT).normalize(), "f")


def _integer(lowest: int, highest: int) -> _Format:
    def parse(text: str) -> int:
        if not text.removeprefix("-").isdecimal():
            raise _CellError("is not a whole number", f"use {lowest} to {highest}")
        value = int(text)
        if not lowest <= value <= highest:
            raise _CellError("is out of range", f"use {lowest} to {highest}")
        return value

    return _Format(parse)


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise _CellError("is not a date", "use YYYY-MM-DD") from None


def _text(longest: int, choices: tuple[str, ...] = ()) -> _Format:
    def parse(text: str) -> str:
        if choices and text not in choices:
            raise _CellError("is unknown", f"use {one_of(choices)}")
        if len(text.encode()) > longest:
            raise _CellError(f"is longer than {longest} bytes", "shorten it")
        if not text.isprintable():
            raise _CellError("is not printable", "use letters and digits")
        return text

    return _Format(parse)


def _type(text: str) -> InstrumentType:
    names = {_type_name(kind): kind for kind in InstrumentType}
    if text not in names:
        raise _CellError("is unknown", f"use {one_of(tuple(names))}")
    return names[text]


def _type_name(kind: InstrumentType) -> str:
    return kind.name.lower().replace("_", "-")


def _isin(text: str) -> str:
    if len(text) != 12 or not set(text) <= set(DIGITS):
        raise _CellError("is not an ISIN", "use twelve capital letters and digits")
    if check_digit(text[:-1]) != text[-1]:
        raise _CellError("has a wrong check digit", f"it is {check_digit(text[:-1])}")
    return text


def _yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise _CellError("is neither yes nor no", "use yes or no")
    return text == "yes"


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _CellError("is not a number", "use digits and a point") from None


def read_legs(text: str) -> tuple[Leg, ...]:
    legs = []
    for part in text.split(";"):
        words = part.split()
        if len(words) not in (2, 3) or words[0] not in SIDES:
            raise _CellError(
                "is not a list of legs", "use buy or sell, the ratio and the symbol: sell WINZ26; buy 2 WING27"
            )
        ratio = _decimal(words[1]) if len(words) == 3 else UNIT
        if ratio <= 0:
            raise _CellError("has a ratio that is not positive", "use sell for what is sold")
        legs.append(Leg(words[-1], SIDES[words[0]], ratio))
    return tuple(legs)


def _write_legs(legs: tuple[Leg, ...]) -> str:
    names = {side: name for name, side in SIDES.items()}
    return "; ".join(
        f"{names[leg.side]} {'' if leg.ratio == UNIT else _plain(leg.ratio) + ' '}{leg.symbol}" for leg in legs
    )


def _underlyings(text: str) -> tuple[Underlying, ...]:
    found = []
    for part in text.split(";"):
        words = part.split()
        if len(words) not in (1, 3) or (len(words) == 3 and not words[1].endswith("%")):
            raise _CellError(
                "is not a list of underlyings",
                "use the symbol; of an index also percent and quantity: VALE3 11.5% 4196000000",
            )
        if len(words) == 3:
            found.append(Underlying(words[0], _decimal(words[1][:-1]), _decimal(words[2])))
        else:
            found.append(Underlying(words[0]))
    return tuple(found)


def _write_underlyings(underlyings: tuple[Underlying, ...]) -> str:
    return "; ".join(
        item.symbol if item.percent is None or item.quantity is None
        else f"{item.symbol} {_plain(item.percent)}% {_plain(item.quantity)}"
        for item in underlyings
    )  # fmt: skip


def _attributes(text: str) -> tuple[tuple[int, int], ...]:
    pairs = [part.split(":") for part in text.split()]
    if not all(len(pair) == 2 and all(number.isdecimal() and int(number) < 255 for number in pair) for pair in pairs):
        raise _CellError("is not a list of attributes", "use type:value of 871 and 872: 24:1 34:1")
    return tuple((int(kind), int(value)) for kind, value in pairs)


_PRICE, _CODE, _DAY = _Format(_decimal, _plain), _integer(0, 254), _Format(_date)
_CURRENCY, _COUNT = _text(3), _integer(1, MAX_VALUE - 1)
FORMATS: dict[str, _Format] = {
    "symbol": _text(20),
    "type": _Format(_type, _type_name),
    "security_id": _COUNT,
    "asset": _text(6),
    "group": _text(3),
    "security_type": _text(8, SECURITY_TYPES),
    "sub_type": _integer(1, 65_534),
    "product": _integer(PRODUCTS[0], PRODUCTS[-1]),
    "cfi_code": _text(6),
    "tick": _PRICE,
    "reference_price": _PRICE,
    "decimals": _integer(0, 9),
    "lot": _COUNT,
    "lot_type": _integer(0, 3),
    "isin": _Format(_isin),
    "description": _text(100),
    "currency": _CURRENCY,
    "settl_currency": _CURRENCY,
    "strike_currency": _CURRENCY,
    "segment": _integer(1, 255),
    "maturity": _DAY,
    "maturity_code": _integer(190_001, 99_991_231),
    "settl_month": _integer(190_001, 999_912),
    "strike": _PRICE,
    "put_or_call": _integer(0, 1),
    "exercise_style": _integer(0, 1),
    "multiplier": _PRICE,
    "divisor": _PRICE,
    "issue_date": _DAY,
    "start_date": _DAY,
    "end_date": _DAY,
    "settl_days": _integer(0, 65_534),
    "price_type": _CODE,
    "shares_issued": _COUNT,
    "governance": _integer(0, 7),
    "corporate_action": _integer(1, (1 << 32) - 1),
    "min_cross_qty": _COUNT,
    "match_type": _CODE,
    "strategy_type": _text(3),
    "multi_leg_model": _integer(0, 1),
    "price_method": _CODE,
    "legs": _Format(read_legs, _write_legs),
    "underlyings": _Format(_underlyings, _write_underlyings),
    "attributes": _Format(_attributes, lambda pairs: " ".join(f"{kind}:{value}" for kind, value in pairs)),
    "is_anonymous": _Format(_yes, lambda value: "yes" if value else "no"),
    "is_implied": _Format(_yes, lambda value: "yes" if value else "no"),
    "interest": _Format(_float, repr),
    "follows": _text(20),
    "beta": _Format(_float, repr),
}
DEFAULTS = {field.name: field.default for field in fields(InstrumentSpec)}
# What a type needs besides the fields without a default.
NEEDED = {
    InstrumentType.OPTION: ("strike", "put_or_call", "maturity", "underlyings"),
    InstrumentType.FUTURE: ("maturity", "maturity_code"),
    InstrumentType.STRATEGY: ("legs",),
    InstrumentType.FORWARD: ("underlyings", "maturity"),
    InstrumentType.LENDING: ("underlyings",),
}


def save_catalogue(path: Path, specs: Sequence[InstrumentSpec]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FORMATS)
        for spec in specs:
            values = ((name, getattr(spec, name)) for name in FORMATS)
            writer.writerow("" if value == DEFAULTS[name] else FORMATS[name].write(value) for name, value in values)


def load_catalogue(path: Path) -> list[InstrumentSpec]:
    """The instruments of a file, all of them valid."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [(reader.line_num, row) for reader in [csv.reader(file, strict=True)] for row in reader if row]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "pass a catalogue file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is not a CSV file: {error}", "see `save_catalogue`") from None
    if not rows:
        raise UsageError(f"{path} is empty", "the first line has the names of the fields")
    header = _checked_header(path, rows[0][1])
    lines = {}
    for line, row in rows[1:]:
        spec = _parse_row(path, line, header, row)
        if spec.symbol in lines:
            raise _error(path, line, "symbol", "is in the file twice", spec.symbol, "each instrument has one line")
        lines[spec.symbol] = line, spec
    if not lines:
        raise UsageError(f"{path} has no instruments", "write a line for each one")
    if len(lines) > MAX_INSTRUMENTS:
        raise UsageError(f"{path} has {len(lines)} instruments", f"use at most {MAX_INSTRUMENTS}")
    specs = {symbol: spec for symbol, (_, spec) in lines.items()}
    ids: dict[int, str] = {}
    for line, spec in lines.values():
        other = ids.setdefault(spec.security_id, spec.symbol)
        if other != spec.symbol:
            raise _error(path, line, "security_id", f"is that of {other} too", spec.security_id, "use another number")
        _check_spec(path, line, spec, specs)
    return list(specs.values())


def _checked_header(path: Path, header: list[str]) -> list[str]:
    for name in header:
        if name not in FORMATS:
            raise UsageError(f"{path}, line 1: unknown field: {name}", f"use {one_of(tuple(FORMATS))}")
        if header.count(name) > 1:
            raise UsageError(f"{path}, line 1: the field {name} is there twice", "remove one")
    for name, default in DEFAULTS.items():
        if default is MISSING and name not in header:
            raise UsageError(f"{path}, line 1: the field {name} is missing", "add its column")
    return header


def _parse_row(path: Path, line: int, header: list[str], row: list[str]) -> InstrumentSpec:
    if len(row) != len(header):
        raise UsageError(f"{path}, line {line}: {len(row)} cells, not {len(header)}", "one for each field of line 1")
    values: dict[str, Any] = {}
    for name, cell in zip(header, row, strict=True):
        if cell:
            try:
                values[name] = FORMATS[name].parse(cell)
            except _CellError as wrong:
                raise _error(path, line, name, str(wrong), cell, wrong.hint) from None
        elif DEFAULTS[name] is MISSING:
            raise UsageError(f"{path}, line {line}: {name} is empty", "every instrument needs one")
    return InstrumentSpec(**values)


def _check_spec(path: Path, line: int, spec: InstrumentSpec, specs: dict[str, InstrumentSpec]) -> None:
    """What fields say of each other, and of other instruments."""

    def require(condition: bool, name: str, problem: str, hint: str) -> None:
        if not condition:
            raise _error(path, line, name, problem, FORMATS[name].write(getattr(spec, name)), hint)

    for name in NEEDED.get(spec.type, ()):
        if getattr(spec, name) in (None, ()):
            raise UsageError(f"{path}, line {line}: {name} is empty", f"every {_type_name(spec.type)} needs one")
    require(spec.tick > 0, "tick", "is not positive", "use 0.01 for a stock")
    require(
        spec.reference_price % spec.tick == 0, "reference_price", "is not on a tick", f"ticks are {_plain(spec.tick)}"
    )
    require(bool(spec.legs) or spec.reference_price > 0, "reference_price", "is not positive", "only strategies may")
    require(spec.product in PRODUCTS, "product", "is unknown", f"use {one_of(tuple(map(str, PRODUCTS)))}")
    require(len(spec.cfi_code) == 6, "cfi_code", "has not six letters", "see ISO 10962")
    if spec.maturity and spec.maturity_code:
        month = f"{spec.maturity:%Y%m}"
        require(str(spec.maturity_code).startswith(month), "maturity_code", "is of another month", f"use {month}")
    for name, symbols in (
        ("legs", [leg.symbol for leg in spec.legs]),
        ("underlyings", [underlying.symbol for underlying in spec.underlyings]),
        ("follows", [spec.follows] if spec.follows else []),
    ):
        for symbol in symbols:
            require(
                symbol in specs and symbol != spec.symbol, name, f"has no line for {symbol}", "add it, or correct it"
            )
    if spec.type == InstrumentType.STRATEGY:
        require(len(spec.legs) > 1, "legs", "is one leg", "a strategy has two or more")
        assets = {specs[leg.symbol].asset for leg in spec.legs}
        require(len(assets) == 1, "legs", f"are of several assets ({one_of(sorted(assets))})", "use one asset")


def _error(path: Path, line: int, name: str, problem: str, value: Any, hint: str) -> UsageError:
    return UsageError(f"{path}, line {line}: {name} {problem}: {value}", hint)
