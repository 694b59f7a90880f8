"""Numbers and dates as people and programs write them.

Thousands separators, decimal commas, %, currencies and parentheses; days, months, names and times in any order. A
single text may be ambiguous: "1,234" is 1234 in London and 1.234 in Berlin, and 03/01/2019 is in January or in March. A
column seldom is, so all its texts are looked at together.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

Array = NDArray[numpy.float64]
Flags = NDArray[numpy.bool_]

MISSING = frozenset(
    ["", "na", "n/a", "#n/a", "n.a.", "<na>", "nan", "nat", "null", "none", ".", "..", "-", "--", "–", "—", "?"]
)

# ------------------------------------------------------------------------------------------------------------- numbers

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
    """The numbers of a column's different texts, before it is decided what a comma and a point mean in it."""

    digits: list[str | None]  # with their separators, None where a text is no number
    negative: Flags
    unit: str  # %, a currency, or ""
    understood: dict[str, Flags]  # which texts are numbers if the decimal separator is "." or ","

    def values(self, decimal: str) -> Array:
        """The numbers, NaN where a text is none."""
        understood, table = self.understood[decimal], TO_PYTHON[decimal]
        values = numpy.full(len(understood), numpy.nan)
        chosen = numpy.array(self.digits, dtype=object)[understood]
        values[understood] = [float(digits.translate(table)) for digits in chosen]
        return numpy.where(self.negative, -values, values)

    def clear_decimal(self) -> str:
        """The decimal separator by which most texts are numbers; "" where that may be either."""
        by_point, by_comma = (int(self.understood[decimal].sum()) for decimal in ".,")
        return "." if by_point > by_comma else "," if by_comma > by_point else ""

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
    parsed = [_parse_number(text if text.isascii() else text.translate(SAME).strip()) for text in texts]
    units = Counter(unit for _, _, unit in parsed if unit)
    unit = units.most_common(1)[0][0] if units else ""
    # Amounts often lack their currency in some cells. A number without % among percentages may be either.
    allowed = {"%"} if unit == "%" else {"", unit}
    digits = [digits if unit_of_text in allowed else None for digits, _, unit_of_text in parsed]
    understood = {
        decimal: numpy.array([text is not None and grammar.fullmatch(text) is not None for text in digits], dtype=bool)
        for decimal, grammar in GRAMMARS.items()
    }
    return NumberTexts(digits, numpy.array([negative for _, negative, _ in parsed], dtype=bool), unit, understood)


def is_number(text: str) -> bool:
    """Whether a single text may be a number."""
    digits, _, _ = _parse_number(text.translate(SAME).strip())
    return digits is not None and any(grammar.fullmatch(digits) for grammar in GRAMMARS.values())


def _parse_number(text: str) -> tuple[str | None, bool, str]:
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


# --------------------------------------------------------------------------------------------------------------- dates

ISO = re.compile(r"\d{4}[-/.]\d{1,2}\b.*|\d{8}T\d.*")
NUMERIC = re.compile(r"(\d{1,2})([-/. ])(\d{1,2})\2\d{2}(?:\d{2})?\b.*")
QUARTER = re.compile(r"(?:(?P<year>\d{4})[ -]?Q(?P<quarter>[1-4])|Q(?P<first_quarter>[1-4])[ -]?(?P<last_year>\d{4}))")
WITH_TIME = re.compile(
    r"(?P<date>.*?\S)(?P<gap>,? +|T|:)\d{1,2}:\d{2}(?P<seconds>:\d{2})?(?P<fraction>\.\d+)?"
    r"(?P<half> ?[AaPp][Mm])?(?P<zone> ?(?:Z|UTC|GMT|[-+]\d{2}:?\d{2}))?"
)
FULL = re.compile(r"%([dm])([./-])%[dm]\2%Y(?: %H:%M(?::%S(?:\.%f)?)?)?")  # in formats
DAY_FIRST = tuple(f"%d{mark}%m{mark}{year}" for mark in "./- " for year in ("%Y", "%y"))
MONTH_FIRST = tuple(f"%m{mark}%d{mark}{year}" for mark in "./- " for year in ("%Y", "%y"))
MONTHS, YEARS = ("%b", "%B"), ("%Y", "%y")
NAMED = (
    *(f"%d{mark}{month}{mark}{year}" for mark in (" ", "-", "/", ". ") for month in MONTHS for year in YEARS),
    *(f"%d. {month} {year}" for month in MONTHS for year in YEARS),
    *(f"{day}, %d {month} %Y" for day in ("%a", "%A") for month in MONTHS),
    *(f"{month} %d{comma} %Y" for month in MONTHS for comma in ("", ",")),
    *(f"{day} {month} %d{comma} %Y" for day in ("%a", "%a,", "%A,") for month in MONTHS for comma in ("", ",")),
    *(f"{month}{mark}{year}" for month in MONTHS for mark in " -" for year in YEARS),
    *("%Y %b %d", "%Y-%b-%d", "%Y%m%d", "%Y年%m月%d日", "%Y年%m月"),
)
FORMATS = 8  # that a column may mix
CANDIDATES = 20  # texts that are tried for the next format
EVIDENCE = 1000  # texts that are looked at for the order of day and month, before all are


class DateTexts(NamedTuple):
    """Dates, and what was found out about them."""

    days: Array  # since 1970-01-01, NaN where a text is no date
    order: str  # "day first", "month first", or "" where the texts do not depend on it
    ambiguous: bool  # whether the other order would do as well
    zones: bool  # whether some had a time zone, so that all are UTC


