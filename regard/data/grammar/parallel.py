"""Sentences and translations with their gold alignment, split so that the test needs what training has not shown.

Random meanings say silly things at times, but each language has exactly one way to say them. A clause or a place after
a noun could belong to either of two nouns: so only a subject has a place of its own, and nothing follows an object that
has a clause. Some combinations of two known words, such as on + mat, are held out of training: every sentence of
validation and test has one of them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, islice
from typing import TypeVar

from regard.data import words
from regard.data.grammar import chinese, english, french, lexicon
from regard.data.grammar.lexicon import Adjective, Adverb, Determiner, Noun, Preposition, Verb
from regard.data.grammar.meaning import Action, Clause, Mention, Phrase, Place, Quality, Relative, Sentence, Word
from regard.data.pairs import Pair
from regard.data.split import Parts
from regard.errors import RegardError

SPEAKERS = {"fr": (french.say, french.write), "zh": (chinese.say, chinese.write)}
LANGUAGES = tuple(SPEAKERS)

DEFAULT_COUNT = 20_000
MIN_COUNT, MAX_COUNT = 100, 1_000_000
MIN_WORDS, MAX_WORDS = 3, 25  # of an English sentence
HELD_OUT = 0.05  # of the combinations
Choice = TypeVar("Choice")
THE, A = lexicon.DETERMINERS[:2]
DEFINITE = tuple(determiner for determiner in lexicon.DETERMINERS if determiner.definite)
POINTING = tuple(determiner for determiner in DEFINITE if not determiner.owner)
LIVING = "person animal"


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


def combinations(node: object) -> Iterator[tuple[str, str]]:
    """Adjective and noun, verb and object, preposition and place of a sentence or a part of it, in English."""
    match node:
        case Sentence():
            yield from combinations(node.first)
            yield from combinations(node.second)
        case Clause(subject=subject, predicate=predicate):
            yield from combinations(subject)
            yield from combinations(predicate)
            if isinstance(predicate, Quality) and isinstance(subject, Phrase):
                yield predicate.adjective.english, subject.noun.english
        case Phrase(noun=noun, modifier=modifier):
            for adjective in node.adjectives:
                yield adjective.english, noun.english
            yield from combinations(modifier)
            if isinstance(modifier, Relative) and modifier.subject:
                yield modifier.action.verb.english, noun.english
        case Relative():
            yield from combinations(node.action)
            yield from combinations(node.subject)
        case Action():
            if isinstance(node.object, Phrase):
                yield node.verb.english, node.object.noun.english
            yield from combinations(node.object)
            yield from combinations(node.place)
        case Place():
            yield node.preposition.english, node.landmark.noun.english
            yield from combinations(node.landmark)


@cache
def is_held_out(first: str, second: str) -> bool:
    """Whether training does not show these two together: a hash decides, and "on the mat" is for the test."""
    digest = hashlib.sha256(f"{first} {second}".encode()).digest()
    return int.from_bytes(digest[:4]) < HELD_OUT * 2**32 or (first, second) == ("on", "mat")


def _has_held_out(sentence: Sentence) -> bool:
    return any(is_held_out(*combination) for combination in combinations(sentence))


def _on_the_mat() -> Sentence:
    cat, mat = (next(noun for noun in lexicon.NOUNS if noun.english == name) for name in ("cat", "mat"))
    place = Place(lexicon.PREPOSITIONS[0], Phrase(mat, THE))
    return Sentence(Clause(Phrase(cat, THE), place))


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


# ------------------------------------------------------------------------------------------------------------ sampling


def _share(kinds: str, others: str) -> bool:
    return not set(kinds.split()).isdisjoint(others.split())


@cache
def _nouns(kinds: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in lexicon.NOUNS if _share(noun.kinds, kinds))


@cache
def _adjectives(kinds: str) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in lexicon.ADJECTIVES if _share(adjective.kinds, kinds))


@cache
def _verbs(subject: str, *, transitive: bool) -> tuple[Verb, ...]:
    return tuple(verb for verb in lexicon.VERBS if _share(verb.subjects, subject) and bool(verb.objects) == transitive)


@cache
def _verbs_of_objects(kinds: str) -> tuple[Verb, ...]:
    return tuple(verb for verb in lexicon.VERBS if _share(verb.objects, kinds) and not verb.indefinite)


class SentenceSampler:
    """An endless sequence of random sentences, the same for the same seed.

    It uses `random()` alone, the one method of Python's generator whose numbers are the same in all versions.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def sentence(self) -> Sentence:
        """The next sentence: a question, one clause or two."""
        if self._happens(0.12):
            return Sentence(self._clause(question=True))
        stop = self._happens(0.5)
        if self._happens(0.3):
            return Sentence(self._clause(last=False), self._pick(lexicon.LINKS), self._clause(leading=False), stop)
        return Sentence(self._clause(), stop=stop)

    def _pick(self, choices: Sequence[Choice]) -> Choice:
        """One of them, each with the same probability."""
        return choices[int(self._random() * len(choices))]

    def _happens(self, probability: float) -> bool:
        return self._random() < probability

    def _unused(self, nouns: Sequence[Noun], used: list[Noun]) -> Noun:
        """A noun that is not in the clause yet: no dog sees a dog."""
        noun = self._pick(nouns)
        return noun if noun not in used else self._pick([other for other in nouns if other not in used])

    def _clause(self, *, question: bool = False, leading: bool = True, last: bool = True) -> Clause:
        """A clause; a leading one may begin with a time, and only the last one may end with a relative clause."""
        shape = self._random()
        if shape < 0.2:
            return self._quality(question=question)
        if shape < 0.35:
            return self._location(question=question)
        return self._acting(question=question, leading=leading, last=last)

    def _quality(self, *, question: bool) -> Clause:
        subject = self._subject(self._pick(lexicon.NOUNS), [], plain=question)
        kinds = subject.noun.kinds if isinstance(subject, Phrase) else "person"
        used = subject.adjectives if isinstance(subject, Phrase) else ()
        fitting = [
            adjective
            for adjective in _adjectives(kinds)
            if adjective.predicate and adjective not in used and not (used and adjective.colour)
        ]
        adjective = self._pick(fitting)
        negated = not question and self._happens(0.2)
        very = not (adjective.colour or negated or question) and self._happens(0.25)
        return Clause(subject, Quality(adjective, very), negated, question=question)

    def _location(self, *, question: bool) -> Clause:
        noun = self._pick(_nouns("person animal thing food text building"))
        used = [noun]
        of_places = "place" in noun.kinds.split()
        place = self._place(used, of_places=of_places)
        subject = self._subject(noun, used, plain=True)
        negated = not question and self._happens(0.2)
        adverb = self._pick(lexicon.ADVERBS) if not (negated or question or of_places) and self._happens(0.15) else None
        return Clause(subject, place, negated, adverb, question=question)

    def _acting(self, *, question: bool, leading: bool, last: bool) -> Clause:
        noun = self._pick(_nouns(LIVING))
        verb = self._pick(_verbs(noun.kinds, transitive=self._happens(0.7)))
        used = [noun]
        negated = not question and self._happens(0.2)
        adverb = None if negated else self._adverb(verb, question=question)
        denied = negated or bool(adverb and adverb.negative)
        thing = self._object(verb, used, denied=denied, clauses=last and not question) if verb.objects else None
        place = None
        if verb.sort != "state" and not (isinstance(thing, Phrase) and thing.modifier) and self._happens(0.3):
            place = self._place(used)
        action = Action(verb, thing, place)
        if not (question or denied or adverb or verb.sort == "state") and self._happens(0.15):
            return Clause(self._indefinite(noun), action)
        subject = self._subject(noun, used, plain=question)
        timed = leading and not (question or adverb or verb.sort == "state") and self._happens(0.12)
        return Clause(subject, action, negated, adverb, self._pick(lexicon.TIMES) if timed else None, question)

    def _adverb(self, verb: Verb, *, question: bool) -> Adverb | None:
        if verb.sort == "state" or not self._happens(0.15):
            return None
        adverb = self._pick(lexicon.ADVERBS)
        return None if adverb.negative and (question or verb.sort == "event") else adverb

    def _subject(self, noun: Noun, used: list[Noun], *, plain: bool) -> Phrase | Mention:
        """A known person or thing; unless it has to be plain, sometimes with a clause or a place."""
        if "person" in noun.kinds and self._happens(0.2):
            return Mention(self._pick(lexicon.SUBJECTS))
        if plain or not self._happens(0.2):
            return self._phrase(noun, self._known(noun))
        used = [*used, noun]
        if noun in _nouns("person animal thing text food") and self._happens(0.4):
            preposition, landmark = self._where(used, of_places=False)
            modifier: Relative | Place = Place(preposition, Phrase(landmark, THE))
        else:
            modifier = self._relative(noun, used)
        return self._phrase(noun, THE, modifier)

    def _object(self, verb: Verb, used: list[Noun], *, denied: bool, clauses: bool) -> Phrase | Mention:
        if "person" in verb.objects and self._happens(0.2):
            return Mention(self._pick(lexicon.OBJECTS))
        noun = self._unused(_nouns(verb.objects), used)
        used.append(noun)
        if verb.indefinite or self._happens(0.3):
            if denied or self._happens(0.4):
                return Phrase(noun, A, plural=True, adjectives=self._described(noun))
            return self._indefinite(noun)
        if clauses and self._happens(0.2):
            return self._phrase(noun, THE, self._relative(noun, used))
        return self._phrase(noun, self._known(noun))

    def _indefinite(self, noun: Noun) -> Phrase:
        """One thing or a number of things that are new."""
        numeral = self._pick(lexicon.NUMERALS) if self._happens(0.4) else None
        return Phrase(noun, A, numeral is not None, numeral, self._described(noun))

    def _phrase(self, noun: Noun, determiner: Determiner, modifier: Relative | Place | None = None) -> Phrase:
        number = self._random()
        numeral = self._pick(lexicon.NUMERALS) if number < 0.06 else None
        return Phrase(noun, determiner, number < 0.25, numeral, self._described(noun, modifier is None), modifier)

    def _known(self, noun: Noun) -> Determiner:
        return THE if self._happens(0.6) else self._pick(DEFINITE if noun.owned else POINTING)

    def _described(self, noun: Noun, richly: bool = True) -> tuple[Adjective, ...]:
        """No adjective, one, or one that French puts before the noun and a colour."""
        if not self._happens(0.4 if richly else 0.2):
            return ()
        first = self._pick(_adjectives(noun.kinds))
        colours = [adjective for adjective in _adjectives(noun.kinds) if adjective.colour]
        if richly and first.before and colours and self._happens(0.3):
            return (first, self._pick(colours))
        return (first,)

    def _relative(self, noun: Noun, used: list[Noun]) -> Relative:
        """A clause that describes a noun, as its subject if it is alive, or as its object."""
        alive = noun in _nouns(LIVING)
        verbs = _verbs_of_objects(noun.kinds)
        if verbs and not (alive and self._happens(0.6)):
            verb = self._pick(verbs)
            subject = self._unused(_nouns(verb.subjects), used)
            return Relative(Action(verb), Phrase(subject, self._known(subject), self._happens(0.2)))
        if not alive:
            raise ValueError(f"no verb takes {noun.english!r} as its object: give one of its kinds to a verb")
        verb = self._pick(_verbs(noun.kinds, transitive=self._happens(0.7)))
        if not verb.objects:
            return Relative(Action(verb, place=self._place(used) if self._happens(0.5) else None))
        thing = self._unused(_nouns(verb.objects), used)
        used.append(thing)
        determiner = A if verb.indefinite else self._known(thing)
        return Relative(Action(verb, Phrase(thing, determiner, self._happens(0.2))))

    def _place(self, used: list[Noun], *, of_places: bool = False) -> Place:
        preposition, noun = self._where(used, of_places=of_places)
        used.append(noun)
        if not of_places and self._happens(0.15):
            return Place(preposition, Phrase(noun, A, adjectives=self._described(noun)))
        return Place(preposition, self._phrase(noun, self._known(noun)))

    def _where(self, used: list[Noun], *, of_places: bool) -> tuple[Preposition, Noun]:
        fitting = [preposition for preposition in lexicon.PREPOSITIONS if preposition.of_places or not of_places]
        preposition = self._pick(fitting)
        kinds = "place" if of_places and preposition.kinds == "landmark" else preposition.kinds
        return preposition, self._unused(_nouns(kinds), used)
