"""Numbers as people and programs write them: thousands separators, decimal commas, %, currencies, parentheses.

A single text may be ambiguous: "1,234" is 1234 in London and 1.234 in Berlin. A column seldom is, so all its texts are
looked at together.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

__all__ = ["NumberTexts", "parse_numbers"]

Array = NDArray[numpy.float64]
Flags = NDArray[numpy.bool_]

# What is written in several ways becomes one: minus signs, blanks that do not break, apostrophes, wide characters.
SAME = str.maketrans({**dict.fromkeys("−‒–﹣－", "-"), **dict.fromkeys("\u00a0\u2007\u2009\u202f\u3000", " ")})
SAME |= str.maketrans({**dict.fromkeys("’ʼ‘´`", "'"), "％": "%", "￥": "¥", "＄": "$", "＋": "+"})

CODES = """
AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY COP
CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD
IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR
MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RMB RON RSD RUB RWF SAR SBD SCR SDG SEK SGD
SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XOF
XPF YER ZAR ZMW ZWG"""
WORDS = ("kr.", "kr", "zł", "Kč", "Ft", "Fr.", "Fr", "лв.", "лв", "руб.", "руб", "元", "円", "원")
SIGNS = "".join(sign for sign in map(chr, range(0x2100)) if unicodedata.category(sign) == "Sc")
CURRENCY = f"(?:[A-Z]{{0,2}}[{re.escape(SIGNS)}]|{'|'.join(map(re.escape, (*CODES.split(), *WORDS)))})"
SPLIT = re.compile(r"(\D*)(\d(?:[\d., ']*\d)?[.,]?(?:[eE][-+]?\d+)?)(\D*)")
LEFT = re.compile(rf"({CURRENCY})?\s*(\()?\s*([-+])?\s*({CURRENCY})?\s*([-+])?\s*([.,])?")
RIGHT = re.compile(rf"\s*({CURRENCY}|%)?\s*(-)?\s*(\))?\s*({CURRENCY}|%)?")
# Thousands are in groups of three digits; after commas also of two, as in India.
_GROUPS = r"[1-9]\d{0,2}(?: \d{3})+|[1-9]\d{0,2}(?:'\d{3})+"
GRAMMARS = {
    ".": re.compile(rf"(?:[1-9]\d{{0,2}}(?:,\d{{2,3}})*,\d{{3}}|{_GROUPS}|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?"),
    ",": re.compile(rf"(?:[1-9]\d{{0,2}}(?:\.\d{{3}})+|{_GROUPS}|\d+)?(?:,\d*)?(?:[eE][-+]?\d+)?"),
}
TO_PYTHON = {".": str.maketrans("", "", ", '"), ",": str.maketrans(",", ".", ". '")}
AMBIGUOUS = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")


@dataclass(frozen=True, eq=False)
class NumberTexts:
    """The numbers of a column's different texts, before it is decided what a comma and a point mean in it.

    digits: with their separators, None where a text is no number; negative (n,); unit: %, a currency, or ""
    understood: which texts are numbers if the decimal separator is "." or ","
    """

    digits: list[str | None]
    negative: Flags
    unit: str
    understood: dict[str, Flags]

    def values(self, decimal: str) -> Array:
        """The numbers, NaN where a text is none."""
        understood, table = self.understood[decimal], TO_PYTHON[decimal]
        values = numpy.full(len(understood), numpy.nan)
        chosen = numpy.array(self.digits, dtype=object)[understood]
        values[understood] = [float(digits.translate(table)) for digits in chosen]
        return numpy.where(self.negative, -values, values)

    def decimals(self) -> tuple[str, ...]:
        """The decimal separators by which most texts are numbers: one, or both where that cannot be told."""
        by_point, by_comma = (int(self.understood[decimal].sum()) for decimal in ".,")
        return (".",) if by_point > by_comma else (",",) if by_comma > by_point else (".", ",")

    def likely_decimal(self, separator: str) -> str:
        """The decimal separator of a column that does not tell, by the separator of the table's cells.

        Tables are separated by ";" where the comma is needed for decimals. Points in them are thousands if some numbers
        do without: fixed decimals would be in all of them.
        """
        if separator != ";" or not self.has_mark(",", "."):
            return "."
        some_without = any("." not in digits for digits in self.digits if digits is not None)
        return "," if self.has_mark(",") or some_without else "."

    def has_mark(self, *marks: str) -> bool:
        """Whether one of these characters occurs among the digits."""
        return any(mark in digits for digits in self.digits if digits is not None for mark in marks)


def parse_numbers(texts: Sequence[str]) -> NumberTexts:
    """Signs, parentheses and units are taken off. A column has one unit: other texts in it are no numbers."""
    found = [_parse(text if text.isascii() else text.translate(SAME).strip()) for text in texts]
    units = Counter(unit for _, _, unit in found if unit)
    unit = units.most_common(1)[0][0] if units else ""
    # Amounts often lack their currency in some cells. A number without % among percentages may be either.
    allowed = {"%"} if unit == "%" else {"", unit}
    digits = [digits if unit_of_text in allowed else None for digits, _, unit_of_text in found]
    return NumberTexts(
        digits,
        numpy.array([negative for _, negative, _ in found], dtype=bool),
        unit,
        {decimal: _matching(grammar, digits) for decimal, grammar in GRAMMARS.items()},
    )


def _matching(grammar: re.Pattern[str], digits: Sequence[str | None]) -> Flags:
    return numpy.array([text is not None and grammar.fullmatch(text) is not None for text in digits], dtype=bool)


def _parse(text: str) -> tuple[str | None, bool, str]:
    """The digits with their separators, whether the number is negative, and its unit."""
    match = SPLIT.fullmatch(text)
    if match is None:
        return None, False, ""
    left, digits, right = match.groups()
    if not left and not right:
        return digits, False, ""
    valid, mark, negative, unit = _around(left, right)
    return (mark + digits if valid else None), negative, unit


@functools.lru_cache(1 << 12)
def _around(left: str, right: str) -> tuple[bool, str, bool, str]:
    """What stands around digits: whether it belongs to a number, a mark to begin with, its sign and its unit."""
    before, after = LEFT.fullmatch(left), RIGHT.fullmatch(right)
    if before is None or after is None:
        return False, "", False, ""
    far_left, opened, sign, near_left, inner_sign, mark = before.groups()
    near_right, trailing, closed, far_right = after.groups()
    units = [unit for unit in (far_left, near_left, near_right, far_right) if unit]
    signs = [sign for sign in (sign, inner_sign, trailing, opened) if sign]
    valid = len(units) < 2 and len(signs) < 2 and bool(opened) == bool(closed)
    return valid, mark or "", signs not in ([], ["+"]), units[0] if units else ""
