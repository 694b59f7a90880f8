"""What the grammar says in each language, against sentences and alignments that a person wrote."""

import pytest

from regard.data import words
from regard.data.grammar import LANGUAGES, english, lexicon
from regard.data.grammar.meaning import Action, Clause, Mention, Phrase, Place, Quality, Relative, Sentence
from regard.data.grammar.parallel import SPEAKERS, SentenceSampler, translate

TABLES = [table for table in vars(lexicon).values() if isinstance(table, tuple)]
ROWS = {row.english: row for table in TABLES for row in table}


def phrase(text, modifier=None, plural=False):
    """ "the two small cat" as a phrase: determiner, numeral, adjectives, noun by their rows."""
    determiner, *middle, noun = (ROWS[word] for word in text.split())
    numeral = next((row for row in middle if row in lexicon.NUMERALS), None)
    adjectives = tuple(row for row in middle if row in lexicon.ADJECTIVES)
    return Phrase(noun, determiner, plural or numeral is not None, numeral, adjectives, modifier)


def place(preposition, text, **options):
    return Place(ROWS[preposition], phrase(text, **options))


def who(name):
    return Mention(ROWS[name])


def does(verb, thing=None, where=None):
    return Action(ROWS[verb], thing, where)


def pair_of(sentence, language):
    return translate(sentence, english.say(sentence), language)


SENTENCES = {  # English: French, Chinese, meaning
    "the cat is on the mat": (
        "le chat est sur le tapis",
        "猫 在 垫子 上",
        Clause(phrase("the cat"), place("on", "the mat")),
    ),
    "does the boy see the red car?": (
        "est-ce que le garçon voit la voiture rouge ?",
        "男孩 看见 红色 的 汽车 了 吗 ？",
        Clause(phrase("the boy"), does("see", phrase("the red car")), question=True),
    ),
    "the dog that sees the cat is old": (
        "le chien qui voit le chat est vieux",
        "那 只 看见 猫 的 狗 很 老",
        Clause(phrase("the dog", Relative(does("see", phrase("the cat")))), Quality(ROWS["old"])),
    ),
    "the cat that a man sees is very happy": (
        "le chat qu'un homme voit est très heureux",
        "一 个 男人 看见 的 那 只 猫 非常 快乐",
        Clause(phrase("the cat", Relative(does("see"), phrase("a man"))), Quality(ROWS["happy"], very=True)),
    ),
    "the girl sees him": ("la fille le voit", "女孩 看见 了 他", Clause(phrase("the girl"), does("see", who("him")))),
    "these girls do not help her": (
        "ces filles ne l'aident pas",
        "这些 女孩 不 帮助 她",
        Clause(phrase("this girl", plural=True), does("help", who("her")), negated=True),
    ),
    "she does not have dogs": (
        "elle n'a pas de chiens",
        "她 没 有 狗",
        Clause(who("she"), does("have", phrase("a dog", plural=True)), negated=True),
    ),
    "he likes small dogs": (
        "il aime les petits chiens",
        "他 喜欢 小 狗",
        Clause(who("he"), does("like", phrase("a small dog", plural=True))),
    ),
    "he buys old books": (
        "il achète de vieux livres",
        "他 买 旧 书",
        Clause(who("he"), does("buy", phrase("a old book", plural=True))),
    ),
    "my two friends never eat oranges": (
        "mes deux amis ne mangent jamais d'oranges",
        "我 的 两 个 朋友 从不 吃 橙子",
        Clause(phrase("my two friend"), does("eat", phrase("a orange", plural=True)), adverb=ROWS["never"]),
    ),
    "an old white swallow sleeps near the lake": (
        "une vieille hirondelle blanche dort près du lac",
        "有 一 只 白色 的 老 燕子 在 湖 附近 睡觉",
        Clause(phrase("a old white swallow"), does("sleep", where=place("near", "the lake"))),
    ),
    "this beautiful tree is not next to the houses": (
        "ce bel arbre n'est pas à côté des maisons",
        "这 棵 漂亮 的 树 不 在 那些 房子 旁边",
        Clause(phrase("this beautiful tree"), place("next to", "the house", plural=True), negated=True),
    ),
    "my swallow is in a beautiful red box": (
        "mon hirondelle est dans une belle boîte rouge",
        "我 的 燕子 在 一 个 漂亮 的 红色 盒子 里",
        Clause(phrase("my swallow"), place("in", "a beautiful red box")),
    ),
    "the owl opposite the hotel looks for the three books": (
        "le hibou en face de l'hôtel cherche les trois livres",
        "酒店 对面 的 猫头鹰 找 那 三 本 书",
        Clause(phrase("the owl", place("opposite", "the hotel")), does("look", phrase("the three book"))),
    ),
    "the car is not white": (
        "la voiture n'est pas blanche",
        "汽车 不 是 白色 的",
        Clause(phrase("the car"), Quality(ROWS["white"]), negated=True),
    ),
    "she often reads the letter": (
        "elle lit souvent la lettre",
        "她 常常 读 信",
        Clause(who("she"), does("read", phrase("the letter")), adverb=ROWS["often"]),
    ),
    "every day, the child finds the key": (
        "chaque jour, l'enfant trouve la clé",
        "孩子 每天 找到 钥匙",
        Clause(phrase("the child"), does("find", phrase("the key")), time=ROWS["every day"]),
    ),
}


