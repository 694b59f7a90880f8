"""Meanings at random: what is said is silly at times, but every language can say it in one way only.

A clause or a place after a noun could belong to either of two nouns. So only a subject has a place of its own, and
nothing follows an object that has a clause.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from regard.data.grammar.entries import Adjective, Adverb, Determiner, Noun, Preposition, Verb
from regard.data.grammar.lexicon import (
    ADJECTIVES,
    ADVERBS,
    DETERMINERS,
    LINKS,
    NOUNS,
    NUMERALS,
    OBJECTS,
    PREPOSITIONS,
    SUBJECTS,
    TIMES,
    VERBS,
)
from regard.data.grammar.meaning import (
    Action,
    Clause,
    Location,
    Mention,
    Phrase,
    Place,
    Quality,
    Relative,
    Sentence,
)

__all__ = ["Chance", "invent"]

Choice = TypeVar("Choice")

THE, A = DETERMINERS[:2]
DEFINITE = tuple(determiner for determiner in DETERMINERS if determiner.definite)
POINTING = tuple(determiner for determiner in DEFINITE if not determiner.owner)
LIVING = "person animal"


class Chance(random.Random):
    """Random choices that use random() alone, the one method whose numbers never change with the version of Python."""

    def pick(self, choices: Sequence[Choice]) -> Choice:
        """One of them, each as likely."""
        return choices[int(self.random() * len(choices))]

    def happens(self, probability: float) -> bool:
        """Yes with this probability."""
        return self.random() < probability


def _share(kinds: str, others: str) -> bool:
    return not set(kinds.split()).isdisjoint(others.split())


@cache
def _nouns(kinds: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in NOUNS if _share(noun.kinds, kinds))


@cache
def _adjectives(kinds: str) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in ADJECTIVES if _share(adjective.kinds, kinds))


@cache
def _colours(kinds: str) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in _adjectives(kinds) if adjective.colour)


@cache
def _verbs(subject: str, *, transitive: bool) -> tuple[Verb, ...]:
    return tuple(verb for verb in VERBS if _share(verb.subjects, subject) and bool(verb.objects) == transitive)


@cache
def _verbs_of_objects(kinds: str) -> tuple[Verb, ...]:
    return tuple(verb for verb in VERBS if _share(verb.objects, kinds) and not verb.indefinite)


@cache
def _prepositions(*, of_places: bool) -> tuple[Preposition, ...]:
    return tuple(preposition for preposition in PREPOSITIONS if preposition.of_places or not of_places)


def invent(chance: Chance) -> Sentence:
    """A sentence at random: a question, one clause or two."""
    if chance.happens(0.12):
        return Sentence(_clause(chance, question=True))
    stop = chance.happens(0.5)
    if chance.happens(0.3):
        return Sentence(_clause(chance, last=False), chance.pick(LINKS), _clause(chance, leading=False), stop)
    return Sentence(_clause(chance), stop=stop)


def _clause(chance: Chance, *, question: bool = False, leading: bool = True, last: bool = True) -> Clause:
    """A clause; one that leads the sentence may begin with a time, and one that is last may end with a clause."""
    shape = chance.random()
    if shape < 0.2:
        return _quality(chance, question=question)
    if shape < 0.35:
        return _location(chance, question=question)
    return _acting(chance, question=question, leading=leading, last=last)


def _quality(chance: Chance, *, question: bool) -> Clause:
    subject = _subject(chance, chance.pick(NOUNS), [], plain=question)
    kinds = subject.noun.kinds if isinstance(subject, Phrase) else "person"
    said = subject.adjectives if isinstance(subject, Phrase) else ()
    fitting = [
        each for each in _adjectives(kinds) if each.predicate and each not in said and not (said and each.colour)
    ]
    adjective = chance.pick(fitting)
    negated = not question and chance.happens(0.2)
    very = not (adjective.colour or negated or question) and chance.happens(0.25)
    return Clause(subject, Quality(adjective, very), negated, question=question)


def _location(chance: Chance, *, question: bool) -> Clause:
    noun = chance.pick(_nouns("person animal thing food text building"))
    used = [noun]
    of_places = "place" in noun.kinds.split()
    place = _place(chance, used, of_places=of_places)
    subject = _subject(chance, noun, used, plain=True)
    negated = not question and chance.happens(0.2)
    adverb = chance.pick(ADVERBS) if not (negated or question or of_places) and chance.happens(0.15) else None
    return Clause(subject, Location(place), negated, adverb, question=question)


def _acting(chance: Chance, *, question: bool, leading: bool, last: bool) -> Clause:
    noun = chance.pick(_nouns(LIVING))
    verb = chance.pick(_verbs(noun.kinds, transitive=chance.happens(0.7)))
    used = [noun]
    negated = not question and chance.happens(0.2)
    adverb = None if negated else _adverb(chance, verb, question=question)
    denied = negated or bool(adverb and adverb.negative)
    thing = _object(chance, verb, used, denied=denied, clauses=last and not question) if verb.objects else None
    place = None
    if verb.sort != "state" and not (isinstance(thing, Phrase) and thing.modifier) and chance.happens(0.3):
        place = _place(chance, used)
    action = Action(verb, thing, place)
    if not (question or denied or adverb or verb.sort == "state") and chance.happens(0.15):
        return Clause(_indefinite(chance, noun), action)
    subject = _subject(chance, noun, used, plain=question)
    timed = leading and not (question or adverb or verb.sort == "state") and chance.happens(0.12)
    return Clause(subject, action, negated, adverb, chance.pick(TIMES) if timed else None, question)


def _adverb(chance: Chance, verb: Verb, *, question: bool) -> Adverb | None:
    if verb.sort == "state" or not chance.happens(0.15):
        return None
    adverb = chance.pick(ADVERBS)
    return None if adverb.negative and (question or verb.sort == "event") else adverb


def _subject(chance: Chance, noun: Noun, used: list[Noun], *, plain: bool) -> Phrase | Mention:
    """Somebody or something that is known; unless it shall be plain, with a clause or a place at times."""
    if "person" in noun.kinds and chance.happens(0.2):
        return Mention(chance.pick(SUBJECTS))
    if plain or not chance.happens(0.2):
        return _phrase(chance, noun, _known(chance, noun))
    used = [*used, noun]
    if noun in _nouns("person animal thing text food") and chance.happens(0.4):
        preposition, landmark = _where(chance, used, of_places=False)
        modifier: Relative | Place = Place(preposition, Phrase(landmark, THE))
    else:
        modifier = _relative(chance, noun, used)
    return _phrase(chance, noun, THE, modifier)


def _object(chance: Chance, verb: Verb, used: list[Noun], *, denied: bool, clauses: bool) -> Phrase | Mention:
    if "person" in verb.objects and chance.happens(0.2):
        return Mention(chance.pick(OBJECTS))
    noun = _unused(chance, _nouns(verb.objects), used)
    used.append(noun)
    if verb.indefinite or chance.happens(0.3):
        if denied or chance.happens(0.4):
            return Phrase(noun, A, plural=True, adjectives=_described(chance, noun))
        return _indefinite(chance, noun)
    if clauses and chance.happens(0.2):
        return _phrase(chance, noun, THE, _relative(chance, noun, used))
    return _phrase(chance, noun, _known(chance, noun))


def _indefinite(chance: Chance, noun: Noun) -> Phrase:
    """One thing or a number of things that are new."""
    numeral = chance.pick(NUMERALS) if chance.happens(0.4) else None
    return Phrase(noun, A, numeral is not None, numeral, _described(chance, noun))


def _phrase(chance: Chance, noun: Noun, determiner: Determiner, modifier: Relative | Place | None = None) -> Phrase:
    number = chance.random()
    numeral = chance.pick(NUMERALS) if number < 0.06 else None
    return Phrase(noun, determiner, number < 0.25, numeral, _described(chance, noun, modifier is None), modifier)


def _known(chance: Chance, noun: Noun) -> Determiner:
    return THE if chance.happens(0.6) else chance.pick(DEFINITE if noun.owned else POINTING)


def _described(chance: Chance, noun: Noun, richly: bool = True) -> tuple[Adjective, ...]:
    """No adjective, one, or one that French puts before the noun and a colour."""
    if not chance.happens(0.4 if richly else 0.2):
        return ()
    first = chance.pick(_adjectives(noun.kinds))
    colours = _colours(noun.kinds)
    if richly and first.before and colours and chance.happens(0.3):
        return (first, chance.pick(colours))
    return (first,)


def _relative(chance: Chance, noun: Noun, used: list[Noun]) -> Relative:
    """A clause that describes a noun, as its subject where it is alive, or as its object."""
    alive = noun in _nouns(LIVING)
    verbs = _verbs_of_objects(noun.kinds)
    if verbs and not (alive and chance.happens(0.6)):
        verb = chance.pick(verbs)
        subject = _unused(chance, _nouns(verb.subjects), used)
        return Relative(Action(verb), Phrase(subject, _known(chance, subject), chance.happens(0.2)))
    if not alive:
        raise ValueError(f"no verb takes {noun.english!r} as its object: give one of its kinds to a verb")
    verb = chance.pick(_verbs(noun.kinds, transitive=chance.happens(0.7)))
    if not verb.objects:
        return Relative(Action(verb, place=_place(chance, used) if chance.happens(0.5) else None))
    thing = _unused(chance, _nouns(verb.objects), used)
    used.append(thing)
    determiner = A if verb.indefinite else _known(chance, thing)
    return Relative(Action(verb, Phrase(thing, determiner, chance.happens(0.2))))


def _place(chance: Chance, used: list[Noun], *, of_places: bool = False) -> Place:
    preposition, noun = _where(chance, used, of_places=of_places)
    used.append(noun)
    if not of_places and chance.happens(0.15):
        return Place(preposition, Phrase(noun, A, adjectives=_described(chance, noun)))
    return Place(preposition, _phrase(chance, noun, _known(chance, noun)))


def _where(chance: Chance, used: list[Noun], *, of_places: bool) -> tuple[Preposition, Noun]:
    preposition = chance.pick(_prepositions(of_places=of_places))
    kinds = "place" if of_places and preposition.kinds == "landmark" else preposition.kinds
    return preposition, _unused(chance, _nouns(kinds), used)


def _unused(chance: Chance, nouns: Sequence[Noun], used: list[Noun]) -> Noun:
    """A noun that the clause has not yet: no dog sees a dog."""
    noun = chance.pick(nouns)
    return noun if noun not in used else chance.pick([each for each in nouns if each not in used])
