"""Statistics for people and as tables: names instead of keys, exact decimals as text, what is absent left out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from umdf.market.arrow import numbers_array
from umdf.market.current import Current, text_8
from umdf.market.events import PRICE_EXPONENT, STATISTICS, VOLUME_EXPONENT, Column
from umdf.market.statistics import KEYED_BY, Statistics
from umdf.market.statistics_kernel import S_ID, S_VALUES
from umdf.market.tape import Count, Last
from umdf.units import plain_decimal_text

BANDS = {1: "hard", 2: "auction", 3: "rejection", 4: "static"}
_EXPONENTS = {"price": PRICE_EXPONENT, "volume": VOLUME_EXPONENT}


def readable(statistics: Statistics, instrument_id: int) -> dict[str, dict[str, Any]]:
    """What holds for an instrument, by name; a venue stands behind an @."""
    found: dict[str, dict[str, Any]] = {}
    for name, current in statistics.current.items():
        for key, values in current.of(instrument_id):
            found[_LABELS[name](key, values)] = _readable(current.columns, values)
    for stream, (last, count) in sorted(statistics.tape.of(instrument_id).items()):
        if last is not None:
            found[_at_venue("last trade" if last.is_trade else "last price published", stream)] = _last(last)
        found[_at_venue("trades seen", stream)] = _count(count)
    return found


def tables(statistics: Statistics) -> dict[str, pa.Table]:
    """What holds now, sorted by instrument: `statistics`, `imbalance`, `price_band`, `last` and `trades_seen`."""
    found = {name: _table(current) for name, current in statistics.current.items()}
    lasts, counts = [], []
    for instrument_id, stream, last, count in statistics.tape.all():
        whose = {"instrument_id": instrument_id, "stream": chr(stream) if stream else None}
        if last is not None:
            lasts.append(whose | _fields(last))
        if count.trades or count.busts or count.unknown_busts:
            counts.append(whose | _fields(count) | {"vwap": count.vwap})
    found["last"] = pa.Table.from_pylist(lasts, LAST_SCHEMA)
    found["trades_seen"] = pa.Table.from_pylist(counts, COUNT_SCHEMA)
    return found


def _at_venue(name: str, stream: int) -> str:
    return f"{name} @{chr(stream)}" if stream else name


def _statistic_label(key: int, values: dict[str, int]) -> str:
    stat_type = key >> 8 & 0xFFFF
    name = STATISTICS.get(stat_type, f"statistic {stat_type}")
    parts = [str(values.get(column, "-")) for column in KEYED_BY.get(stat_type, ())]
    return _at_venue(" ".join([name, "/".join(parts)]).strip(), key & 0xFF)


def _band_label(key: int, values: dict[str, int]) -> str:
    if key & 0xFF == ord("h"):
        return "quantity band"
    band = values.get("price_band_type")
    return "reference price" if band is None else f"price band {BANDS.get(band, band)}"


_LABELS = {"statistics": _statistic_label, "imbalance": lambda key, values: "imbalance", "price_band": _band_label}


def _readable(columns: tuple[Column, ...], values: dict[str, int]) -> dict[str, Any]:
    readable: dict[str, Any] = {}
    for column in columns:
        value = values.get(column.name)
        if value is None or (column.is_text and value == 0):
            continue
        if column.type in _EXPONENTS:
            readable[column.name] = plain_decimal_text(value, _EXPONENTS[column.type])
        else:
            readable[column.name] = text_8(value) if column.is_text else chr(value) if column.type == "char" else value
    return readable


def _fields(item: Last | Count) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__dataclass_fields__}


def _last(last: Last) -> dict[str, Any]:
    return _fields(last) | {"price": plain_decimal_text(last.price, PRICE_EXPONENT)}


def _count(count: Count) -> dict[str, Any]:
    prices = {
        "notional": count.notional,
        "first": count.first,
        "high": count.high,
        "low": count.low,
        "vwap": count.vwap,
    }
    texts = {name: None if p is None else plain_decimal_text(p, PRICE_EXPONENT) for name, p in prices.items()}
    return _fields(count) | texts


_OF_INSTRUMENT = [("instrument_id", pa.int64()), ("stream", pa.utf8())]
LAST_SCHEMA = pa.schema(
    _OF_INSTRUMENT
    + [(name, pa.int64()) for name in ("price", "size", "ts_event", "trade_id", "buyer", "seller", "conditions")]
    + [("is_trade", pa.bool_()), ("is_busted", pa.bool_())]
)
COUNT_SCHEMA = pa.schema(
    _OF_INSTRUMENT
    + [("trades", pa.int64()), ("quantity", pa.int64()), ("notional", pa.decimal128(38, 0))]
    + [(name, pa.int64()) for name in ("first", "high", "low", "busts", "unknown_busts", "vwap")]
)


def _table(current: Current) -> pa.Table:
    slots = current.present()
    arrays, names = [pa.array(slots[:, S_ID])], ["instrument_id"]
    for c, column in enumerate(current.columns):
        values = slots[:, S_VALUES + c]
        names.append(column.name)
        if column.is_text:
            arrays.append(pa.array([text_8(word) or None for word in values.tolist()], pa.utf8()))
        else:
            arrays.append(numbers_array(column, values.astype(column.dtype)))
    return pa.table(arrays, names=names)
