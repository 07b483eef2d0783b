"""The FIX/FAST table: complete, and sound."""

from __future__ import annotations

from umdf.market.families import FAMILIES
from umdf.market.fast import mapping_table as t
from umdf.market.fast.conversion_plan import TemplateTags
from umdf.wire.fast.layout import Layout
from umdf.wire.fast.loader import load

# Message reference 1.3.2 and 1.3.3.
ENTRY_TYPES = "0123456789ABCJghDvc"


def test_every_entry_type_of_the_reference_has_its_kind() -> None:
    assert {kind.entry_type for kind in t.ENTRY_KINDS} - {""} == set(ENTRY_TYPES)
    for letter in ENTRY_TYPES:
        assert sum(kind.entry_type == letter and not kind.condition for kind in t.ENTRY_KINDS) == 1


def test_every_rule_fills_a_column_that_there_is() -> None:
    for name, rules in (*t.ENTRY_RULES.items(), *t.BODY_RULES.items(), ("definition", t.DEFINITION_RULES)):
        for rule in rules:
            assert FAMILIES[name].column(rule.column)
    for name, (_, rules) in t.DEFINITION_LISTS.items():
        assert {rule.column for rule in rules} == {column.name for column in FAMILIES["definition"].lists[name]}


def test_every_rule_has_its_tag_in_a_packaged_template() -> None:
    layout = Layout(load())
    places = [TemplateTags(layout, root) for root in layout.roots.values()]
    rules = [rule for rules in (*t.ENTRY_RULES.values(), *t.BODY_RULES.values()) for rule in rules]
    rules += [*t.DEFINITION_RULES, *t.FEED_RULES, *(rule for _, rules in t.DEFINITION_LISTS.values() for rule in rules)]
    for rule in rules:
        assert any(one.find(rule.tag, *rule.groups) for one in places), rule
        assert not rule.time_tag or any(one.find(rule.time_tag, *rule.groups) for one in places), rule


def test_rules_for_one_column_never_hold_for_the_same_kind() -> None:
    for rules in t.ENTRY_RULES.values():
        for name in {rule.column for rule in rules}:
            held = [rule.kind_mask for rule in rules if rule.column == name]
            assert sum(held) == int.__or__(held[0], held[-1]) if len(held) == 2 else len(held) == 1
