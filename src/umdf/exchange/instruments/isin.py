"""ISINs (ISO 6166): country, issuer, number, check digit."""

from __future__ import annotations

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def isin_of(issuer: str, code: str) -> str:
    """BR, the issuer in four letters, a code of five, and the check digit."""
    body = f"BR{issuer[:4]:X<4}{code}"
    return body + check_digit(body)


def numbered_isin(issuer: str, number: int) -> str:
    """With a number in base 36 as the code."""
    code = ""
    for _ in range(5):
        number, digit = divmod(number, 36)
        code = DIGITS[digit] + code
    return isin_of(issuer, code)


def check_digit(body: str) -> str:
    digits = [int(digit) for letter in body for digit in str(DIGITS.index(letter))]
    total = sum(sum(divmod(digit * 2, 10)) if i % 2 == 0 else digit for i, digit in enumerate(reversed(digits)))
    return str(-total % 10)
