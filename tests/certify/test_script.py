"""The script as data: every step of B3's document, for whom it is available, and start books that make it come true."""

from __future__ import annotations

import pytest

from umdf.certify.observation import ASK, BID, MBO, MBP, TOB
from umdf.certify.operations import Enter
from umdf.certify.profile import COMBINATIONS, Combination
from umdf.certify.script import SECTIONS, STEPS
from umdf.certify.selection import select_combinations, select_steps
from umdf.certify.start_books import BEST_ASK, BIDS, MOA_SIZE, ONE_OF_EACH, OPEN_MARKET, PRE_OPEN
from umdf.errors import UsageError
from umdf.exchange.matching.orders import MOA

STEPS_OF = {
    "A": 2, "B1": 6, "B2": 12, "B3": 8, "B4": 4, "B5": 7, "B6": 7, "B7": 3, "C1": 1, "D1": 4, "D2": 3, "D3": 5, "E4": 6,
}  # fmt: skip
NOT_REQUIRED = {"A.2", "B7.1", "B7.2", "B7.3", "C1", *(f"E4.{number}" for number in range(1, 7))}
ONE_RESULT = {"A", "B7", "D2", "D3"}  # the script names no book type, or MBO alone


def step_ids() -> list[str]:
    return [
        section if section == "C1" else f"{section}.{number}"
        for section, count in STEPS_OF.items()
        for number in range(1, count + 1)
    ]


def test_every_step_of_the_script_is_there_in_its_order() -> None:
    assert [step.id for step in STEPS] == step_ids()
    assert [section.id for section in SECTIONS] == list(STEPS_OF)


def test_every_step_says_what_is_expected_on_which_books() -> None:
    for step in STEPS:
        assert set(step.expected) == ({MBO} if step.section in ONE_RESULT else {MBO, MBP, TOB}), step.id
        assert all(each.text for found in step.expected.values() for each in found), step.id
        assert all(found for found in step.expected.values()), step.id
        assert step.description.endswith("."), step.id


def test_the_required_steps_are_those_of_the_script() -> None:
    assert {step.id for step in STEPS if not step.is_required} == NOT_REQUIRED
    assert {step.section for step in STEPS if step.requirement == "C"} == {"B3"}


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_special_auctions_and_indexes_are_for_equities_and_replayers_for_fast(combination: Combination) -> None:
    missing = {section.id for section in SECTIONS if section.why_not(combination.protocol, combination.segment)}
    expected = {"B3", "B7"} if combination.segment == "derivatives" else set()
    if combination.protocol == "sbe":
        expected |= {"B7", "D2", "D3"}
    assert missing == expected


def test_bids_of_the_start_book_trade_at_the_closing_price_and_nowhere_else() -> None:
    """An ASK of 100 at the Closing price takes all that is above it, and trades there (B1.6, B2.8, B6.5)."""
    prices = [ticks for ticks, _ in BIDS]
    above, at_closing = (sum(size for ticks, size in BIDS if (ticks > 0) == is_above) for is_above in (True, False))
    assert len(BIDS) == 5 and sorted(set(prices), reverse=True)[2] == 0 and len(set(prices)) == 3
    assert above + MOA_SIZE < 100 < above + MOA_SIZE + at_closing
    assert above < 100 < above + at_closing + 100  # B2 and B6 have no MOA, but one more BID of 100 at the Closing price
    assert max(prices) < BEST_ASK and max(prices) >= 1, (
        "asks are above the best bid; B2.9 comes to the top of what is left"
    )
    assert all(size % 10 == 0 for _, size in BIDS), "lots of 10"


def test_before_sections_two_asks_are_best_where_the_script_adds_a_third() -> None:
    for book, asks in ((PRE_OPEN, 1), (OPEN_MARKET, 2)):
        orders = [each for each in book if isinstance(each, Enter)]
        assert [(each.price, each.size) for each in orders if each.side == BID] == list(BIDS)
        assert [each.price for each in orders if each.side == ASK] == [BEST_ASK] * asks
    assert [each.side for each in ONE_OF_EACH if isinstance(each, Enter)] == [BID, ASK]


def test_the_moa_order_of_b1_4_is_that_of_the_arithmetic() -> None:
    (moa,) = (
        action
        for step in STEPS
        if step.id == "B1.4"
        for action in step.actions
        if isinstance(action, Enter) and action.order_type == MOA
    )
    assert moa.size == MOA_SIZE and moa.price is None


def test_a_step_is_played_from_the_start_book_of_its_section() -> None:
    selection = select_steps(only="B2.4")
    assert [step.id for step in selection.steps(selection.sections[0])] == ["B2.1", "B2.2", "B2.3", "B2.4"]
    assert [section.id for section in select_steps(only="C1").sections] == ["C1"]
    assert [section.id for section in select_steps(first="D2.2").sections] == ["D2", "D3", "E4"]
    with pytest.raises(UsageError, match="unknown step: B9"):
        select_steps(only="B9")
    with pytest.raises(UsageError, match="same time"):
        select_steps(only="B1", first="B2")


def test_all_eight_combinations_or_some_of_them() -> None:
    assert len(select_combinations()) == 8
    assert [str(each) for each in select_combinations("sbe", "position")] == [
        "Binary version 10, equities",
        "Binary version 10, derivatives",
    ]
    with pytest.raises(UsageError, match="unknown protocol: fix"):
        select_combinations("fix")
