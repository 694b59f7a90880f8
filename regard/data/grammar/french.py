"""A meaning in French: agreement, adjectives on either side of the noun, pronouns before the verb, elision."""

from __future__ import annotations

import re
from functools import cache

from regard.data.grammar.lexicon import NOUNS, Adjective
from regard.data.grammar.meaning import Action, Clause, Mention, Phrase, Place, Relative, Sentence, Word, spell

ASPIRATED = {form for noun in NOUNS if noun.aspirated for form in (noun.french, noun.french_plural)}
ELIDED = {"le", "la", "de", "ne", "que", "me", "te", "si"}  # they lose their vowel before another; si before il
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des"}


def say(sentence: Sentence) -> list[Word]:
    """The words of a sentence."""
    words = _clause(sentence.first)
    if sentence.link and sentence.second:
        words += spell(sentence.link.french, (sentence, "link")) + _clause(sentence.second)
    end = "?" if sentence.first.question else "." if sentence.stop else ""
    return _join(words) + spell(end, (sentence, "end"))


def write(words: list[Word]) -> str:
    """The text of the words: est-ce and l'homme are written in one, and a question mark has its space."""
    text = " ".join([word.text for word in words])
    return re.sub(r"(?<=') | (?=[-,.])|(?<=-) ", "", text)


def _begins_with_vowel(word: str) -> bool:
    """Whether a word begins with the sound of a vowel: h is mute except in a few words."""
    return word[0] in "aeiouâàéèêîôœh" and word not in ASPIRATED


def _join(words: list[Word]) -> list[Word]:
    """Elision and contraction, from the end: le before a vowel is l', and then de is not contracted with it."""
    joined: list[Word] = []
    for word in reversed(words):
        if joined and word.text in ELIDED:
            following = joined[-1]
            if (word.text, following.text) in CONTRACTED:
                contracted = CONTRACTED[word.text, following.text]
                joined[-1] = Word(contracted, word.meanings + following.meanings)
                continue
            if following.text == "il" if word.text == "si" else _begins_with_vowel(following.text):
                word = Word(word.text[:-1] + "'", word.meanings)
        joined.append(word)
    return joined[::-1]


def _clause(clause: Clause) -> list[Word]:
    words = spell(f"{clause.time.french} ,", (clause, "time")) if clause.time else []
    if clause.question:
        words += spell("est - ce que", (clause, "question"))
    words += _noun(clause.subject)
    before, after = _around(clause)
    if isinstance(clause.predicate, Action):
        return words + _action(clause.predicate, before, after, plural=clause.subject.plural)
    words += before + spell("sont" if clause.subject.plural else "est", (clause, "be")) + after
    if isinstance(clause.predicate, Place):
        return words + _place(clause.predicate)
    very = spell("très", (clause, "very")) if clause.predicate.very else []
    gender = clause.subject.noun.gender if isinstance(clause.subject, Phrase) else clause.subject.pronoun.gender
    adjective = _form(clause.predicate.adjective, gender, plural=clause.subject.plural)
    return words + very + spell(adjective, (clause, "quality"))


def _around(clause: Clause) -> tuple[list[Word], list[Word]]:
    """What stands before the verb and what after it: ne and pas, an adverb."""
    if clause.adverb:
        adverb = spell(clause.adverb.french, (clause, "adverb"))
        return (spell("ne", (clause, "adverb")) if clause.adverb.negative else []), adverb
    if clause.negated:
        return spell("ne", (clause, "not")), spell("pas", (clause, "not"))
    return [], []


def _action(action: Action, before: list[Word], after: list[Word], *, plural: bool) -> list[Word]:
    verb = spell(action.verb.french_plural if plural else action.verb.french, (action, "verb"))
    place = _place(action.place) if action.place else []
    if isinstance(action.object, Mention):
        return before + _noun(action.object) + verb + after + place
    many = "les" if action.verb.generic else "de" if before else "des"
    return before + verb + after + (_noun(action.object, many) if action.object else []) + place


def _place(place: Place) -> list[Word]:
    return spell(place.preposition.french, (place, "preposition")) + _noun(place.landmark)


def _noun(phrase: Phrase | Mention, many: str = "des") -> list[Word]:
    """A noun phrase; `many` is the article of a plural that has none in English."""
    if isinstance(phrase, Mention):
        return spell(phrase.pronoun.french, (phrase, "pronoun"))
    noun = phrase.noun
    words = spell(noun.french_plural if phrase.plural else noun.french, (phrase, "noun"))
    for adjective in phrase.adjectives:
        meaning = (phrase, adjective.english)
        if adjective.before:
            vowel = _begins_with_vowel(words[0].text)
            words = spell(_form(adjective, noun.gender, plural=phrase.plural, vowel=vowel), meaning) + words
        else:
            words += spell(_form(adjective, noun.gender, plural=phrase.plural), meaning)
    numeral = spell(phrase.numeral.french, (phrase, "numeral")) if phrase.numeral else []
    words = _determiner(phrase, words, many) + numeral + words
    modifier = phrase.modifier
    if not isinstance(modifier, Relative):
        return words + (_place(modifier) if modifier else [])
    if modifier.subject is None:
        return words + spell("qui", (modifier, "that")) + _action(modifier.action, [], [], plural=phrase.plural)
    words += spell("que", (modifier, "that")) + _noun(modifier.subject)
    return words + _action(modifier.action, [], [], plural=modifier.subject.plural)


def _determiner(phrase: Phrase, words: list[Word], many: str) -> list[Word]:
    """The determiner of a phrase whose other words, without the numeral, are given."""
    masculine, feminine, plural, masculine_vowel, feminine_vowel = _forms(phrase.determiner.french)
    if phrase.plural and not phrase.determiner.definite:
        if phrase.numeral:
            return []
        adjective_first = any(adjective.before for adjective in phrase.adjectives)
        form = "de" if many == "des" and adjective_first else many
    elif phrase.plural:
        form = plural
    elif _begins_with_vowel(words[0].text):
        form = masculine_vowel if phrase.noun.gender == "m" else feminine_vowel
    else:
        form = masculine if phrase.noun.gender == "m" else feminine
    return spell(form, (phrase, "determiner"))


@cache
def _forms(cell: str) -> tuple[str, ...]:
    return tuple(cell.split())


def _form(adjective: Adjective, gender: str, *, plural: bool, vowel: bool = False) -> str:
    forms = _forms(adjective.french)
    if vowel and gender == "m" and not plural and len(forms) > 4:
        return forms[4]
    return forms[(gender == "f") + 2 * plural]
