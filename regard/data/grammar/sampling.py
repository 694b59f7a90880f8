"""Random meanings: what they say is silly at times, but each language has exactly one way to say it.

A clause or a place after a noun could belong to either of two nouns. So only a subject has a place of its own, and
nothing follows an object that has a clause.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from regard.data.grammar import lexicon
from regard.data.grammar.lexicon import Adjective, Adverb, Determiner, Noun, Preposition, Verb
from regard.data.grammar.meaning import Action, Clause, Mention, Phrase, Place, Quality, Relative, Sentence

__all__ = ["SentenceSampler"]

Choice = TypeVar("Choice")

THE, A = lexicon.DETERMINERS[:2]
DEFINITE = tuple(determiner for determiner in lexicon.DETERMINERS if determiner.definite)
POINTING = tuple(determiner for determiner in DEFINITE if not determiner.owner)
LIVING = "person animal"


def _share(kinds: str, others: str) -> bool:
    return not set(kinds.split()).isdisjoint(others.split())


@cache
def _nouns(kinds: str) -> tuple[Noun, ...]:
    return tuple(noun for noun in lexicon.NOUNS if _share(noun.kinds, kinds))


@cache
def _adjectives(kinds: str) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in lexicon.ADJECTIVES if _share(adjective.kinds, kinds))


@cache
def _colours(kinds: str) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in _adjectives(kinds) if adjective.colour)


@cache
def _verbs(subject: str, *, transitive: bool) -> tuple[Verb, ...]:
    return tuple(verb for verb in lexicon.VERBS if _share(verb.subjects, subject) and bool(verb.objects) == transitive)


@cache
def _verbs_of_objects(kinds: str) -> tuple[Verb, ...]:
    return tuple(verb for verb in lexicon.VERBS if _share(verb.objects, kinds) and not verb.indefinite)


@cache
def _prepositions(*, of_places: bool) -> tuple[Preposition, ...]:
    return tuple(preposition for preposition in lexicon.PREPOSITIONS if preposition.of_places or not of_places)


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
        colours = _colours(noun.kinds)
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
        preposition = self._pick(_prepositions(of_places=of_places))
        kinds = "place" if of_places and preposition.kinds == "landmark" else preposition.kinds
        return preposition, self._unused(_nouns(kinds), used)