def parse_dates(texts: Sequence[str], day_first: bool | None = None) -> DateTexts:
    """Dates, with a time or without. day_first: as they say themselves unless it is given."""
    import pandas

    written = [_quarter_as_iso(text) for text in texts] if any("Q" in text for text in texts[:CANDIDATES]) else texts
    series = pandas.Series(list(written), dtype=str)
    order, ambiguous = _order(written, day_first)
    days = numpy.full(len(series), numpy.nan)
    zones = False
    for _ in range(FORMATS):
        left = numpy.flatnonzero(numpy.isnan(days))
        known = (_format(series[index], order != "month first") for index in left[:CANDIDATES])
        form = next((form for form in known if form), None)
        if form is None:
            break
        days[left] = to_days(_parse_as(series[left], form))
        zones = zones or form.endswith(("%z", "%Z"))
    zones = zones or any(re.search(r":\d{2}.*(Z|[-+]\d{2}:?\d{2})$", text) for text in written[:CANDIDATES])
    return DateTexts(days, order, ambiguous, zones)


def are_values(row: Sequence[str] = (), below: Sequence[str] = ()) -> bool:
    """Whether a row of cells is no header, but numbers, or dates that are not above numbers; some may be missing."""

    def is_value(index: int, cell: str) -> bool:
        if is_number(cell) or (cell.strip().lower() in MISSING and (cell or index)):  # an index has no name
            return True
        dated = bool(numpy.isfinite(parse_dates([cell.strip()]).days).all())
        return dated and not any(map(is_number, below[index : index + 1]))

    return any(map(str.strip, row)) and all(map(is_value, range(len(row)), row))


def to_days(dates: Any) -> Array:
    """A pandas Series of dates as days since 1970-01-01, in UTC where they have a zone; NaN where one is missing."""
    import pandas

    index = pandas.DatetimeIndex(dates)
    naive = index.tz_convert(None) if index.tz is not None else index
    return numpy.asarray((naive.to_numpy() - numpy.datetime64(0, "s")) / numpy.timedelta64(1, "D"), dtype=numpy.float64)


def _parse_as(texts: Any, form: str) -> Any:
    """A pandas Series of dates, NaT where a text has another format."""
    import pandas

    numeric = FULL.fullmatch(form)
    dates = numeric and texts.str.fullmatch(rf"\d{{2}}\{numeric[2]}\d{{2}}\{numeric[2]}\d{{4}}( \d.*)?").all()
    if numeric and dates:  # in the order of ISO they are read several times as fast
        day, month = (slice(0, 2), slice(3, 5)) if numeric[1] == "d" else (slice(3, 5), slice(0, 2))
        texts = texts.str[6:10] + "-" + texts.str[month] + "-" + texts.str[day] + texts.str[10:]
        form = "ISO8601"
    return pandas.to_datetime(texts, format=form, errors="coerce", utc=True)


def _order(texts: Sequence[str], day_first: bool | None) -> tuple[str, bool]:
    """Which of day and month is first in dates such as 03/01/2019, and whether it might be the other."""
    some = [texts[index] for index in numpy.linspace(0, len(texts) - 1, min(EVIDENCE, len(texts))).astype(int)]
    numeric = _numeric(some)
    if not numeric:
        return "", False
    if day_first is not None:
        return ("day first" if day_first else "month first"), False
    for part in (some, texts):
        fields = [(int(match[1]), int(match[3])) for match in _numeric(part)]
        days_first, months_first = (sum(field[place] > 12 for field in fields) for place in (0, 1))
        if days_first or months_first:
            return ("day first" if days_first >= months_first else "month first"), False
    if numeric[0][2] == ".":  # nobody writes points in dates that begin with the month
        return "day first", False
    return "month first", True


def _numeric(texts: Sequence[str]) -> list[re.Match[str]]:
    return [match for match in map(NUMERIC.fullmatch, texts) if match]


def _format(text: str, day_first: bool) -> str | None:
    """The format of a date, as pandas.to_datetime takes it; None if it is no date."""
    if ISO.fullmatch(text):
        return "ISO8601"
    if not any(character.isdigit() for character in text) or len(text) > 50:
        return None
    timed = WITH_TIME.fullmatch(text)
    date = timed["date"] if timed else text
    for form in (*(DAY_FIRST if day_first else MONTH_FIRST), *NAMED):
        with suppress(ValueError):
            datetime.strptime(date, form)
            break
    else:
        return None
    if timed is None:
        return form
    half, zone = timed["half"] or "", timed["zone"] or ""  # perhaps with a blank before them
    time = ("%I:%M" if half else "%H:%M") + (":%S" if timed["seconds"] else "") + (".%f" if timed["fraction"] else "")
    if half:
        time += half.replace(half.strip(), "%p")
    if zone:
        time += zone.replace(zone.strip(), "%Z" if zone.strip() in ("UTC", "GMT") else "%z")
    return f"{form}{timed['gap']}{time}"


def _quarter_as_iso(text: str) -> str:
    """The first day of 2019Q2, 2019-Q2 or Q2 2019."""
    match = QUARTER.fullmatch(text)
    if match is None:
        return text
    month = 3 * int(match["quarter"] or match["first_quarter"]) - 2
    return f"{match['year'] or match['last_year']}-{month:02d}-01"
