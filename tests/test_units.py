"""Numbers and times as text: exact, and for every value that the wire can carry."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umdf.units import EPOCH, decimal_text, fix_date, fix_decimal, fix_timestamp, printable, utc_text

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
UINT64 = st.integers(0, (1 << 64) - 1)


@pytest.mark.parametrize(
    ("mantissa", "exponent", "whole", "plain"),
    [
        (123_400, -4, "12.3400", "12.34"),
        (-1, -4, "-0.0001", "-0.0001"),
        (0, -8, "0.00000000", "0"),
        (10_000, -4, "1.0000", "1"),
        (-50_000, -4, "-5.0000", "-5"),
        (100, 0, "100", "100"),
        (7, 2, "700", "700"),
        (-(1 << 63), -4, "-922337203685477.5808", "-922337203685477.5808"),
        (100, -1, "10.0", "10"),
    ],
)
def test_a_decimal_keeps_every_digit(mantissa: int, exponent: int, whole: str, plain: str) -> None:
    assert decimal_text(mantissa, exponent) == whole
    assert fix_decimal(mantissa, exponent) == plain


@given(INT64, st.integers(-12, 3))
def test_a_decimal_is_worth_its_mantissa_and_exponent(mantissa: int, exponent: int) -> None:
    assert Decimal(decimal_text(mantissa, exponent)) == Decimal(mantissa).scaleb(exponent)
    assert Decimal(fix_decimal(mantissa, exponent)) == Decimal(mantissa).scaleb(exponent)


@pytest.mark.parametrize(
    ("days", "text"),
    [(0, "19700101"), (20_000, "20241004"), (-1, "19691231"), (-719_162, "00010101"), (2_932_896, "99991231")],
)
def test_days_are_a_date(days: int, text: str) -> None:
    assert fix_date(days) == text


@pytest.mark.parametrize("days", [-719_163, 2_932_897, (1 << 31) - 1, -(1 << 31)])
def test_days_beyond_the_calendar_stay_a_number(days: int) -> None:
    assert fix_date(days) == str(days)


@given(st.dates())
def test_every_date_is_its_own_text(day: date) -> None:
    assert fix_date((day - EPOCH).days) == f"{day.year:04}{day.month:02}{day.day:02}"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_600_000_000_123_456_789, 9, "20200913-12:26:40.123456789"),
        (1_600_000_000_123, 3, "20200913-12:26:40.123"),
        (1_600_000_000, 0, "20200913-12:26:40"),
        (0, 6, "19700101-00:00:00.000000"),
        (-1, 9, "19691231-23:59:59.999999999"),
    ],
)
def test_a_time_is_written_as_fix_writes_it(value: int, unit: int, text: str) -> None:
    assert fix_timestamp(value, unit) == text


@given(st.datetimes(), st.integers(0, 999))
def test_every_nanosecond_of_the_calendar_is_written_exactly(moment: datetime, nanos: int) -> None:
    ns = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1) * 1000 + nanos
    clock = f"{moment:%H:%M:%S}.{moment.microsecond:06}{nanos:03}"
    assert fix_timestamp(ns, 9) == f"{moment.year:04}{moment.month:02}{moment.day:02}-{clock}"
    assert utc_text(ns) == f"{moment.year:04}-{moment.month:02}-{moment.day:02} {clock}"


@given(UINT64 | INT64, st.sampled_from([0, 3, 6, 9]))
def test_no_value_of_the_wire_is_refused(value: int, unit: int) -> None:
    text = fix_timestamp(value, unit)
    assert text == str(value) or len(text) == 17 + (unit + 1 if unit else 0)
    assert utc_text(value)
    assert fix_date(value)


def test_a_time_beyond_the_calendar_stays_a_number() -> None:
    assert utc_text(10**21) == str(10**21)
    assert utc_text(-(10**21)) == str(-(10**21))


@given(st.text(st.characters(exclude_categories=())))
def test_whatever_a_text_holds_it_can_be_printed(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() and shown.encode().decode() == shown
    assert shown == text or not text.isprintable()


def test_a_byte_of_a_name_that_is_not_utf_8_is_shown_as_that_byte() -> None:
    assert printable(b"caf\xe9\x1b.pcap".decode(errors="surrogateescape")) == "caf\\xe9\\x1b.pcap"
