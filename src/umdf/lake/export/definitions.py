"""Instrument definitions as Databento records: one per instrument, or one per leg of a strategy.

Invariant: if the exchange's security type does not determine a class, it is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

import pyarrow as pa

FIXED_ONE = 10**9
STRATEGY = "MLEG"
# 167 → Databento's InstrumentClass; 201 decides for options. Terms, loans and exercises have no class there.
INSTRUMENT_CLASSES = {"FUT": "F", "CS": "K", "PS": "K", "ETF": "K", "INDEX": "I", "CORP": "B", "SPOT": "Y"}
OPTION_TYPES = frozenset({"OPT", "FOPT", "SOPT", "INDEXOPT"})
PUT_OR_CALL = {0: "P", 1: "C"}
LEG_SIDES = {1: "B", 2: "A"}
COMPUTED_COLUMNS = {
    "fixed_one": pa.int64(),
    "instrument_class": pa.string(),
    "underlying_id": pa.int64(),
    "underlying_symbol": pa.string(),
    "maturity_year": pa.int64(),
    "maturity_month": pa.int64(),
    "maturity_day": pa.int64(),
    "user_defined": pa.string(),
    "leg_count": pa.int64(),
    "leg_index": pa.int64(),
    "leg_id": pa.int64(),
    "leg_symbol": pa.string(),
    "leg_instrument_class": pa.string(),
    "leg_side": pa.string(),
    "leg_ratio_qty_numerator": pa.int64(),
    "leg_ratio_qty_denominator": pa.int64(),
}


def to_definition_records(rows: pa.Table) -> pa.Table:
    """Rows of `definition` with Databento's additional columns; a strategy has one row per leg."""
    row_indices: list[int] = []
    computed: dict[str, list[Any]] = {name: [] for name in COMPUTED_COLUMNS}
    for row_index, row in enumerate(rows.to_pylist()):
        legs = row["legs"] or []
        for index in range(max(1, len(legs))):
            row_indices.append(row_index)
            record = {
                **_instrument_fields(row),
                "leg_count": len(legs),
                **(_leg_fields(legs[index], index) if legs else {}),
            }
            for name, values in computed.items():
                values.append(record.get(name))
    expanded = rows.take(pa.array(row_indices, pa.int64()))
    for name, kind in COMPUTED_COLUMNS.items():
        expanded = expanded.append_column(name, pa.array(computed[name], kind))
    return expanded


def instrument_class(security_type: str | None, put_or_call: int | None, legs: list[dict[str, Any]]) -> str:
    if security_type == STRATEGY:
        types = {leg["leg_security_type"] for leg in legs}
        return "S" if types == {"FUT"} else "T" if types and types <= OPTION_TYPES else "M" if types else ""
    if security_type in OPTION_TYPES:
        return PUT_OR_CALL.get(-1 if put_or_call is None else put_or_call, "")
    return INSTRUMENT_CLASSES.get(security_type or "", "")


def _instrument_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    underlying = (row["underlyings"] or [{}])[0]
    matures = row["maturity_date"]
    return {
        "fixed_one": FIXED_ONE,
        "instrument_class": instrument_class(row["security_type"], row["put_or_call"], row["legs"] or []),
        "underlying_id": underlying.get("underlying_id"),
        "underlying_symbol": underlying.get("underlying_symbol"),
        "maturity_year": matures and matures.year,
        "maturity_month": matures and matures.month,
        "maturity_day": matures and matures.day,
        "user_defined": "Y" if row["multi_leg_model"] == 1 else "N",
    }


def _leg_fields(leg: Mapping[str, Any], index: int) -> dict[str, Any]:
    ratio = leg["leg_ratio"]
    common = gcd(ratio, FIXED_ONE) if ratio else 1
    return {
        "leg_index": index,
        "leg_id": leg["leg_id"],
        "leg_symbol": leg["leg_symbol"],
        "leg_instrument_class": instrument_class(leg["leg_security_type"], None, []),
        "leg_side": LEG_SIDES.get(leg["leg_side"]),
        "leg_ratio_qty_numerator": ratio and ratio // common,
        "leg_ratio_qty_denominator": ratio and FIXED_ONE // common,
    }
