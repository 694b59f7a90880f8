"""What a sentence means, apart from any language: a small tree, which each language puts into words.

Nodes are compared by identity: two cats in a sentence are two cats. Words of two languages that share a meaning are
aligned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from regard.data.grammar import lexicon

Meaning = tuple[object, str]  # a node of the tree, and what of it a word says: its noun, its numeral …


class Word(NamedTuple):
    """A word of a language and what it means."""

    text: str
    meanings: tuple[Meaning, ...] = ()


def spell(text: str, *meanings: Meaning) -> list[Word]:
    """The words of a text with spaces between them, all with the same meanings."""
    if text.isalpha():  # one word, as most are: this takes half the time
        return [Word(text, meanings)]
    return [Word(word, meanings) for word in text.split()]


@dataclass(frozen=True, eq=False, slots=True)
class Phrase:
    """A noun and what goes with it."""

    noun: lexicon.Noun
    determiner: lexicon.Determiner
    plural: bool = False
    numeral: lexicon.Expression | None = None
    adjectives: tuple[lexicon.Adjective, ...] = ()  # one, or one and a colour
    modifier: Relative | Place | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Mention:
    """A person, by a pronoun; no pronoun is plural as a subject."""

    pronoun: lexicon.Pronoun
    plural: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Place:
    """On the mat; as a predicate: is on the mat."""

    preposition: lexicon.Preposition
    landmark: Phrase


@dataclass(frozen=True, eq=False, slots=True)
class Action:
    """A verb with its object and its place."""

    verb: lexicon.Verb
    object: Phrase | Mention | None = None
    place: Place | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Relative:
    """That sees the cat; or, with a subject of its own, that the cat sees."""

    action: Action
    subject: Phrase | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Quality:
    """Is old, or is very old."""

    adjective: lexicon.Adjective
    very: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Clause:
    """A subject and what is said of it."""

    subject: Phrase | Mention
    predicate: Action | Quality | Place
    negated: bool = False
    adverb: lexicon.Adverb | None = None
    time: lexicon.Expression | None = None
    question: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Sentence:
    """One clause, or two with a link; a statement may have its full stop or not."""

    first: Clause
    link: lexicon.Link | None = None
    second: Clause | None = None
    stop: bool = False
