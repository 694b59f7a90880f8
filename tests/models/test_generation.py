"""Generation: greedy, sampled, by beam search, in streams; for ids and for texts."""

import itertools
import math

import pytest
import torch

from regard import LanguageModel, Sampling
from regard.errors import RegardError
from regard.models.generation import beam_search, collect, sample
from regard.models.texts import CutWarning
from tests.models.cases import shaken, word_tokenizer


@pytest.fixture
def model():
    return shaken(LanguageModel(13, 24, 2, 4, max_positions=40, eos=2))


class Table:
    """The state of a model whose next token depends on the last one alone: log-probabilities (tokens, tokens)."""

    def __init__(self, log_p):
        self.log_p = log_p

    def select(self, rows):
        return self


def table_step(ids, state):
    return state.log_p[ids[:, -1]], state


def test_wide_beams_find_the_best_of_all():
    """Against every sequence there is."""
    tokens, limit, eos = 4, 4, 3
    log_p = torch.log_softmax(2 * torch.randn(tokens, tokens), -1)
    for penalty in (0.0, 0.7, 1.0):
        scored = {}
        for count in range(limit + 1):
            for middle in itertools.product(range(tokens - 1), repeat=count):
                path = (0, *middle, eos)[: limit + 1]
                total = sum(float(log_p[a, b]) for a, b in itertools.pairwise(path))
                scored[middle] = total / (len(path) - 1) ** penalty
        ((best, *_),) = beam_search(
            table_step, Table(log_p), log_p[:1], beam_size=64, max_new_tokens=limit, eos=eos, length_penalty=penalty
        )
        expected = max(scored, key=scored.get)
        assert tuple(best.ids) == expected
        assert math.isclose(best.score, scored[expected], abs_tol=1e-5)


def test_beams_follow_their_own_histories():
    log_p = torch.log_softmax(torch.randn(7, 7), -1)
    beams = beam_search(table_step, Table(log_p), log_p[:2], beam_size=3, max_new_tokens=5, eos=None)
    for first, hypotheses in enumerate(beams):
        assert len(hypotheses) == 3
        for hypothesis in hypotheses:
            total = sum(float(log_p[a, b]) for a, b in itertools.pairwise([first, *hypothesis.ids]))
            assert math.isclose(hypothesis.score, total / 5, abs_tol=1e-5)


def test_greedy_takes_the_likeliest(model):
    ids = torch.randint(13, (3, 5))
    for number, hypothesis in enumerate(model.generate(ids, max_new_tokens=12)):
        text = ids[number : number + 1]
        for token in [*hypothesis.ids, 2][:12]:
            with torch.no_grad():
                assert int(model(text)[0, -1].argmax()) == token
            text = torch.cat([text, torch.tensor([[token]])], 1)


def test_neighbours_do_not_matter(model):
    ids, lengths = torch.randint(13, (5, 9)), [9, 2, 5, 1, 7]
    for options in (
        {},
        {"beam_size": 3},
        {"sampling": Sampling(1.0, seed=3)},
        {"sampling": Sampling(0.8, top_k=5, top_p=0.9, seed=4)},
    ):
        together = model.generate(ids, lengths, max_new_tokens=11, **options)
        for number, count in enumerate(lengths):
            (alone,) = model.generate(ids[number : number + 1, :count], max_new_tokens=11, **options)
            assert alone.ids == together[number].ids, options
            assert abs(alone.score - together[number].score) < 1e-4


class Read:
    """The state of a model that reads the last tokens of each sequence again for every new one."""

    def __init__(self, model, sequences):
        self.model, self.sequences = model, sequences

    def select(self, rows):
        return Read(self.model, [self.sequences[row] for row in rows.tolist()])

    def logits(self):
        windows = [sequence[-self.model.config["max_positions"] :] for sequence in self.sequences]
        return torch.stack([self.model(torch.tensor([window]))[0, -1] for window in windows])


def read_step(ids, state):
    state = Read(state.model, [sequence + new for sequence, new in zip(state.sequences, ids.tolist(), strict=True)])
    return state.logits(), state


