"""Names of invented issuers and assets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

CONSONANTS, VOWELS = "BCDFGHJKLMNPQRSTVWXZ", "AEIOU"


def invented_names(letters: str, known: set[str]) -> Iterator[str]:
    """Names of a pattern: C is a consonant, V a vowel."""
    choices = [CONSONANTS if letter == "C" else VOWELS for letter in letters]
    for number in itertools.count():
        name, rest = "", number * 7_919  # scattered, so that neighbours differ
        for choice in choices:
            name, rest = name + choice[rest % len(choice)], rest // len(choice)
        if name not in known:
            known.add(name)
            yield name
