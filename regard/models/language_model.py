"""The language model: every word looks at the words before it, and the last one guesses the next (GPT, Llama).

    ids → word (+ position) vectors → blocks that see no future → norm → logits of the next word

Shapes: ids (batch, n) · rows (batch, n, size) · logits (batch, n, vocabulary).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.attention import Mask, bias, causal, keep
from regard.models.block import NORMS, dropped, make_blocks
from regard.models.cache import Cache
from regard.models.checks import (
    checked_batch,
    checked_choice,
    checked_count,
    checked_ids,
    checked_lengths,
    checked_marks,
    checked_positive,
    checked_size,
    checked_sizes,
)
from regard.models.classifier import TextClassifier, checked_labels, pooled
from regard.models.few_rows import product
from regard.models.generation import Choice, Hypothesis, beams, checked_way, followed, sampled
from regard.models.model import evaluated, evaluation
from regard.models.places import Laid, Places, lay_out
from regard.models.positions import LearnedPositions, Turn, alibi_slopes, rotary, sinusoidal
from regard.models.texts import continued, padded, tokens

__all__ = ["LanguageModel"]

POSITIONS = ("alibi", "learned", "none", "rotary", "sinusoidal")


class LanguageModel(TextClassifier):
    """LanguageModel(ids, lengths) → logits of the word after each place; zeros where there is no token.

    `extend` reads on from where a cache ends, `generate` writes on. `tied`: the word vectors are also the output layer.
    positions: alibi, learned, none, rotary or sinusoidal · mixer: attention, convolution or recurrent · score: dot,
    additive, bilinear, cosine or gaussian · activation: gelu, gelu_tanh, relu, silu, tanh or swiglu · norm: layer or
    rms · inner_size: of the feed-forward nets, 4 · size unless given · maximum: positions that it can read · begin,
    end: ids of the marks around a text · classes: of texts (`classify`), by their `labels`,
    from their first `longest_text` tokens.
    A Llama is positions="rotary", norm="rms", activation="swiglu", bias=False.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocabulary=31, size=16, layers=2, heads=4)
    >>> model(torch.randint(31, (2, 5))).shape  # (batch, n) → (batch, n, words)
    torch.Size([2, 5, 31])
    """

    def __init__(
        self,
        vocabulary: int,
        size: int,
        layers: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_size: int | None = None,
        inner_size: int | None = None,
        maximum: int = 1_024,
        positions: str = "learned",
        rotary_base: float = 10_000.0,
        mixer: str = "attention",
        score: str | None = None,
        activation: str = "gelu_tanh",
        norm: str = "layer",
        epsilon: float = 1e-5,
        bias: bool = True,
        attention_bias: bool | None = None,
        tied: bool = True,
        dropout: float = 0.0,
        begin: int | None = None,
        end: int | None = None,
        classes: int = 0,
        labels: Sequence[str] = (),
        longest_text: int | None = None,
    ) -> None:
        super().__init__(locals())
        checked_sizes(vocabulary=vocabulary, size=size, layers=layers, heads=heads, maximum=maximum)
        checked_choice("positions", positions, POSITIONS)
        checked_positive("rotary_base", rotary_base)
        checked_marks(vocabulary, begin=begin, end=end)
        self.word = nn.Embedding(vocabulary, size)
        self.position = LearnedPositions(maximum, size) if positions == "learned" else None
        self.blocks = make_blocks(
            layers,
            size,
            heads,
            inner_size,
            causal=True,
            mixer=mixer,
            kv_heads=kv_heads,
            head_size=head_size,
            score=score,
            activation=activation,
            norm=norm,
            epsilon=epsilon,
            bias=bias,
            attention_bias=attention_bias,
            dropout=dropout,
        )
        self.norm = NORMS[norm](size, eps=epsilon)
        self.output = None if tied else nn.Linear(size, vocabulary, bias=False)
        checked_labels(labels, classes)
        self.classifier = nn.Linear(size, classes) if checked_count("classes", classes) else None
        self.dropout = dropout
        self.head_size = size // heads if head_size is None else head_size
        if positions == "rotary" and self.head_size % 2:
            raise ValueError(f"head_size: expected an even number for rotary positions, got {self.head_size}")
        self._reset(layers)

    def _reset(self, layers: int) -> None:
        """GPT-2's beginning: small numbers, and the smaller the more layers add up."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and "mixer.score" not in name and "mixer.net" not in name:
                deep = name.endswith("outward.weight")
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if deep else 0.02)

    @property
    def example(self) -> str:
        return "classify('a text')" if self.config["classes"] else "generate('a beginning')"

    def forward(self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """ids (batch, n) → logits (batch, n, vocabulary)."""
        rows, laid = self._rows(ids, lengths)
        return laid.back(self.predict(rows))

    def class_logits(self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """Logits (batch, classes) of the class of each text, from the mean of what the model makes of its words."""
        if self.classifier is None:
            raise ValueError("this LanguageModel has no head for classes: make it with classes=…")
        rows, laid = self._rows(ids, lengths)
        vectors = pooled("mean", laid.back(self.norm(rows)), lengths)
        logits: Tensor = self.classifier(dropped(vectors, self.dropout, self.training))
        return logits

    def _rows(self, ids: Tensor, lengths: Tensor | Sequence[int] | None) -> tuple[Tensor, Laid]:
        """What the blocks make of a batch, and how it is laid out."""
        checked_ids("ids", ids, self.word.num_embeddings)
        self._check_maximum(ids.shape[1])
        laid = lay_out(ids, lengths)
        mask = causal() if laid.mask is None else laid.mask & causal()
        if self.config["positions"] == "alibi":
            mask = mask & self._alibi(laid.positions, laid.positions)
        places = Places(mask, self._turn(laid.positions), laid.counts)
        rows = self._begin(laid.ids, laid.positions)
        for block in self.blocks:
            rows = block(rows, places)
        return rows, laid

    def extend(
        self,
        ids: Tensor,
        cache: Cache | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        padding: Literal["left", "right"] = "right",
    ) -> tuple[Tensor, Cache]:
        """Read ids (batch, n) after what the cache holds: rows (batch, n, size) for `predict`, and the longer cache.

        The cache is a value: it stays as it was. Sequences shorter than n stand at the left of their padding, or at
        the right of it with padding="left".
        """
        checked_ids("ids", ids, self.word.num_embeddings)
        batch, n = ids.shape
        real = _real(ids, lengths, padding)
        if cache is not None:
            if len(cache.layers) != len(self.blocks):
                raise ValueError(f"cache: expected {len(self.blocks)} layers, this model's, got {len(cache.layers)}")
            checked_batch("ids", ids, cache.batch, "the cache")
        before = Cache((), torch.empty(1, 0, dtype=torch.long, device=ids.device)) if cache is None else cache
        counts = before.counts.to(ids.device)
        steps = torch.arange(n, device=ids.device)[None] if real is None else (real.cumsum(1) - 1).clamp(min=0)
        positions = counts + steps  # (batch or 1, n)
        self._check_maximum(int(positions.max()) + 1)
        after = _joined(before, positions, real, batch)
        places = Places(self._mask(after, n), self._turn(positions), real=real)
        rows = self._begin(ids, positions)
        kept = []
        for number, block in enumerate(self.blocks):
            rows, own = block.extend(rows, places, before.layers[number] if before.layers else None)
            kept.append(own)
        read = n if real is None else real.sum(1, keepdim=True)
        return rows, Cache(tuple(kept), after.positions, after.real, counts + read)

    def predict(self, rows: Tensor) -> Tensor:
        """Rows (…, size) → logits of the next word (…, vocabulary)."""
        weight = self.word.weight if self.output is None else self.output.weight
        return product(self.norm(rows), weight)

    # ------------------------------------------------------------------------------------------------------ writing

    @evaluated
    @torch.inference_mode()
    def write(
        self,
        ids: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        most: int = 128,
        choice: Choice | None = None,
        beam: int = 1,
        penalty: float = 1.0,
    ) -> list[Hypothesis]:
        """The continuation of each sequence of ids (batch, n): `most` words at most, up to the model's end mark.

        With beam > 1 the best of that many hypotheses, else word by word as `choice` says (the likeliest).
        """
        choice = checked_way(choice, checked_size("beam", beam))
        logits, state = self._read(ids, lengths)
        counts = [ids.shape[1]] * len(ids) if lengths is None else torch.as_tensor(lengths).tolist()
        room = [self._room(most, count) for count in counts]
        end = self.config["end"]
        if beam > 1:
            found = beams(self._step, state, logits, beam=beam, most=room, end=end, penalty=penalty)
            return [hypotheses[0] for hypotheses in found]
        steps = sampled(self._step, state, logits, choice=choice, most=room, end=end)
        return followed(steps, len(ids), end, penalty)

    def generate(self, prompt: str | Sequence[str], **options: Any) -> Any:
        """What the model writes after a prompt: text for text, a list for a list. Options are those of `write`."""
        if isinstance(prompt, str):
            return self.generate([prompt], **options)[0]
        if not isinstance(prompt, Sequence):
            raise TypeError(f"prompt: expected a text or several, got {type(prompt).__name__}")
        if not prompt:
            return []
        tokenizer = self.need_tokenizer()
        ids, lengths = padded(tokens(tokenizer, prompt))
        found = self.write(ids.to(self.word.weight.device), lengths, **options)
        return [
            continued(tokenizer, own[:count].tolist(), hypothesis.ids)
            for own, count, hypothesis in zip(ids, lengths, found, strict=True)
        ]

    @torch.no_grad()
    def stream(self, prompt: str, *, most: int = 128, choice: Choice | None = None) -> Iterator[str]:
        """The same for one prompt, piece by piece as it is written."""
        tokenizer = self.need_tokenizer()
        if not isinstance(prompt, str):
            raise TypeError(f"prompt: expected one text, got {type(prompt).__name__}")
        (before,) = tokens(tokenizer, [prompt])
        ids = torch.tensor([before], device=self.word.weight.device)
        end, room = self.config["end"], self._room(most, len(before))
        written: list[int] = []
        shown = ""
        with evaluation(self):
            logits, state = self._read(ids, None)
            for ((_, word, _),) in sampled(
                self._step, state, logits, choice=checked_way(choice, 1), most=room, end=end
            ):
                if word != end:
                    written.append(word)
                text = continued(tokenizer, before, written)
                done = word == end or len(written) == room
                if done or not text.endswith("\N{REPLACEMENT CHARACTER}"):  # else a character is not complete yet
                    yield text[len(shown) :]
                    shown = text

    def _room(self, most: int, count: int) -> int:
        """How many words may follow `count` of them: the last one needs no place."""
        return min(most, int(self.config["maximum"]) - count + 1)

    def _read(self, ids: Tensor, lengths: Tensor | Sequence[int] | None) -> tuple[Tensor, Cache]:
        """Logits of the word after each sequence, and the cache to go on with."""
        rows, cache = self.extend(ids, None, lengths)
        last = torch.full((len(ids),), ids.shape[1]) if lengths is None else torch.as_tensor(lengths)
        return self.predict(rows[torch.arange(len(ids)), last.to(ids.device) - 1]), cache

    def _step(self, ids: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        rows, cache = self.extend(ids, cache)
        return self.predict(rows[:, -1]), cache

    def _begin(self, ids: Tensor, positions: Tensor) -> Tensor:
        rows = self.word(ids)
        if self.position is not None:
            rows = rows + self.position(positions)
        elif self.config["positions"] == "sinusoidal":
            rows = rows + sinusoidal(positions, rows.shape[-1]).to(rows.dtype)
        return dropped(rows, self.dropout, self.training)

    def _turn(self, positions: Tensor) -> Turn | None:
        rotates = self.config["positions"] == "rotary"
        return rotary(positions, self.head_size, self.config["rotary_base"]) if rotates else None

    def _mask(self, after: Cache, n: int) -> Mask | None:
        masks = [causal(offset=after.columns - n)] if n > 1 else []  # a single new row may see all that was read
        if after.real is not None:
            masks.append(keep(after.real[:, None, None]))
        if self.config["positions"] == "alibi":
            masks.append(self._alibi(after.positions[:, -n:], after.positions))
        return functools.reduce(operator.and_, masks) if masks else None

    def _alibi(self, rows: Tensor, columns: Tensor) -> Mask:
        distance = (rows[:, None, :, None] - columns[:, None, None, :]).abs()
        slopes = alibi_slopes(self.config["heads"]).to(rows.device)[:, None, None]
        return bias(-slopes * distance)  # (batch or 1, heads, n, m)

    def _check_maximum(self, n: int) -> None:
        if n > self.config["maximum"]:
            raise ValueError(f"ids: expected at most {self.config['maximum']} positions, the model's maximum, got {n}")


def _real(ids: Tensor, lengths: Tensor | Sequence[int] | None, padding: str) -> Tensor | None:
    """Which of the ids are tokens, (batch, n); None where all are."""
    checked_choice("padding", padding, ("left", "right"))
    if lengths is None:
        return None
    batch, n = ids.shape
    counts = torch.tensor(checked_lengths("lengths", lengths, batch, n), device=ids.device)[:, None]
    steps = torch.arange(n, device=ids.device)
    real = steps < counts if padding == "right" else steps >= n - counts
    return None if bool(real.all()) else real


def _joined(before: Cache, positions: Tensor, real: Tensor | None, batch: int) -> Cache:
    """The columns of the cache with the new ones behind them."""
    both = [before.positions, positions]
    if len(before.positions) != len(positions):
        both = [own.expand(batch, -1) for own in both]
    if before.real is not None or real is not None:
        marks = [
            torch.ones(batch, own.shape[1], dtype=torch.bool, device=own.device) if mark is None else mark
            for mark, own in ((before.real, before.positions), (real, positions))
        ]
        real = torch.cat(marks, 1)
    return Cache(before.layers, torch.cat(both, 1), real)