WINDOWS = {
    "learned": {},
    "rotary": {"positions": "rotary", "kv_heads": 2},
    "alibi": {"positions": "alibi"},
    "sinusoidal": {"positions": "sinusoidal"},
    "none": {"positions": "none"},
    "recurrent": {"mixer": "recurrent"},
    "convolution": {"mixer": "convolution"},
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_past_its_positions_a_model_sees_the_last_tokens(kind):
    """Prompts that are too long, just fit, fit by one, and do not matter; some end early, each beside the others."""
    limit, lengths, count = 11, [17, 11, 10, 2, 7], 23
    model = shaken(LanguageModel(13, 24, 2, 4, max_positions=limit, eos=2, **WINDOWS[kind]))
    ids, seeds = torch.randint(3, 13, (5, 17)), [1, 2, 3, 4, 5]
    prompts = [sequence[:length] for sequence, length in zip(ids.tolist(), lengths, strict=True)]
    naive = Read(model, prompts)
    for sampling in (None, Sampling(1.3, seed=seeds), Sampling(0.7, top_k=7, seed=seeds)):
        with pytest.warns(CutWarning, match="1 of 5 cut from up to 17 to 11 tokens"):
            ours = model.generate(ids, lengths, max_new_tokens=count, sampling=sampling)
        with torch.inference_mode():
            logits, steps = naive.logits(), {"sampling": sampling, "max_new_tokens": count, "eos": 2}
            same_hypotheses(ours, collect(sample(read_step, naive, logits, **steps), 5, 2))
    for penalty in (0.0, 1.0):
        options = {"beam_size": 3, "max_new_tokens": count, "length_penalty": penalty}
        with pytest.warns(CutWarning):
            beams = model.beam_search(ids, lengths, **options)
        with torch.inference_mode():
            for ours, theirs in zip(beams, beam_search(read_step, naive, logits, eos=2, **options), strict=True):
                same_hypotheses(ours, theirs)


def same_hypotheses(ours, theirs):
    assert [hypothesis.ids for hypothesis in ours] == [hypothesis.ids for hypothesis in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert math.isclose(one.score, other.score, abs_tol=1e-4)


def test_a_stream_slides_as_generate_does(model):
    model.config["eos"] = None
    model.tokenizer = word_tokenizer([f"w{number}" for number in range(12)])
    prompt = " ".join(["w1"] * 37)
    text = model.generate(prompt, max_new_tokens=53)
    assert len(text.split()) == 53
    assert "".join(model.stream(prompt, max_new_tokens=53)) == text


def test_long_prompts_are_cut_with_one_warning(model):
    """Of a prompt its end is read; of texts that are classified or embedded, their beginning."""
    model.tokenizer = word_tokenizer([f"w{number}" for number in range(12)])
    words = [f"w{number % 11}" for number in range(57)]
    for text, message in {
        " ".join(words): "prompt: cut from 57 to 40 tokens, as many as the model reads; the end is kept",
        ("w1", " ".join(words), " ".join(words[:41])): "prompt: 2 of 3 cut from up to 57 to 40 tokens",
    }.items():
        with pytest.warns(CutWarning) as caught:
            generated = model.generate(text, max_new_tokens=9)
        assert [str(warning.message).startswith(message) for warning in caught] == [True]
        for whole, after in zip(
            [text] if isinstance(text, str) else text, [generated] if isinstance(text, str) else generated, strict=True
        ):
            assert model.generate(" ".join(whole.split()[-40:]), max_new_tokens=9) == after
    with pytest.warns(CutWarning, match="prompt: cut from 57"):
        "".join(model.stream(" ".join(words), max_new_tokens=3))


def test_texts_give_texts_and_ids_give_hypotheses(model):
    model.tokenizer = word_tokenizer([f"w{number}" for number in range(12)])
    texts = ["w1 w2 w3", "w4"]
    generated = model.generate(texts, max_new_tokens=5)
    assert generated == [model.generate(text, max_new_tokens=5) for text in texts]
    ids = torch.tensor([model.tokenizer.encode(texts[0]).ids])
    (hypothesis,) = model.generate(ids, max_new_tokens=5)
    assert generated[0].split() == model.tokenizer.decode(hypothesis.ids).split()
    assert model.generate([]) == []
    with pytest.raises(ValueError, match="lengths"):
        model.generate(texts, [3, 1])


def test_an_empty_prompt_begins_with_bos():
    model = shaken(LanguageModel(13, 24, 2, 4, max_positions=40, bos=5))
    model.tokenizer = word_tokenizer([f"w{number}" for number in range(12)])
    (hypothesis,) = model.generate(torch.tensor([[5]]), max_new_tokens=7)
    text = model.generate("", max_new_tokens=7)
    assert text.split() == model.tokenizer.decode(hypothesis.ids).split()
    assert "".join(model.stream("", max_new_tokens=7)) == text
    model.config["bos"] = None
    with pytest.raises(ValueError, match="prompt: expected one token or more"):
        model.generate("")


def test_half_precision_chooses_among_the_same_tokens():
    logits = torch.linspace(0, 1, 32_000)[None].bfloat16()
    steps = sample(table_step, None, logits, sampling=Sampling(1.0, top_p=0.9, seed=1), max_new_tokens=1)
    ((_, token, log_probability),) = next(steps)
    assert abs(log_probability - float(torch.log_softmax(logits.float(), -1)[0, token])) < 1e-5


@pytest.mark.parametrize("options", [{}, {"sampling": Sampling(seed=0)}, {"beam_size": 3}])
def test_nothing_is_chosen_among_logits_that_are_no_numbers(options):
    model = LanguageModel(vocab_size=31, size=16, layers=1, heads=2)
    torch.nn.init.constant_(model.blocks[0].mixer.out_proj.weight, math.nan)
    with pytest.raises(RegardError, match="logits: expected numbers, got NaN"):
        model.generate(torch.tensor([[5, 6]]), max_new_tokens=2, **options)


def test_nothing_is_chosen_beside_one_sequence_without_numbers():
    log_p = torch.log_softmax(torch.randn(7, 7), -1)
    log_p[1] = math.nan
    with pytest.raises(RegardError, match="logits: expected numbers, got NaN"):
        list(sample(table_step, Table(log_p), log_p[:3], max_new_tokens=1))
    with pytest.raises(RegardError, match="logits: expected numbers, got NaN"):
        beam_search(table_step, Table(log_p), log_p[:3], beam_size=2, max_new_tokens=1, eos=None)


def test_forbidden_tokens_are_not_generated():
    logits = torch.randn(7, 7)
    steps = sample(table_step, Table(logits), logits[:1], max_new_tokens=9, forbidden={1, 4})
    (hypothesis,) = collect(steps, 1, None)
    assert len(hypothesis.ids) == 9
    assert not {1, 4} & set(hypothesis.ids)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(1.0), [0.5, 0.3, 0.15, 0.05]),
        (Sampling(1.0, top_k=2), [0.625, 0.375, 0, 0]),
        (Sampling(1.0, top_p=0.79), [0.625, 0.375, 0, 0]),
        (Sampling(1.0, top_p=0.81), [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        (Sampling(1.0, top_p=0.1), [1, 0, 0, 0]),
        (Sampling(0.5), [0.6849, 0.2466, 0.0616, 0.0068]),
    ],
)
def test_tokens_are_drawn_as_often_as_they_should(sampling, expected):
    """Within five standard deviations of 20,000 draws."""
    order = torch.tensor([2, 0, 3, 1])
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()[order].expand(20_000, 4) + 3.0
    generator = torch.Generator().manual_seed(5)
    drawn = order[sampling.draw(logits, [generator] * 20_000)]
    shares = torch.bincount(drawn, minlength=4) / 20_000
    for share, probability in zip(shares.tolist(), expected, strict=True):
        assert abs(share - probability) <= 5 * math.sqrt(probability * (1 - probability) / 20_000) + 1e-4


@pytest.mark.parametrize("temperature", [1e-3, 1e-40, 5e-324])
@pytest.mark.parametrize("given", [{}, {"top_p": 0.9}, {"top_k": 2}], ids=str)
def test_the_coldest_temperatures_take_the_likeliest_token(temperature, given):
    """Though a logit divided by them is beyond float32."""
    logits = torch.tensor([[3.0, 5.0, 4.0, -1.0]] * 7)
    generators = [torch.Generator().manual_seed(seed) for seed in range(7)]
    assert Sampling(temperature, **given).draw(logits, generators).tolist() == [1] * 7


@pytest.mark.parametrize(
    ("logits", "k", "expected"),
    [
        ([1.0, 1.0, 1.0, 1.0, 1.0], 2, {0, 1}),
        ([0.0, 2.0, 1.0, 1.0, 1.0], 3, {1, 2, 3}),
        ([1.0, 1.0, 2.0, 2.0, 2.0], 4, {0, 2, 3, 4}),
        ([-math.inf, 0.0, -math.inf, -math.inf, 0.0], 3, {1, 4}),
    ],
)
def test_top_k_of_equal_tokens_keeps_k(logits, k, expected):
    generator = torch.Generator().manual_seed(5)
    drawn = Sampling(1.0, top_k=k).draw(torch.tensor(logits).expand(300, 5), [generator] * 300)
    assert set(drawn.tolist()) == expected


def test_seeds(model):
    ids = torch.randint(13, (1, 5)).repeat(2, 1)

    def generate(seed):
        return model.generate(ids, max_new_tokens=20, sampling=Sampling(2.0, seed=seed))

    first, second = generate([1, 2])
    assert first.ids != second.ids
    assert generate([1, 2]) == [first, second]
    assert [hypothesis.ids for hypothesis in generate(1)] == [first.ids, first.ids]
    assert generate(None)[0] != generate(None)[0]


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
def test_wrong_samplings(options, word):
    with pytest.raises(ValueError, match=word):
        Sampling(**options)


def test_a_wrong_number_of_seeds(model):
    with pytest.raises(ValueError, match="seed: expected 2"):
        model.generate(torch.zeros(2, 3, dtype=torch.long), sampling=Sampling(1.0, seed=[1, 2, 3]))
