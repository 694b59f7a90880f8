"""A meaning in Chinese: measure words, everything that describes a noun before it, places before the verb."""

from __future__ import annotations

from collections.abc import Sequence

from regard.data.grammar.lexicon import Adjective
from regard.data.grammar.meaning import Action, Clause, Mention, Phrase, Place, Relative, Sentence, Word, spell


def say(sentence: Sentence) -> list[Word]:
    """The words of a sentence."""
    link, words = sentence.link, []
    if link and sentence.second:
        for part in link.chinese.split():
            if part in "12":
                words += _clause(sentence.first if part == "1" else sentence.second, over=not link.open)
            else:
                words += spell(part, (sentence, "link"))
    else:
        words = _clause(sentence.first, over=True)
    end = "？" if sentence.first.question else "。" if sentence.stop else ""
    return words + spell(end, (sentence, "end"))


def write(words: list[Word]) -> str:
    """The text of the words, with spaces between them."""
    return " ".join([word.text for word in words])


def _clause(clause: Clause, *, over: bool) -> list[Word]:
    """A clause; `over`: it is about one occasion, so that an event in it is over."""
    words = _noun(clause.subject)
    if isinstance(clause.subject, Phrase) and not clause.subject.determiner.definite:
        words = spell("有", (clause.subject, "determiner")) + words
    if clause.time:
        words += spell(clause.time.chinese, (clause, "time"))
    if clause.adverb:
        words += spell(clause.adverb.chinese, (clause, "adverb"))
    words += _predicate(clause, over=over and not (clause.negated or clause.time or clause.adverb))
    return words + (spell("吗", (clause, "question")) if clause.question else [])


def _predicate(clause: Clause, *, over: bool) -> list[Word]:
    predicate = clause.predicate
    if isinstance(predicate, Action):
        negation = spell(predicate.verb.negation, (clause, "not")) if clause.negated else []
        done = spell("了", (predicate, "verb")) if over and predicate.verb.sort == "event" else []
        if clause.question:
            return negation + _action(predicate) + done
        return negation + _action(predicate, done)
    negation = spell("不", (clause, "not")) if clause.negated else []
    if isinstance(predicate, Place):
        return negation + spell("在", (clause, "be")) + _place(predicate)
    adjective = spell(_adjective(predicate.adjective, clause.subject), (clause, "quality"))
    if predicate.adjective.colour:
        return negation + spell("是", (clause, "be")) + adjective
    adjective = adjective[:1]  # 的 is for what stands before a noun
    if clause.negated or clause.question:
        return negation + adjective
    return (spell("非常", (clause, "very")) if predicate.very else spell("很", (clause, "be"))) + adjective


def _action(action: Action, done: Sequence[Word] = ()) -> list[Word]:
    words = []
    if action.place:
        words = spell("在", (action.place, "preposition")) + _place(action.place)
    words += [*spell(action.verb.chinese, (action, "verb")), *done]
    return words + (_noun(action.object) if action.object else [])


def _place(place: Place) -> list[Word]:
    return _noun(place.landmark) + spell(place.preposition.chinese, (place, "preposition"))


def _adjective(adjective: Adjective, subject: Phrase | Mention) -> str:
    living = isinstance(subject, Mention) or bool({"person", "animal"} & set(subject.noun.kinds.split()))
    return adjective.living if living and adjective.living else adjective.chinese


def _noun(phrase: Phrase | Mention) -> list[Word]:
    """A noun phrase. Clauses with a subject of their own and places come first of all: 狗 看见 的 那 只 猫."""
    if isinstance(phrase, Mention):
        return spell(phrase.pronoun.chinese, (phrase, "pronoun"))
    outer: list[Word] = []
    inner: list[Word] = []
    modifier = phrase.modifier
    if isinstance(modifier, Relative):
        that = spell("的", (modifier, "that"))
        if modifier.subject:
            outer = _noun(modifier.subject) + _action(modifier.action) + that
        else:
            inner = _action(modifier.action) + that
    elif modifier:
        outer = [*_place(modifier), Word("的")]
    return outer + _determiner(phrase) + inner + _adjectives(phrase) + spell(phrase.noun.chinese, (phrase, "noun"))


def _determiner(phrase: Phrase) -> list[Word]:
    determiner, meaning = phrase.determiner, (phrase, "determiner")
    number: list[Word] = []
    if phrase.numeral:
        number = spell(f"{phrase.numeral.chinese} {phrase.noun.measure}", (phrase, "numeral"))
    if determiner.owner:
        return spell(determiner.chinese, meaning) + number
    if number:
        return (spell(determiner.chinese, meaning) if determiner.definite else []) + number
    if phrase.plural:
        return spell(f"{determiner.chinese}些", meaning) if determiner.definite else []
    if determiner.english == "the" and not isinstance(phrase.modifier, Relative):
        return []  # Chinese has no article; it points only where a clause describes
    return spell(f"{determiner.chinese} {phrase.noun.measure}", meaning)


def _adjectives(phrase: Phrase) -> list[Word]:
    """A short one stands next to the noun (红色 的 旧 汽车); two with 的 need it once (漂亮 的 红色 汽车)."""
    words = [spell(_adjective(adjective, phrase), (phrase, adjective.english)) for adjective in phrase.adjectives]
    if len(words) == 2 and len(words[0]) == 1:
        words.reverse()
    elif len(words) == 2:
        words[1].pop()
    return [word for adjective in words for word in adjective]
