"""Sentences and translations with their gold alignment, split so that the test asks for what training never showed.

Some combinations of two known words, such as on + mat, are held out of training: every sentence of validation and
test has one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, islice

from regard.data import words
from regard.data.grammar import chinese, english, french
from regard.data.grammar.lexicon import DETERMINERS, NOUNS, PREPOSITIONS
from regard.data.grammar.meaning import (
    Action,
    Clause,
    Location,
    Mention,
    Phrase,
    Place,
    Relative,
    Sentence,
    Word,
)
from regard.data.grammar.sampling import Chance, invent
from regard.data.pairs import Pair
from regard.errors import RegardError

__all__ = ["LANGUAGES", "Corpus", "GrammarError", "combinations", "corpus", "held_out", "translated"]

SPEAKERS = {"fr": (french.say, french.write), "zh": (chinese.say, chinese.write)}
LANGUAGES = tuple(SPEAKERS)

FEWEST, MOST = 100, 1_000_000
SHORTEST, LONGEST = 3, 25  # words of an English sentence
HELD_OUT = 0.05  # of the combinations


class GrammarError(RegardError, ValueError):
    """The grammar cannot make such a corpus; the message says why."""


@dataclass(frozen=True)
class Corpus:
    """Pairs to train with, to choose by and to test with; no sentence is in two of them."""

    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]


def corpus(language: str = "fr", count: int = 20_000, seed: int = 0) -> Corpus:
    """Distinct English sentences, `count` in all, and their translations; the same for the same arguments.

    One in twenty is for validation and one for the test, which begins with "the cat is on the mat".
    """
    if language not in SPEAKERS:
        raise GrammarError(f"language: expected one of {', '.join(LANGUAGES)}, got {language!r}")
    if not FEWEST <= count <= MOST:
        raise GrammarError(f"count: expected {FEWEST} to {MOST} sentences, got {count}")
    found = _made(language, count, seed)
    return Corpus(*(list(part) for part in (found.train, found.validation, found.test)))


@lru_cache(maxsize=2)  # who trains several translators in one process makes the sentences once
def _made(language: str, count: int, seed: int) -> Corpus:
    part = count // 20
    sentences = _distinct(Chance(seed))
    train: list[Pair] = []
    unseen: list[tuple[Sentence, list[Word]]] = []
    while len(train) < count - 2 * part:
        sentence, said = next(sentences)
        if _unseen(sentence):
            unseen.append((sentence, said))
        else:
            train.append(translated(sentence, said, language))
    source, target = set(), set()
    for pair in train:
        source.update(words.split(pair.source))
        target.update(words.split(pair.target))
    further = ((sentence, said) for sentence, said in sentences if _unseen(sentence))
    candidates = (translated(sentence, said, language) for sentence, said in chain(unseen, further))
    fitting = (
        pair
        for pair in candidates
        if source.issuperset(words.split(pair.source)) and target.issuperset(words.split(pair.target))
    )
    validation = list(islice(fitting, part))
    mat = _on_the_mat()
    return Corpus(train, validation, [translated(mat, english.say(mat), language), *islice(fitting, part - 1)])


def translated(sentence: Sentence, source: list[Word], language: str) -> Pair:
    """A sentence with its words in English, and its translation; words that share a mark belong together."""
    say, write = SPEAKERS[language]
    target = say(sentence)
    return Pair(english.write(source), write(target), _alignment(source, target))


def combinations(sentence: Sentence) -> Iterator[tuple[str, str]]:
    """Adjective and noun, verb and object, preposition and place of a sentence, by their English words."""
    for clause in (sentence.first, sentence.second):
        if clause:
            yield from _of_clause(clause)


@cache
def held_out(first: str, second: str) -> bool:
    """Whether training never shows these two together: chance decides, by a hash; on the mat is for the test."""
    digest = hashlib.sha256(f"{first} {second}".encode()).digest()
    return int.from_bytes(digest[:4]) < HELD_OUT * 2**32 or (first, second) == ("on", "mat")


def _unseen(sentence: Sentence) -> bool:
    return any(held_out(*each) for each in combinations(sentence))


def _on_the_mat() -> Sentence:
    cat, mat = (next(noun for noun in NOUNS if noun.english == name) for name in ("cat", "mat"))
    place = Place(PREPOSITIONS[0], Phrase(mat, DETERMINERS[0]))
    return Sentence(Clause(Phrase(cat, DETERMINERS[0]), Location(place)))


def _distinct(chance: Chance) -> Iterator[tuple[Sentence, list[Word]]]:
    """Sentences without end and their English, which is new, whether with a full stop or without."""
    seen = {english.write(english.say(_on_the_mat()))}
    while True:
        sentence = invent(chance)
        said = english.say(sentence)
        text = english.write(said).removesuffix(".")
        if SHORTEST <= len(said) <= LONGEST and text not in seen:
            seen.add(text)
            yield sentence, said


def _alignment(source: list[Word], target: list[Word]) -> frozenset[tuple[int, int]]:
    places: dict[object, list[int]] = {}
    for index, word in enumerate(source):
        for mark in word.marks:
            places.setdefault(mark, []).append(index)
    pairs = [
        (other, index) for index, (_, marks) in enumerate(target) for each in marks for other in places.get(each, ())
    ]
    return frozenset(pairs)


def _of_clause(clause: Clause) -> Iterator[tuple[str, str]]:
    subject, predicate = clause.subject, clause.predicate
    yield from _of_phrase(subject)
    if isinstance(predicate, Action):
        yield from _of_action(predicate)
    elif isinstance(predicate, Location):
        yield from _of_place(predicate.place)
    elif isinstance(subject, Phrase):
        yield predicate.adjective.english, subject.noun.english


def _of_phrase(phrase: Phrase | Mention | None) -> Iterator[tuple[str, str]]:
    if not isinstance(phrase, Phrase):
        return
    for adjective in phrase.adjectives:
        yield adjective.english, phrase.noun.english
    modifier = phrase.modifier
    if isinstance(modifier, Relative):
        yield from _of_action(modifier.action)
        if modifier.subject:
            yield modifier.action.verb.english, phrase.noun.english
            yield from _of_phrase(modifier.subject)
    elif modifier:
        yield from _of_place(modifier)


def _of_action(action: Action) -> Iterator[tuple[str, str]]:
    if isinstance(action.object, Phrase):
        yield action.verb.english, action.object.noun.english
        yield from _of_phrase(action.object)
    if action.place:
        yield from _of_place(action.place)


def _of_place(place: Place) -> Iterator[tuple[str, str]]:
    yield place.preposition.english, place.landmark.noun.english
    yield from _of_phrase(place.landmark)
