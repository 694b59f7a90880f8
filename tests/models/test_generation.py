"""Writing on: greedy, sampled, by beams, in streams."""

import itertools
import math

import pytest
import torch

from regard.models import LanguageModel, Sampling
from regard.models.generation import beams, followed, sampled
from tests.models.test_folders import word_tokenizer
from tests.models.test_properties import shaken


@pytest.fixture
def model():
    return shaken(LanguageModel(13, 24, 2, 4, max_positions=40, eos=2))


class Table:
    """A model whose next word depends on the last one alone: log-probabilities (words, words)."""

    def __init__(self, chances, rows):
        self.chances, self.rows = chances, rows

    def select(self, rows):
        return Table(self.chances, [self.rows[row] for row in rows.tolist()])


def table_step(ids, state):
    rows = [(*before, int(word)) for before, word in zip(state.rows, ids[:, -1], strict=True)]
    return state.chances[ids[:, -1]], Table(state.chances, rows)


def test_wide_beams_find_the_best_of_all():
    """Against every sequence there is."""
    words, most, end = 4, 4, 3
    chances = torch.log_softmax(2 * torch.randn(words, words), -1)
    for penalty in (0.0, 0.7, 1.0):
        scored = {}
        for count in range(most):
            for middle in itertools.product(range(words - 1), repeat=count):
                path = (0, *middle, end)
                total = sum(float(chances[a, b]) for a, b in itertools.pairwise(path))
                scored[middle] = total / (count + 1) ** penalty
        for middle in itertools.product(range(words - 1), repeat=most):
            total = sum(float(chances[a, b]) for a, b in itertools.pairwise((0, *middle)))
            scored[middle] = total / most**penalty
        ((best, *_),) = beams(
            table_step,
            Table(chances, [()]),
            chances[:1],
            beam_size=64,
            max_new_tokens=most,
            end=end,
            length_penalty=penalty,
        )
        expected = max(scored, key=scored.get)
        assert tuple(best.ids) == expected
        assert math.isclose(best.score, scored[expected], abs_tol=1e-5)


def test_beams_follow_their_own_histories():
    chances = torch.log_softmax(torch.randn(7, 7), -1)
    found = beams(table_step, Table(chances, [(), ()]), chances[:2], beam_size=3, max_new_tokens=5, end=None)
    for hypotheses, first in zip(found, (0, 1), strict=True):
        assert len(hypotheses) == 3
        for own in hypotheses:
            total = sum(float(chances[a, b]) for a, b in itertools.pairwise([first, *own.ids]))
            assert math.isclose(own.score, total / 5, abs_tol=1e-5)


def test_greedy_takes_the_likeliest(model):
    ids = torch.randint(13, (3, 5))
    found = model.write(ids, max_new_tokens=12)
    for number, hypothesis in enumerate(found):
        own = ids[number : number + 1]
        for word in [*hypothesis.ids, 2][:12]:
            with torch.no_grad():
                assert int(model(own)[0, -1].argmax()) == word
            own = torch.cat([own, torch.tensor([[word]])], 1)


def test_neighbours_do_not_matter(model):
    ids, lengths = torch.randint(13, (5, 9)), [9, 2, 5, 1, 7]
    for options in (
        {},
        {"beam_size": 3},
        {"choice": Choice(1.0, seed=3)},
        {"choice": Choice(0.8, top_k=5, top_p=0.9, seed=4)},
    ):
        together = model.write(ids, lengths, max_new_tokens=11, **options)
        for number, count in enumerate(lengths):
            (alone,) = model.write(ids[number : number + 1, :count], max_new_tokens=11, **options)
            assert alone.ids == together[number].ids, options
            assert abs(alone.score - together[number].score) < 1e-4


def test_the_model_stops_at_its_maximum(model):
    ids = torch.randint(13, (1, 37))
    model.config["eos"] = None
    assert len(model.write(ids, max_new_tokens=100)[0].ids) == 4  # the last word needs no place
    assert len(model.write(ids, max_new_tokens=100, beam_size=2)[0].ids) == 4


