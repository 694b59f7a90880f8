"""Claim 18 on verses: a tiny sample of them goes through the code of --full."""

from itertools import product

import pytest
import torch

from regard.data.pairs import read_pairs
from regard.data.split import part
from regard.data.words import split
from regard.models.translator import Alignment
from regard.tour.section import Outcome, Text, verdict
from regard.tour.sections import claim_18_every_step_has_its_own_context as claim_18

WORDS = {
    "subject": {"θεὸς": "God", "λόγος": "word", "ἄνθρωπος": "man", "υἱὸς": "son", "πατὴρ": "father"},
    "verb": {"λέγει": "speaks", "ἔρχεται": "comes", "γινώσκει": "knows"},
    "adverb": {"νῦν": "now", "ἐκεῖ": "there", "πάλιν": "again", "οὕτως": "thus"},
}


def verses():
    """Sentences such as νῦν λέγει ὁ θεὸς, in English in the opposite order, with the line of their links."""
    for subject, verb, adverb in product(*(kind.items() for kind in WORDS.values())):
        yield f"{adverb[0]} {verb[0]} ὁ {subject[0]}\tThe {subject[1]} {verb[1]} {adverb[1]}.", "0-3 1-2 2-0 3-1"


@pytest.fixture
def sample(cache):
    """The verses, where the fetched ones would be."""
    folder = cache.parent / claim_18.VERSES
    folder.mkdir(parents=True)
    for name, lines in zip(("pairs.tsv", "alignments.txt"), zip(*verses(), strict=True), strict=True):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def outcome(numbers):
    return verdict(list(claim_18.judge(numbers)))


def test_claim_18_translators_of_verses_that_have_learned_nothing_look_everywhere(sample):
    numbers, chart = claim_18.run_on_verses(2, range(2), size=8, hidden_size=8, vocab_size=300)
    assert vars(numbers).keys() == claim_18.SECTION.meanings.keys()
    held_out = [verse for verse, _ in verses() if part(verse.split("\t")[0]) != "train"]
    assert numbers.sentences == len(held_out) > 0
    assert len(numbers.errors) == len(numbers.moved) == 2
    assert chart.panels[0].x.en == "Greek, looked at"
    assert outcome(numbers) is Outcome.DID_NOT_HOLD
    again, _ = claim_18.run_on_verses(2, range(2), size=8, hidden_size=8, vocab_size=300)
    assert again == numbers


def test_claim_18_holds_where_every_word_looks_at_the_one_that_it_is_linked_with(sample):
    pairs = claim_18.read_aligned_pairs(sample)
    alignments = []
    for pair in pairs:
        source, target = split(pair.source), split(pair.target)
        weights = torch.zeros(len(target), len(source))
        for left, right in pair.alignment:
            weights[right, left] = 1.0
        weights[-1] = 1 / len(source)  # of the full stop
        alignments.append(Alignment(source, target, weights))
    numbers, _ = claim_18.compare(pairs, [alignments] * 2, (Text("Greek", "希腊语"), Text("English", "英语")))
    assert outcome(numbers) is Outcome.HELD
    assert max(numbers.errors) < 0.2 < numbers.diagonal


def test_no_unseen_verse_is_one_that_was_learned_from(sample):
    options = claim_18.TranslateOptions(data=str(sample / "pairs.tsv"), **claim_18.VERSE_OPTIONS)
    task = claim_18.prepare(options, claim_18.Tokenizers())
    sources = [pair.source for pair in read_pairs(sample / "pairs.tsv")]
    held_out = [pair.source for stored in (task.validation, task.test) for pair in stored.texts()]
    assert sorted(held_out) == sorted(source for source in sources if part(source) != "train")
    assert len(task.train) == len(sources) - len(held_out) > 45
