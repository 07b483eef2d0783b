"""Messages of the feed by chance: any template, each tag with values that it can have, and some that it should not."""

from __future__ import annotations

import random
from typing import Any

from umdf.wire.fast.reference.writer import Writer
from umdf.wire.fast.templates import BYTES, CONSTANT, DECIMAL, RANGES, Decimal, Field, Segment, Sequence, TemplateSet

DATES = (20261113, 20240229, 19700101, 20991231, 20261301, 20230229, 0)
TIMES = (130000123, 5123, 235959999, 0, 93012345, 240000000)
STAMPS = (20261113130000123, 20261113030000000, 19700101000000000, 20261113130000, 20261199000000000, 7)
WORDS = ("", "R", "X L", "U", "1", "P", "Q", "RL TC", "IM", "ZZ 3", "TOOLONGAWORD", "2  SW")
QUOTES = ("K", "R", "C LM", "AN", "K R", "ZZ", "")
IDS = ("1", "123456789012", "9223372036854775807", "9223372036854775808", "ABC", "", "-5", "007")
SMALL = (0, 1, 2, 5, 6, 100, 127, 128, 40000)
CHOICES: dict[int, tuple[Any, ...]] = {
    269: ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "A", "B", "C", "D", "J", "c", "g", "h", "v", "z", "ZZ"),
    276: QUOTES, 277: WORDS, 37: IDS, 1003: IDS, 288: ("3", "127", "X"), 289: ("8", "", "85"),
    272: DATES, 75: DATES, 37016: DATES, 432: DATES, 9325: DATES, 541: DATES, 225: DATES, 873: DATES, 916: DATES,
    917: DATES, 64: DATES, 37025: DATES, 273: TIMES, 37017: TIMES, 52: STAMPS[:4], 60: STAMPS, 342: STAMPS, 42: STAMPS,
    6938: STAMPS, 279: (0, 1, 2, 3, 4, 5, 9), 1500: ("E", "X", "L", "OM", ""), 286: (0, 1, 3, 4, 5, 200),
    731: (1, 2, 3), 423: ("1", "2", "x"), 6939: ("1", "2", "3", "4"), 1306: (0, 1, 2), 274: ("0", "3"),
    625: ("2", "17", "101", "x"), 326: (2, 21, 101, 40000), 1174: (4, 101, 102), 336: (1, 6), 893: ("Y", "N", "?"),
    980: ("A", "M", "D"), 456: ("4", "H", "44"), 1180: ("MBO072", "MBP101", "TOB5", "X", ""), 63: ("0", "D2", "D120"),
    37011: ("N1", "NM", "M2", "?"), 1022: ("STD", ""), 6940: ("3", "19"), 1472: ("77", "x"), 264: (0, 1, 5),
    762: ("90", "1003"), 1300: ("10", "x"), 872: ("1", "17"), 623: (1, 2), 55: ("PETR4", "VALE3"),
    15: ("BRL", "USD", ""),
    48: (1, 5, 123456, 9223372036854775808, 18446744073709551615), 83: (1, 2, 3, 77), 37780: (0, 100),
}  # fmt: skip
DECIMALS = (
    Decimal(-2, 1050), Decimal(0, 7), Decimal(-9, 1), Decimal(-10, 10), Decimal(-10, 1), Decimal(9, 9), Decimal(9, 10),
    Decimal(-2, -33), Decimal(-63, 1), Decimal(63, 1), Decimal(-4, (1 << 63) - 1), Decimal(-9, -(1 << 63)),
    Decimal(5, 0),
)  # fmt: skip


# Only what every template can say, and what comes back as it was.
CLEAN: dict[int, tuple[Any, ...]] = {
    269: tuple("0123456789ABCDJghv"), 276: QUOTES[:5], 277: ("R", "X L", "U", "1", "P", "Q", "RL TC", "IM", "2 SW 3"),
    37: IDS[:3], 1003: IDS[:3], 288: ("3", "127"), 289: ("8", "85"), 279: (0, 2), 1500: ("E", "X", "L"),
    286: (0, 1, 3, 4, 5), 423: ("1", "2"), 625: ("2", "17"), 326: (2, 21), 893: ("Y", "N"), 456: ("4", "H"),
    1180: ("MBO072", "MBP101", "TOB5"), 37011: ("N1", "M2"), 1022: ("STD",), 1472: ("77",), 1300: ("10",), 15: ("BRL",),
    48: (1, 5, 123456, 18446744073709551615), 58: ("a", "b c"), 355: ("é", "x"), 359: ("ü",),
    **{tag: DATES[:4] for tag, values in CHOICES.items() if values is DATES},
    **{tag: TIMES[:5] for tag, values in CHOICES.items() if values is TIMES},
    **{tag: STAMPS[:3] for tag, values in CHOICES.items() if values in (STAMPS, STAMPS[:4])},
}  # fmt: skip
CLEAN_DECIMALS = (Decimal(0, 7), Decimal(-2, 1050), Decimal(-4, -33), Decimal(3, 5), Decimal(-3, 12345), Decimal(-9, 1))