def test_the_maximum_is_each_sequences_own(model):
    """A short prompt may write on beside a long one, and a stream ends where `generate` does."""
    model.config["eos"] = None
    ids = torch.randint(13, (2, 38))
    for options in ({}, {"beam_size": 2}):
        long, short = model.write(ids, [38, 4], max_new_tokens=20, **options)
        assert (len(long.ids), len(short.ids)) == (3, 20)
        assert model.write(ids[1:, :4], max_new_tokens=20, **options)[0].ids == short.ids
    model.tokenizer = word_tokenizer([f"w{number}" for number in range(12)])
    prompt = " ".join(["w1"] * 37)
    assert "".join(model.stream(prompt, max_new_tokens=99)) == model.generate(prompt, max_new_tokens=99)
    assert model.generate([]) == []


def test_half_precision_chooses_among_the_same_words():
    logits = torch.linspace(0, 1, 32_000)[None].bfloat16()
    steps = sampled(lambda *_: None, None, logits, sampling=Sampling(1.0, top_p=0.9, seed=1), max_new_tokens=1)
    ((_, word, chance),) = next(steps)
    expected = torch.log_softmax(logits.float(), -1)[0, word]
    assert abs(chance - float(expected)) < 1e-5


def test_forbidden_words_are_not_written():
    chances = torch.randn(7, 7)
    steps = sampled(
        table_step, Table(chances, [()]), chances[:1], sampling=Sampling(0.0), max_new_tokens=9, forbidden={1, 4}
    )
    (written,) = followed(steps, 1, None, 1.0)
    assert not {1, 4} & set(written.ids)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Sampling(1.0), [0.5, 0.3, 0.15, 0.05]),
        (Sampling(1.0, top_k=2), [0.625, 0.375, 0, 0]),
        (Sampling(1.0, top_p=0.79), [0.625, 0.375, 0, 0]),
        (Sampling(1.0, top_p=0.81), [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        (Sampling(1.0, top_p=0.1), [1, 0, 0, 0]),
        (Sampling(0.5), [0.6849, 0.2466, 0.0616, 0.0068]),
    ],
)
def test_words_are_drawn_as_often_as_they_should(choice, expected):
    """Within five standard deviations of 20,000 draws."""
    order = torch.tensor([2, 0, 3, 1])
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()[order].expand(20_000, 4) + 3.0
    generator = torch.Generator().manual_seed(5)
    drawn = order[choice.draw(logits, [generator] * 20_000)]
    shares = torch.bincount(drawn, minlength=4) / 20_000
    for share, chance in zip(shares.tolist(), expected, strict=True):
        assert abs(share - chance) <= 5 * math.sqrt(chance * (1 - chance) / 20_000) + 1e-4


def test_seeds(model):
    ids = torch.randint(13, (1, 5)).repeat(2, 1)
    hot = {"most": 20}
    first, second = model.write(ids, sampling=Sampling(2.0, seed=[1, 2]), **hot)
    assert first.ids != second.ids
    assert model.write(ids, sampling=Sampling(2.0, seed=[1, 2]), **hot) == [first, second]
    same, again = model.write(ids, sampling=Sampling(2.0, seed=1), **hot)
    assert same.ids == again.ids == first.ids
    assert model.write(ids, sampling=Sampling(2.0), **hot)[0] != model.write(ids, sampling=Sampling(2.0), **hot)[0]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": 1.0, "top_k": 0}, "top_k"),
        ({"temperature": 1.0, "top_p": 0.0}, "top_p"),
        ({"temperature": 1.0, "top_p": 1.5}, "top_p"),
    ],
)
def test_wrong_choices(options, word):
    with pytest.raises(ValueError, match=word):
        Sampling(**options)


def test_a_wrong_number_of_seeds(model):
    with pytest.raises(ValueError, match="seed: expected 2"):
        model.write(torch.zeros(2, 3, dtype=torch.long), sampling=Sampling(1.0, seed=[1, 2, 3]))
