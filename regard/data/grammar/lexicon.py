"""The words of the grammar, as lexicon.txt has them: one row per word, with all its forms in every language.

Kinds say what goes with what: an adjective, a verb's object or a preposition takes nouns that share a kind with it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import resources
from typing import TypeVar


@dataclass(frozen=True, eq=False)
class Expression:
    """A word in each language; one that needs nothing more is a numeral, or a time, which Chinese says after the
    subject."""

    english: str
    french: str
    chinese: str


@dataclass(frozen=True, eq=False)
class Noun(Expression):
    """A noun, singular and plural; an aspirated h keeps the article whole: le hibou, but l'homme."""

    english_plural: str
    gender: str  # m or f
    french_plural: str
    measure: str  # the word that Chinese counts it with
    kinds: str
    aspirated: bool = False
    owned: bool = True  # my friend, but not my man: in French that is a husband


@dataclass(frozen=True, eq=False)
class Adjective(Expression):
    """An adjective. In French petit petite petits petites, and a fifth form where the masculine changes before a vowel;
    in Chinese with 的 where it needs one before a noun."""

    before: bool  # in French it stands before the noun
    kinds: str
    living: str = ""  # Chinese for people and animals, where it differs
    colour: bool = False
    predicate: bool = True  # it can be said with "is"


@dataclass(frozen=True, eq=False)
class Verb(Expression):
    """A verb in the present. A state lasts, an event is over at once, an action is neither."""

    english_third: str
    french_plural: str
    negation: str  # Chinese 不 or 没
    sort: str  # action, state or event
    subjects: str  # kinds
    objects: str = ""  # kinds; none: intransitive
    generic: bool = False  # likes dogs: aime les chiens, all of them
    indefinite: bool = False  # has a dog, never the dog
    particle: str = ""  # looks for


@dataclass(frozen=True, eq=False)
class Preposition(Expression):
    """Where something is. French may end in de, which contracts; Chinese puts its word after the noun."""

    kinds: str
    of_places: bool = False  # a house can be near a lake, but not in a box


@dataclass(frozen=True, eq=False)
class Determiner(Expression):
    """An article, a demonstrative or a possessive; Chinese has its word only where it counts or points.

    In French masculine, feminine, plural; before a vowel masculine, feminine.
    """

    english_plural: str = ""
    definite: bool = True
    owner: bool = False


@dataclass(frozen=True, eq=False)
class Pronoun(Expression):
    """A word for a person."""

    gender: str = "m"


@dataclass(frozen=True, eq=False)
class Adverb(Expression):
    """How often; the negative one takes the place of "not"."""

    negative: bool = False


@dataclass(frozen=True, eq=False)
class Link(Expression):
    """What joins two clauses; in Chinese 1 and 2 stand for them, and may change places."""

    open: bool = False  # what it joins may happen or not, once or often


Word = TypeVar("Word")
SECTIONS = resources.files("regard.data.grammar").joinpath("lexicon.txt").read_text(encoding="utf-8").split("\n[")


def _read(name: str, kind: type[Word]) -> tuple[Word, ...]:
    """The words of a section of lexicon.txt, whose columns are fields of their class."""
    lines = next(section for section in SECTIONS if section.startswith(f"{name}]")).splitlines()[1:]
    names, *rows = ([cell.strip() for cell in line.split("|")] for line in lines if line)
    booleans = {field.name for field in fields(kind) if field.type == "bool"}  # type: ignore[arg-type]
    cells = ({name: cell for name, cell in zip(names, row, strict=True) if cell} for row in rows)
    return tuple(
        kind(**{name: cell == "yes" if name in booleans else cell for name, cell in row.items()}) for row in cells
    )


NOUNS, ADJECTIVES, VERBS = _read("nouns", Noun), _read("adjectives", Adjective), _read("verbs", Verb)
PREPOSITIONS, DETERMINERS = _read("prepositions", Preposition), _read("determiners", Determiner)
NUMERALS, TIMES, ADVERBS = _read("numerals", Expression), _read("times", Expression), _read("adverbs", Adverb)
SUBJECTS, OBJECTS, LINKS = _read("subjects", Pronoun), _read("objects", Pronoun), _read("links", Link)
