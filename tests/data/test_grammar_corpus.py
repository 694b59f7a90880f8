"""The corpus of the grammar: agreement, alignment, one translation per sentence, and what training never sees."""

import os
import re
import subprocess
import sys
from collections import Counter
from itertools import chain, pairwise

import pytest

from regard.data import words
from regard.data.grammar import LANGUAGES, GrammarError, corpus, english, lexicon
from regard.data.grammar.parallel import SentenceSampler, combinations, is_held_out, translate


@pytest.fixture(scope="module")
def corpora():
    return {language: corpus(language) for language in LANGUAGES}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_noun_is_aligned_with_its_translation_and_nothing_else(corpora, language):
    nouns = {form: noun for noun in lexicon.NOUNS for form in (noun.english, noun.english_plural)}
    checked = 0
    for pair in corpora[language].test:
        source, target = words.split(pair.source), words.split(pair.target)
        assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in pair.alignment)
        for index, word in enumerate(source):
            if word in nouns:
                noun, plural = nouns[word], word == nouns[word].english_plural
                french = noun.french_plural if plural else noun.french
                expected = french if language == "fr" else noun.chinese
                assert [target[j] for i, j in pair.alignment if i == index] == [expected]
                checked += 1
    assert checked > len(corpora[language].test)


@pytest.mark.parametrize("language", LANGUAGES)
def test_word_order_differs_and_few_words_are_left_alone(corpora, language):
    pairs = corpora[language].test
    crossed = sum(any(i < k and j > n for i, j in pair.alignment for k, n in pair.alignment) for pair in pairs)
    assert crossed > len(pairs) / 2
    aligned = sum(len({j for _, j in pair.alignment}) for pair in pairs)
    assert aligned > 0.95 * sum(len(words.split(pair.target)) for pair in pairs)


def test_one_english_sentence_has_one_translation():
    translations, repeated, sampler = {}, 0, SentenceSampler(5)
    for _ in range(20011):
        sentence = sampler.sentence()
        source = english.say(sentence)
        pairs = [translate(sentence, source, language) for language in LANGUAGES]
        before = translations.setdefault(pairs[0].source, pairs)
        repeated += before is not pairs
        assert before == pairs
    assert repeated > 200


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_parts_have_their_sizes_and_share_no_sentence(corpora, language):
    parts = corpora[language]
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (18_000, 1_000, 1_000)
    sources = [pair.source.removesuffix(".") for pair in parts.train + parts.validation + parts.test]
    assert len(set(sources)) == 20_000
    assert parts.test[0].source == "the cat is on the mat"
    assert all(text == text.lower() for pair in parts.train for text in (pair.source, pair.target))
    assert [pair.source for pair in parts.train] == [pair.source for pair in corpora["fr"].train]


def test_held_out_combinations_are_in_all_of_the_test_and_none_of_training():
    parts, sampler, sentences = corpus("fr", 2003, 3), SentenceSampler(3), {}
    for _ in range(3001):
        sentence = sampler.sentence()
        sentences.setdefault(english.write(english.say(sentence)), sentence)

    def has_held_out(pair):
        return any(is_held_out(*combination) for combination in combinations(sentences[pair.source]))

    assert not any(map(has_held_out, parts.train))
    assert all(map(has_held_out, parts.validation + parts.test[1:]))


def test_one_combination_in_twenty_is_held_out_and_on_the_mat():
    every = [(row.english, noun.english) for row in lexicon.ADJECTIVES for noun in lexicon.NOUNS]
    assert 0.03 < sum(is_held_out(*combination) for combination in every) / len(every) < 0.07
    assert is_held_out("on", "mat")


def test_no_adjective_stands_before_a_noun_that_is_held_out_with_it(corpora):
    singular = {form: noun.english for noun in lexicon.NOUNS for form in (noun.english, noun.english_plural)}
    adjectives = {adjective.english for adjective in lexicon.ADJECTIVES}

    def count(pairs):
        neighbours = [bigram for pair in pairs for bigram in pairwise(words.split(pair.source))]
        return sum(a in adjectives and n in singular and is_held_out(a, singular[n]) for a, n in neighbours)

    assert count(corpora["fr"].train) == 0
    assert count(corpora["fr"].test) > 100


def forms(row):
    """Every word of a row, by language."""
    cells = {name: str(cell).split() for name, cell in vars(row).items()}
    yield "en", cells["english"] + cells.get("english_plural", []) + cells.get("english_third", [])
    yield "fr", cells["french"] + cells.get("french_plural", [])
    chinese = cells["chinese"] + cells.get("living", []) + cells.get("measure", [])
    yield "zh", [word for word in chinese if word not in "12"]  # where a link puts its clauses


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_form_of_every_word_is_in_training(corpora, language):
    parts = corpora[language]
    source = Counter(word for pair in parts.train for word in words.split(pair.source))
    target = Counter(word for pair in parts.train for word in words.split(pair.target))
    for row in chain.from_iterable(table for table in vars(lexicon).values() if isinstance(table, tuple)):
        for side, cells in forms(row):
            known = {"en": source, language: target}.get(side)
            missing = [] if known is None else [word for word in cells if not known[word]]
            assert not missing, row
    for pair in parts.validation + parts.test:
        assert source.keys() >= set(words.split(pair.source))
        assert target.keys() >= set(words.split(pair.target))


