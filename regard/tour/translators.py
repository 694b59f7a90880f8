"""Small translators from English to French that several sections look at: each is trained once, and cached.

They learn a small part of the grammar of `regard.data.grammar`, 41 English words in sentences of 5 to 14, in a few
seconds. No sentence of the test is one that they learn from, and in those nothing is on a mat.
"""

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

import regard
from regard.data.grammar import english, lexicon
from regard.data.grammar.meaning import Action, Clause, Phrase, Place, Sentence
from regard.data.grammar.parallel import combinations, translate
from regard.data.pairs import Pair
from regard.data.tokens import BOS, PAD, UNK, train_tokenizer
from regard.models.model import Model
from regard.models.seq2seq import Seq2Seq
from regard.models.texts import padded
from regard.models.translator import Alignment, align
from regard.tour import cache as store
from regard.tour.learning import train
from regard.tour.section import Need
from regard.training.metrics import bleu
from regard.training.tasks.translate import translate_all

SIZE, HIDDEN = 32, 64
BATCH = 32  # sentences of all lengths: batches of one length each take longer to learn from
LEARNING_RATES = {"none": 2e-2}  # of the others 1e-2; each learns best with its own
PATIENCE = 2  # a translator without attention gets so many times the steps
SENTENCES = 6_000  # to train on
LONGEST = 14  # English words


class Training(NamedTuple):
    """How translators are trained and tested."""

    steps: int  # with attention; without, PATIENCE times as many
    seeds: Sequence[int]  # a translator for each
    pairs: int  # of the test

    def translators(self, kind: str) -> Iterator[Seq2Seq]:
        """Those of a kind, for each seed."""
        return (translator(kind, seed, self.steps) for seed in self.seeds)


SHORT = Training(400, range(3), 400)
LONG = Training(1_500, range(5), 600)
REHEARSAL = Training(3, range(2), 25)

# ----------------------------------------------------------------------------------------------------- a small language

Row = TypeVar("Row", bound=lexicon.Noun | lexicon.Adjective | lexicon.Verb | lexicon.Preposition | lexicon.Link)
Choice = TypeVar("Choice")


def _rows(table: Sequence[Row], *names: str) -> tuple[Row, ...]:
    return tuple(row for row in table if row.english in names)


ANIMALS = _rows(lexicon.NOUNS, "cat", "dog", "cow", "bird", "horse", "goat")
THINGS = _rows(lexicon.NOUNS, "mat", "table", "chair", "bed", "bridge", "tree")
ADJECTIVES = _rows(lexicon.ADJECTIVES, "small", "big", "old")  # in French before the noun
COLOURS = _rows(lexicon.ADJECTIVES, "black", "white")  # and behind it
VERBS = _rows(lexicon.VERBS, "see", "hear", "chase", "help", "watch")
PREPOSITIONS = _rows(lexicon.PREPOSITIONS, "on", "under", "in front of")
LINKS = _rows(lexicon.LINKS, "and", "but")
DETERMINERS = lexicon.DETERMINERS[:3]  # the, a, this


class _Sampler:
    """Random sentences: an animal is somewhere or does something to another, with more or fewer adjectives.

    No noun, verb or preposition comes twice in a sentence.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random
        self._used: list[object] = []

    def sentence(self) -> Sentence:
        self._used = []
        richness = self._random()
        if self._random() < 0.6:
            return Sentence(self._clause(richness))
        return Sentence(self._clause(richness / 3), self._pick(LINKS), self._clause(richness / 3))

    def _pick(self, choices: Sequence[Choice]) -> Choice:
        return choices[int(self._random() * len(choices))]

    def _new(self, choices: Sequence[Choice]) -> Choice:
        choice = self._pick([choice for choice in choices if choice not in self._used])
        self._used.append(choice)
        return choice

    def _clause(self, richness: float) -> Clause:
        subject, shape, negated = self._phrase(ANIMALS, richness), self._random(), self._random() < 0.3
        if shape < 0.4:
            return Clause(subject, self._place(richness), negated)
        other, verb = self._phrase(ANIMALS, richness), self._new(VERBS)
        return Clause(subject, Action(verb, other, self._place(richness) if shape < 0.7 else None), negated)

    def _place(self, richness: float) -> Place:
        return Place(self._new(PREPOSITIONS), self._phrase(THINGS, richness))

    def _phrase(self, nouns: Sequence[lexicon.Noun], richness: float) -> Phrase:
        chosen = [self._pick(kind) for kind in (ADJECTIVES, COLOURS) if self._random() < richness]
        return Phrase(self._new(nouns), self._pick(DETERMINERS), adjectives=tuple(chosen))


def _sentences(seed: int) -> Iterator[tuple[bool, Pair]]:
    """Endless distinct sentences, and whether each is for the test: one in eight, and all with something on a mat."""
    sampler, texts = _Sampler(seed), set[str]()
    while True:
        sentence = sampler.sentence()
        words = english.say(sentence)
        text = english.write(words)
        if len(words) <= LONGEST and text not in texts:
            texts.add(text)
            held_out = zlib.crc32(text.encode()) % 8 == 0 or ("on", "mat") in combinations(sentence)
            yield held_out, translate(sentence, words, "fr")


@cache
def training_pairs(count: int = SENTENCES) -> list[Pair]:
    """What translators learn from."""
    return list(islice((pair for held_out, pair in _sentences(0) if not held_out), count))


@cache
def held_out_pairs(count: int) -> list[Pair]:
    """Sentences that no translator learned from, with their French and with the words that belong together."""
    return list(islice((pair for held_out, pair in _sentences(2) if held_out), count))


def on_the_mat() -> Pair:
    """The notes' own sentence."""
    (cat,), (mat,) = _rows(ANIMALS, "cat"), _rows(THINGS, "mat")
    place = Place(PREPOSITIONS[0], Phrase(mat, DETERMINERS[0]))
    sentence = Sentence(Clause(Phrase(cat, DETERMINERS[0]), place))
    return translate(sentence, english.say(sentence), "fr")


