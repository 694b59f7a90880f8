"""What a row of the lexicon holds, for each part of speech: its forms in every language, and what it goes with.

Kinds say what goes with what: an adjective, a verb's object or a preposition takes nouns that share a kind with it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Adjective",
    "Adverb",
    "Determiner",
    "Link",
    "Noun",
    "Numeral",
    "Preposition",
    "Pronoun",
    "Time",
    "Verb",
]


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun, singular and plural; an aspirated h keeps the article whole: le hibou, but l'homme."""

    english: str
    english_plural: str
    gender: str  # m or f
    french: str
    french_plural: str
    chinese: str
    measure: str  # the word that Chinese counts it with
    kinds: str
    aspirated: bool = False
    owned: bool = True  # my friend, but not my man: in French that is a husband


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective; French has a fifth form where the masculine changes before a vowel."""

    english: str
    french: str  # petit petite petits petites
    before: bool  # in French it stands before the noun
    chinese: str  # with 的 where it needs one before a noun
    kinds: str
    living: str = ""  # Chinese for people and animals, where it differs
    colour: bool = False
    predicate: bool = True  # it can be said with "is"


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb in the present. A state lasts, an event is over at once, an action is neither."""

    english: str
    english_third: str
    french: str
    french_plural: str
    chinese: str
    negation: str  # Chinese 不 or 没
    sort: str  # action, state or event
    subjects: str  # kinds
    objects: str = ""  # kinds; none: intransitive
    generic: bool = False  # likes dogs: aime les chiens, all of them
    indefinite: bool = False  # has a dog, never the dog
    particle: str = ""  # looks for


@dataclass(frozen=True, eq=False)
class Preposition:
    """Where something is. French may end in de, which contracts; Chinese puts its word after the noun."""

    english: str
    french: str
    chinese: str
    kinds: str
    of_places: bool = False  # a house can be near a lake, but not in a box


@dataclass(frozen=True, eq=False)
class Determiner:
    """An article, a demonstrative or a possessive; Chinese has its word only where it counts or points."""

    english: str
    english_plural: str
    french: str  # masculine, feminine, plural; before a vowel masculine, feminine
    chinese: str
    definite: bool = True
    owner: bool = False


@dataclass(frozen=True, eq=False)
class Numeral:
    """A number of things."""

    english: str
    french: str
    chinese: str


@dataclass(frozen=True, eq=False)
class Pronoun:
    """A word for a person."""

    english: str
    french: str
    chinese: str
    gender: str = "m"


@dataclass(frozen=True, eq=False)
class Adverb:
    """How often; the negative one takes the place of "not"."""

    english: str
    french: str
    chinese: str
    negative: bool = False


@dataclass(frozen=True, eq=False)
class Time:
    """When: at the beginning in English and French, after the subject in Chinese."""

    english: str
    french: str
    chinese: str


@dataclass(frozen=True, eq=False)
class Link:
    """What joins two clauses; in Chinese 1 and 2 stand for them, and may change places."""

    english: str
    french: str
    chinese: str
    open: bool = False  # what it joins may happen or not, once or often