def check_sentence(sentence, source, targets):
    for language, target in zip(LANGUAGES, targets, strict=True):
        pair = pair_of(sentence, language)
        assert (pair.source, pair.target) == (source, target)


@pytest.mark.parametrize("text", SENTENCES)
def test_every_construction_in_each_language(text):
    *targets, clause = SENTENCES[text]
    check_sentence(Sentence(clause), text, targets)


def test_two_clauses():
    first, second = Clause(phrase("the boy"), does("sing")), Clause(who("he"), does("laugh"))
    for link, french, chinese in [
        ("and", "le garçon chante et il rit.", "男孩 唱歌 ， 他 笑 。"),
        ("if", "le garçon chante s'il rit.", "如果 他 笑 ， 男孩 唱歌 。"),
        ("when", "le garçon chante quand il rit.", "他 笑 的 时候 ， 男孩 唱歌 。"),
        ("because", "le garçon chante parce qu'il rit.", "男孩 唱歌 ， 因为 他 笑 。"),
    ]:
        sentence = Sentence(first, ROWS[link], second, stop=True)
        check_sentence(sentence, f"the boy sings {link} he laughs.", [french, chinese])


def test_alignments_of_sentences_that_a_person_aligned():
    denied = Clause(phrase("the girl"), does("see", who("him")), negated=True)
    pair = pair_of(Sentence(denied), "fr")  # the girl does not see him: la fille ne le voit pas
    assert pair.alignment == {(0, 0), (1, 1), (2, 2), (3, 2), (2, 5), (3, 5), (4, 4), (5, 3)}
    near = Clause(phrase("the cat"), does("sleep", where=place("near", "the lake")))
    pair = pair_of(Sentence(near), "fr")  # the cat sleeps near the lake: le chat dort près du lac
    assert pair.alignment == {(0, 0), (1, 1), (2, 2), (3, 3), (3, 4), (4, 4), (5, 5)}
    pair = pair_of(Sentence(near), "zh")  # 猫 在 湖 附近 睡觉
    assert pair.alignment == {(1, 0), (3, 1), (5, 2), (3, 3), (2, 4)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_words_that_are_aligned_are_the_words_of_the_text(language):
    sampler, (say, write) = SentenceSampler(3), SPEAKERS[language]
    for _ in range(2003):
        sentence = sampler.sentence()
        for spoken, writer in ((english.say(sentence), english.write), (say(sentence), write)):
            assert words.split(writer(spoken)) == [word.text for word in spoken]