# ---------------------------------------------------------------------------------------------------------- translators


def translator(kind: str, seed: int, steps: int) -> Seq2Seq:
    """An RNN encoder–decoder, trained.

    kind: the score of its attention; "none": without attention; "separate": additive, and a matrix of their own makes
    its values from the states
    """
    steps *= PATIENCE if kind == "none" else 1
    model = regard.load(store.model_folder(f"translator-{kind}-{seed}-{steps}", lambda: _learn(kind, seed, steps)))
    assert isinstance(model, Seq2Seq)
    return model


def needed(kinds: Sequence[str], training: Training) -> tuple[Need, ...]:
    """The translators of these kinds, as a section names them in `needs`."""
    return tuple(Need(translator, (kind, seed, training.steps)) for kind in kinds for seed in training.seeds)


def stages(kinds: Sequence[str]) -> dict[str, Any]:
    """What a section says whose measurement has translators of these kinds: how they are trained, and its needs."""
    forms = {"full": [LONG], "rehearsal": [REHEARSAL]}
    return {**forms, "needs": needed(kinds, SHORT), "full_needs": needed(kinds, LONG)}


def quality(model: Seq2Seq, pairs: Sequence[Pair]) -> float:
    """BLEU of its translations."""
    texts = translate_all(model, [pair.source for pair in pairs])
    return float(bleu(texts, [pair.target for pair in pairs]).score)


def qualities(kinds: Sequence[str], training: Training) -> Tensor:
    """BLEU of translators of these kinds, (kinds, seeds)."""
    pairs = held_out_pairs(training.pairs)
    return torch.tensor([[quality(model, pairs) for model in training.translators(kind)] for kind in kinds])


def align_pairs(model: Seq2Seq, pairs: Sequence[Pair]) -> list[Alignment]:
    """What it looks at while it writes the right translations."""
    return align(model, [pair.source for pair in pairs], [pair.target for pair in pairs])


def influence(model: Seq2Seq, pairs: Sequence[Pair]) -> Tensor:
    """How much the logarithm of each right target token's probability depends on each source token, (batch, n, m).

    It is the norm of the gradient with respect to the source token's vector, and 0 for padding.
    """
    source, lengths, given, expected = encoded(model, pairs)
    vectors: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        vectors.append(output.detach().requires_grad_())
        return vectors[0]

    handle = model.get_submodule("source_embedding").register_forward_hook(keep)
    try:
        logits = model(source, given, lengths)
    finally:
        handle.remove()
    right = -functional.cross_entropy(logits.mT, expected, ignore_index=PAD, reduction="none")  # (batch, n): log p
    steps = [torch.autograd.grad(column.sum(), vectors[0], retain_graph=True)[0] for column in right.unbind(1)]
    return torch.stack([step.norm(dim=-1) for step in steps], 1)


def encoded(model: Seq2Seq, pairs: Sequence[Pair]) -> tuple[Tensor, list[int], Tensor, Tensor]:
    """Source (batch, m), its lengths, the target as it is given (batch, n), and as it is expected, with its end."""
    sources = model.need_tokenizer().encode_batch([pair.source for pair in pairs])
    targets = model.need_target_tokenizer().encode_batch([pair.target for pair in pairs])
    source, lengths = padded([encoding.ids for encoding in sources])
    expected, _ = padded([encoding.ids for encoding in targets])
    return source, list(lengths), functional.pad(expected[:, :-1], (1, 0), value=BOS), expected


def untrained(kind: str, seed: int) -> Seq2Seq:
    """A translator that has learned nothing yet."""
    source = train_tokenizer([pair.source for pair in training_pairs()], "word")
    target = train_tokenizer([pair.target for pair in training_pairs()], "word")
    attention = {"none": None, "separate": "additive"}.get(kind, kind)
    sizes = source.get_vocab_size(), target.get_vocab_size()
    torch.manual_seed(seed)
    model = Seq2Seq(*sizes, SIZE, HIDDEN, attention=attention, forbidden=[PAD, BOS, UNK])
    model.tokenizer, model.target_tokenizer = source, target
    return model


def _learn(kind: str, seed: int, steps: int) -> Model:
    model = untrained(kind, seed)
    pairs = training_pairs()
    batches = torch.randint(len(pairs), (steps, BATCH)).tolist()
    values = nn.Linear(HIDDEN, HIDDEN, bias=False) if kind == "separate" else nn.Identity()

    def loss(step: int) -> Tensor:
        source, lengths, given, expected = encoded(model, [pairs[row] for row in batches[step]])
        state = model.read(source, lengths)
        output, _ = model.decode(given, replace(state, values=values(state.values)))
        return functional.cross_entropy(model.predict(output).flatten(0, 1), expected.flatten(), ignore_index=PAD)

    train(nn.ModuleList([model, values]), loss, steps=steps, learning_rate=LEARNING_RATES.get(kind, 1e-2))
    if isinstance(values, nn.Linear):
        # The context is a weighted mean, Σ a_i (W h_i) = W Σ a_i h_i: W may as well stand in the layers that read it.
        for weight in (model.decoder.get_parameter("weight_ih_l0"), model.output.weight):
            weight.data[:, -HIDDEN:] = weight.data[:, -HIDDEN:] @ values.weight.data
    return model
