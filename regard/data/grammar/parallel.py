"""Sentences and translations with their gold alignment, split so that the test needs what training has not shown.

Some combinations of two known words, such as on + mat, are held out of training: every sentence of validation and
test has one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import chain, islice

from regard.data import words
from regard.data.grammar import chinese, english, french
from regard.data.grammar.lexicon import DETERMINERS, NOUNS, PREPOSITIONS
from regard.data.grammar.meaning import Action, Clause, Mention, Phrase, Place, Relative, Sentence, Word
from regard.data.grammar.sampling import SentenceSampler
from regard.data.pairs import Pair
from regard.data.split import Parts
from regard.errors import RegardError

__all__ = ["LANGUAGES", "GrammarError", "combinations", "corpus", "is_held_out", "translate"]

SPEAKERS = {"fr": (french.say, french.write), "zh": (chinese.say, chinese.write)}
LANGUAGES = tuple(SPEAKERS)

DEFAULT_COUNT = 20_000
MIN_COUNT, MAX_COUNT = 100, 1_000_000
MIN_WORDS, MAX_WORDS = 3, 25  # of an English sentence
HELD_OUT = 0.05  # of the combinations


class GrammarError(RegardError, ValueError):
    """The grammar cannot make such a corpus; the message says why."""


def corpus(language: str = "fr", count: int | None = None, seed: int = 0) -> Parts[Pair]:
    """Distinct English sentences and their translations, none in two parts; the same for the same arguments.

    One in twenty is for validation and one for the test, which begins with "the cat is on the mat".

    language: of the translations, fr or zh
    count: sentences in all, DEFAULT_COUNT unless it is given
    """
    count = DEFAULT_COUNT if count is None else count
    if language not in SPEAKERS:
        raise GrammarError(f"language: expected one of {', '.join(LANGUAGES)}, got {language!r}")
    if not MIN_COUNT <= count <= MAX_COUNT:
        raise GrammarError(f"count: expected {MIN_COUNT} to {MAX_COUNT} sentences, got {count}")
    parts = _generate(language, count, seed)
    return Parts(list(parts.train), list(parts.validation), list(parts.test))


@lru_cache(maxsize=2)  # training several translators in one process generates the sentences once
def _generate(language: str, count: int, seed: int) -> Parts[Pair]:
    part = count // 20
    sentences = _distinct_sentences(SentenceSampler(seed))
    train: list[Pair] = []
    held_out: list[tuple[Sentence, list[Word]]] = []
    while len(train) < count - 2 * part:
        sentence, source = next(sentences)
        if _has_held_out(sentence):
            held_out.append((sentence, source))
        else:
            train.append(translate(sentence, source, language))
    source_words = {word for pair in train for word in words.split(pair.source)}
    target_words = {word for pair in train for word in words.split(pair.target)}
    further = ((sentence, source) for sentence, source in sentences if _has_held_out(sentence))
    candidates = (translate(sentence, source, language) for sentence, source in chain(held_out, further))
    fitting = (
        pair
        for pair in candidates
        if source_words.issuperset(words.split(pair.source)) and target_words.issuperset(words.split(pair.target))
    )
    validation = list(islice(fitting, part))
    mat = _on_the_mat()
    return Parts(train, validation, [translate(mat, english.say(mat), language), *islice(fitting, part - 1)])


def translate(sentence: Sentence, source: list[Word], language: str) -> Pair:
    """A sentence, given with its English words, and its translation; words that share a meaning are aligned."""
    say, write = SPEAKERS[language]
    target = say(sentence)
    return Pair(english.write(source), write(target), _align(source, target))


def combinations(sentence: Sentence) -> Iterator[tuple[str, str]]:
    """Adjective and noun, verb and object, preposition and place of a sentence, by their English words."""
    for clause in (sentence.first, sentence.second):
        if clause:
            yield from _of_clause(clause)


@cache
def is_held_out(first: str, second: str) -> bool:
    """Whether training does not show these two together: a hash decides, and "on the mat" is for the test."""
    digest = hashlib.sha256(f"{first} {second}".encode()).digest()
    return int.from_bytes(digest[:4]) < HELD_OUT * 2**32 or (first, second) == ("on", "mat")


def _has_held_out(sentence: Sentence) -> bool:
    return any(is_held_out(*combination) for combination in combinations(sentence))


def _on_the_mat() -> Sentence:
    cat, mat = (next(noun for noun in NOUNS if noun.english == name) for name in ("cat", "mat"))
    place = Place(PREPOSITIONS[0], Phrase(mat, DETERMINERS[0]))
    return Sentence(Clause(Phrase(cat, DETERMINERS[0]), place))


def _distinct_sentences(sampler: SentenceSampler) -> Iterator[tuple[Sentence, list[Word]]]:
    """Endless sentences with their English words; a text does not come twice, whether with a full stop or without."""
    texts = {english.write(english.say(_on_the_mat()))}
    while True:
        sentence = sampler.sentence()
        source = english.say(sentence)
        text = english.write(source).removesuffix(".")
        if MIN_WORDS <= len(source) <= MAX_WORDS and text not in texts:
            texts.add(text)
            yield sentence, source


def _align(source: list[Word], target: list[Word]) -> frozenset[tuple[int, int]]:
    positions: dict[object, list[int]] = {}  # of the source words, by their meanings
    for index, word in enumerate(source):
        for meaning in word.meanings:
            positions.setdefault(meaning, []).append(index)
    return frozenset(
        [
            (position, index)
            for index, word in enumerate(target)
            for meaning in word.meanings
            for position in positions.get(meaning, ())
        ]
    )


def _of_clause(clause: Clause) -> Iterator[tuple[str, str]]:
    subject, predicate = clause.subject, clause.predicate
    yield from _of_phrase(subject)
    if isinstance(predicate, Action):
        yield from _of_action(predicate)
    elif isinstance(predicate, Place):
        yield from _of_place(predicate)
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