def valid_value(field: Field, chance: random.Random) -> Any:
    if field.operator.kind == CONSTANT:
        return field.operator.initial
    if field.type == DECIMAL:
        # A ratio is whole in the older list; a trade volume (270) has four decimals.
        return chance.choice(CLEAN_DECIMALS[: {623: 1, 270: 5}.get(field.id or 0, 6)])
    value = chance.choice(CLEAN.get(field.id or 0, CHOICES.get(field.id or 0, (0, 1, 2, 5, 100))))
    if field.type in RANGES:
        return int(value)
    if field.type == BYTES:
        return b"Z5"
    return str(value).zfill(9) if field.id == 273 else str(value)


def make_valid(template_id: int, values: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """What a message may say together."""
    for place, entry in enumerate(values.get("MDEntries", [])):
        if template_id == 81:
            entry |= {"MDEntryType": "J", "MDUpdateAction": 0}
            for name in ("SecurityID", "RptSeq"):
                entry.pop(name, None)
        elif template_id in (147, 153) and entry["MDEntryType"] == "J":
            entry["MDEntryType"] = "c"
        elif template_id == 145 and entry["MDEntryType"] == "J":
            entry["MDEntryType"] = "7"
        if entry["MDEntryType"] in "01" and "MDUpdateAction" in entry:
            entry["MDUpdateAction"] = chance.randrange(6)
        if entry["MDEntryType"] in "Jgh" and "MDUpdateAction" in entry:
            entry["MDUpdateAction"] = 0
        if entry["MDEntryType"] in "Aghc" and template_id != 81:  # their families have no venue
            entry["MDStreamID"] = "E"
        if entry["MDEntryType"] == "D" and not entry.get("Underlyings"):
            entry["MDEntryType"] = "C"
        if entry["MDEntryType"] not in "01" or place % 2:
            entry.pop("QuoteCondition", None)
    if template_id == 81:
        values["MDEntries"] = values["MDEntries"][:1]
    return values


def valid_messages(templates: TemplateSet, count: int, seed: int, ids: tuple[int, ...]) -> list[bytes]:
    chance, writer = random.Random(seed), Writer(templates)
    made = []
    for _ in range(count):
        template_id, share = chance.choice(ids), chance.choice((0.1, 0.5, 0.9))
        values = values_of(templates.by_id[template_id].body, chance, share, valid_value)
        made.append(writer.encode(template_id, make_valid(template_id, values, chance)))
    return made


def value_of(field: Field, chance: random.Random) -> Any:
    initial = field.operator.initial
    if field.operator.kind == CONSTANT:
        return initial
    if field.type == DECIMAL:
        return chance.choice(DECIMALS)
    value = chance.choice(CHOICES.get(field.id or 0, SMALL))
    if field.type in RANGES:
        low, high = RANGES[field.type]
        number = int(value) if str(value).isdigit() else 1
        return number if low <= number <= high else 1
    if field.type == BYTES:
        return b"Z5"
    text = str(value)
    if field.id in (273,) and isinstance(value, int):
        text = chance.choice([text.zfill(9), text.zfill(9)[:6]])
    return text


def values_of(segment: Segment, chance: random.Random, share: float, value: Any = value_of) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for instruction in segment.instructions:
        if instruction.optional and chance.random() > share:
            continue
        if isinstance(instruction, Sequence):
            count = chance.choice((0, 1, 1, 2, 3, 6))
            values[instruction.name] = [values_of(instruction.body, chance, share, value) for _ in range(count)]
        else:
            assert isinstance(instruction, Field)
            values[instruction.name] = value(instruction, chance)
    return values


def messages(templates: TemplateSet, count: int, seed: int, ids: tuple[int, ...] | None = None) -> list[bytes]:
    chance, writer = random.Random(seed), Writer(templates)
    chosen = list(ids or templates.by_id)
    made = []
    for _ in range(count):
        template_id = chance.choice(chosen)
        share = chance.choice((0.1, 0.5, 0.9))
        made.append(writer.encode(template_id, values_of(templates.by_id[template_id].body, chance, share)))
    return made