def test_french_elides_and_contracts(corpora):
    vowel = r"([aeiouâéèêîôœ]|h(?!ibou))"
    changing = [noun.french for noun in lexicon.NOUNS if re.match(vowel, noun.french) and noun.french != "ours"]
    wrong = [
        rf"\b(le|la|de|ne|que|me|te|ce|ma|ta|sa) {vowel}",
        rf"\b(beau|vieux|nouveau) ({'|'.join(changing)})\b",
        r"'hibou",
        r"\bde les? ",
        r"\bsi il\b",
        r"' ",
        r"\b(bel|vieil|nouvel|cet) (?![aeiouâéèêîôœh]|bel |vieil )",
    ]
    pattern = re.compile("|".join(wrong))
    assert not [pair.target for pair in corpora["fr"].train if pattern.search(pair.target)]
    assert pattern.search("le ami")
    assert pattern.search("près de le lac")
    assert not pattern.search("le hibou de l'ami")


def test_french_determiners_and_adjectives_agree(corpora):
    nouns, allowed, adjectives = {}, {}, {}
    for noun in lexicon.NOUNS:
        nouns.setdefault(noun.french, set()).add("masculine" if noun.gender == "m" else "feminine")
        nouns.setdefault(noun.french_plural, set()).add("masculines" if noun.gender == "m" else "feminines")
    del nouns["lit"]  # a bed or a verb
    for kinds, forms in {
        "masculine": "le un ce cet du bel vieil nouvel",
        "feminine": "la une cette ma ta sa",
        "masculines feminines": "les des ces mes tes ses nos deux trois quatre cinq",
    }.items():
        allowed |= {form: set(kinds.split()) for form in forms.split()}
    for adjective in lexicon.ADJECTIVES:
        four = adjective.french.split()[:4]
        for form, kind in zip(four, ["masculine", "feminine", "masculines", "feminines"], strict=True):
            adjectives.setdefault(form, set()).add(kind)
    checked = Counter()
    for pair in corpora["fr"].train:
        target = ["", *words.split(pair.target), ""]
        for before, word, after in zip(target, target[1:], target[2:], strict=False):
            for neighbour, table in ((before, allowed), (before, adjectives), (after, adjectives)):
                if word in nouns and neighbour in table:
                    assert nouns[word] & table[neighbour], pair.target
                    checked[neighbour] += 1
    assert min(checked[form] for form in allowed) > 10
    assert checked.keys() >= adjectives.keys()


def test_chinese_counts_with_the_measure_word_of_the_noun(corpora):
    measures = {noun.chinese: noun.measure for noun in lexicon.NOUNS}
    describing = {word for row in lexicon.ADJECTIVES for word in f"{row.chinese} {row.living}".split()}
    checked = 0
    for pair in corpora["zh"].train:
        target = words.split(pair.target)
        for index, word in enumerate(target):
            if word in ("一", "两", "三", "四", "五"):
                noun = next(word for word in target[index + 2 :] if word not in describing)
                if noun in measures:  # else a clause stands in between
                    assert target[index + 1] == measures[noun], pair.target
                    checked += 1
    assert checked > 1000


def test_sentences_are_short_and_long(corpora):
    lengths = [len(words.split(pair.source)) for pair in corpora["fr"].train]
    assert (min(lengths), max(lengths)) == (3, 25)
    assert 9 <= sum(lengths) / len(lengths) <= 10
    assert sum(len(words.split(pair.source)) > 16 for pair in corpora["fr"].test) > 150
    stopped = [pair for pair in corpora["fr"].train if not pair.source.endswith("?")]
    assert 0.45 < sum(pair.source.endswith(".") for pair in stopped) / len(stopped) < 0.55
    assert all(pair.source.endswith(".") == pair.target.endswith(".") for pair in stopped)


def test_the_same_corpus_in_every_process_and_another_for_another_seed():
    parts = corpus("fr", 211, 7)
    here = [(pair.source, pair.target, sorted(pair.alignment)) for pair in parts.train + parts.validation + parts.test]
    code = """if True:
        from regard.data.grammar import corpus
        parts = corpus("fr", 211, 7)
        pairs = parts.train + parts.validation + parts.test
        print(ascii([(pair.source, pair.target, sorted(pair.alignment)) for pair in pairs]))
    """
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == ascii(here)
    assert corpus("fr", 211, 8).train != parts.train


def test_what_cannot_be_made_is_refused():
    with pytest.raises(GrammarError, match="language: expected one of fr, zh, got 'de'"):
        corpus("de")
    with pytest.raises(GrammarError, match="count: expected 100 to 1000000 sentences, got 7"):
        corpus("fr", 7)
