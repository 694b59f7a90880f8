"""A meaning in English."""

from __future__ import annotations

from regard.data.grammar.meaning import Action, Clause, Mention, Phrase, Place, Relative, Sentence, Word, spell


def say(sentence: Sentence) -> list[Word]:
    """The words of a sentence."""
    words = _clause(sentence.first)
    if sentence.link and sentence.second:
        words += spell(sentence.link.english, (sentence, "link")) + _clause(sentence.second)
    end = "?" if sentence.first.question else "." if sentence.stop else ""
    return words + spell(end, (sentence, "end"))


def write(words: list[Word]) -> str:
    """The text of the words: punctuation follows its word without a space."""
    text = " ".join([word.text for word in words])
    return text.replace(" ,", ",").replace(" .", ".").replace(" ?", "?")


def _clause(clause: Clause) -> list[Word]:
    time = spell(f"{clause.time.english} ,", (clause, "time")) if clause.time else []
    subject = _noun(clause.subject)
    adverb = spell(clause.adverb.english, (clause, "adverb")) if clause.adverb else []
    if isinstance(clause.predicate, Action):
        return time + _acting(clause, clause.predicate, subject, adverb)
    if isinstance(clause.predicate, Place):
        predicate = _place(clause.predicate)
    else:
        very = spell("very", (clause, "very")) if clause.predicate.very else []
        predicate = very + spell(clause.predicate.adjective.english, (clause, "quality"))
    verb = "are" if clause.subject.plural else "is"
    if clause.question:
        return [*time, Word(verb, ((clause, "question"), (clause, "be"))), *subject, *adverb, *predicate]
    negation = spell("not", (clause, "not")) if clause.negated else []
    return [*time, *subject, Word(verb, ((clause, "be"),)), *negation, *adverb, *predicate]


def _acting(clause: Clause, action: Action, subject: list[Word], adverb: list[Word]) -> list[Word]:
    auxiliary = "do" if clause.subject.plural else "does"
    if clause.question:
        return [*spell(auxiliary, (clause, "question")), *subject, *adverb, *_action(action, third=False)]
    if clause.negated:
        return [*subject, *spell(f"{auxiliary} not", (clause, "not")), *_action(action, third=False)]
    return [*subject, *adverb, *_action(action, third=not clause.subject.plural)]


def _action(action: Action, *, third: bool) -> list[Word]:
    verb = action.verb.english_third if third else action.verb.english
    words = spell(f"{verb} {action.verb.particle}", (action, "verb"))
    if action.object:
        words += _noun(action.object)
    return words + (_place(action.place) if action.place else [])


def _place(place: Place) -> list[Word]:
    return spell(place.preposition.english, (place, "preposition")) + _noun(place.landmark)


def _noun(phrase: Phrase | Mention) -> list[Word]:
    if isinstance(phrase, Mention):
        return spell(phrase.pronoun.english, (phrase, "pronoun"))
    words = spell(phrase.numeral.english, (phrase, "numeral")) if phrase.numeral else []
    for adjective in phrase.adjectives:
        words += spell(adjective.english, (phrase, adjective.english))
    words += spell(phrase.noun.english_plural if phrase.plural else phrase.noun.english, (phrase, "noun"))
    determiner = phrase.determiner.english_plural if phrase.plural else phrase.determiner.english
    if determiner == "a" and words[0].text[0] in "aeiou":
        determiner = "an"
    words = spell(determiner, (phrase, "determiner")) + words
    modifier = phrase.modifier
    if isinstance(modifier, Relative):
        subject = _noun(modifier.subject) if modifier.subject else []
        plural = modifier.subject.plural if modifier.subject else phrase.plural
        return words + spell("that", (modifier, "that")) + subject + _action(modifier.action, third=not plural)
    return words + (_place(modifier) if modifier else [])
