"""What the absence of a tag means (reference 1.3.2, 1.3.5), only where the reference says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from umdf.market.fast.mapping_table import COMPOSITE, KIND_NUMBERS

DEFAULT_LANGUAGE = "pt"  # 1474


@dataclass(frozen=True)
class Default:
    """What an absent value means by the reference (1.3.2), in the rows that it means something in."""

    column: str
    value: int
    condition: str  # another column of the row, or `kind`
    equals: int


_SETTLEMENT, _CLOSING, _BAND = (KIND_NUMBERS[name] for name in ("settlement price", "closing price", "price band"))
_LENDING = "venue", ord("L")
ENTRY_DEFAULTS: Mapping[str, tuple[Default, ...]] = {
    # 37023 contradicts itself (certified is called the default): not sent means not certified, says its text.
    "mbo": (Default("early_termination", 0, *_LENDING), Default("btb_cert_indicator", 1, *_LENDING)),
    "trades": (
        Default("early_termination", 0, *_LENDING),
        Default("btb_cert_indicator", 1, *_LENDING),
        Default("btb_contract_info", 1, *_LENDING),
    ),
    "statistics": (
        Default("price_type", 2, "kind", _SETTLEMENT),
        Default("price_adjustment_method", 0, "kind", _CLOSING),
        Default("underlying_px_type", 0, "kind", COMPOSITE),
    ),
    # The midpoint has a meaning only for limits in percent, which may themselves be a default.
    "price_band": (
        Default("price_limit_type", 0, "kind", _BAND),
        Default("midpoint_type", 0, "price_limit_type", 2),
    ),
}
