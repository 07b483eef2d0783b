"""What the absence of a FAST tag means: only what the reference says (1.3.2, 1.3.4, 1.3.5)."""

from __future__ import annotations

from typing import Any

import pytest
from market.test_fast_entries import SENT, encoded, events_of, rows, x

from umdf.wire.fast.templates import Decimal

LENT = {1500: "L", 37: "5", 270: Decimal(-2, 5), 271: 3}


@pytest.mark.parametrize(
    ("family", "entry", "expected"),
    [
        ("mbo", LENT, {"early_termination": 0, "btb_cert_indicator": 1}),
        ("mbo", LENT | {37019: 2, 37023: 0}, {"early_termination": 2, "btb_cert_indicator": 0}),
        ("mbo", LENT | {279: 2}, {"early_termination": None, "btb_cert_indicator": None}),
        ("mbo", LENT | {1500: "E"}, {"early_termination": None, "btb_cert_indicator": None}),
        ("mbo", LENT | {37019: 300}, {"early_termination": None, "btb_cert_indicator": 1}),
        (
            "trades",
            {269: "2", 1500: "L", 1003: "1", 432: 20261120},
            {"early_termination": 0, "btb_cert_indicator": 1, "btb_contract_info": 1, "expire_date": 20777},
        ),
        ("trades", {269: "2", 1500: "L", 37023: 0, 37024: 2}, {"btb_cert_indicator": 0, "btb_contract_info": 2}),
        ("trades", {269: "2", 1500: "L", 279: 2}, {"btb_cert_indicator": None, "btb_contract_info": None}),
        ("trades", {269: "2"}, {"early_termination": None, "btb_cert_indicator": None, "btb_contract_info": None}),
        ("statistics", {269: "6"}, {"price_type": 2, "price_adjustment_method": None}),
        ("statistics", {269: "6", 423: 1}, {"price_type": 1}),
        ("statistics", {269: "5"}, {"price_type": None, "price_adjustment_method": 0}),
        ("statistics", {269: "5", 279: 2}, {"price_adjustment_method": None}),
        ("price_band", {269: "g"}, {"price_limit_type": 0, "midpoint_type": None}),
        ("price_band", {269: "g", 1306: 2}, {"price_limit_type": 2, "midpoint_type": 0}),
        ("price_band", {269: "g", 1306: 2, 37008: 1}, {"price_limit_type": 2, "midpoint_type": 1}),
        ("price_band", {269: "h"}, {"price_limit_type": None, "midpoint_type": None}),
    ],
)
def test_an_absent_tag_means_what_the_reference_says_only_where_it_says_so(
    family: str, entry: dict[int, Any], expected: dict[str, int | None]
) -> None:
    (row,) = rows(x(entry), family)
    assert {name: row.get(name) for name in expected} == expected


@pytest.mark.parametrize(("template", "sent", "venue"), [(142, {}, "E"), (1142, {1500: "L"}, "L"), (1142, {}, "E")])
def test_a_status_has_the_venue_of_the_message(template: int, sent: dict[int, str], venue: str) -> None:
    body = {48: 7, 326: 17, 60: SENT, 75: 20261113, 1500: "E", **sent}
    (row,) = rows(events_of(encoded(template, body)), "status")
    assert (row["state"], row["venue"]) == (17, venue)


@pytest.mark.parametrize(("sent", "language"), [({}, "pt"), ({1474: "en"}, "en")])
def test_news_without_a_language_is_portuguese(sent: dict[int, str], language: str) -> None:
    (row,) = rows(events_of(encoded(143, {6940: 1, 42: SENT, 148: "A", **sent})), "news")
    assert row["language"] == language
