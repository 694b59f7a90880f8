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

from regard.arguments import (
    check_batch,
    check_choice,
    check_count,
    check_ids,
    check_lengths,
    check_marks,
    check_positive,
    check_size,
    check_sizes,
)
from regard.attention import Mask, bias, causal, keep
from regard.models.block import NORMS, dropped, make_blocks
from regard.models.cache import Cache
from regard.models.classifier import TextClassifier, check_labels, pooled
from regard.models.decode_kernels import product
from regard.models.generation import Hypothesis, Sampling, beams, checked_way, followed, sampled
from regard.models.model import evaluated, evaluation
from regard.models.packing import PackedBatch, Places, pack
from regard.models.positions import LearnedPositions, RotaryTable, alibi_slopes, rotary, sinusoidal
from regard.models.texts import continued, padded, tokens

__all__ = ["LanguageModel"]

POSITIONS = ("alibi", "learned", "none", "rotary", "sinusoidal")


class LanguageModel(TextClassifier):
    """LanguageModel(ids, lengths) → logits of the word after each place; zeros where there is no token.

    `extend` reads on from where a cache ends, `generate` writes on. `tie_embeddings`: the word vectors are also the output layer.
    positions: alibi, learned, none, rotary or sinusoidal · mixer: attention, convolution or recurrent · score: dot,
    additive, bilinear, cosine or gaussian · activation: gelu, gelu_tanh, relu, silu, tanh or swiglu · norm: layer or
    rms · ffn_size: of the feed-forward nets, 4 · size unless given · max_positions: positions that it can read · bos,
    eos: ids of the marks around a text · classes: of texts (`classify`), by their `labels`,
    from their first `max_length` tokens.
    A Llama is positions="rotary", norm="rms", activation="swiglu", bias=False.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4)
    >>> model(torch.randint(31, (2, 5))).shape  # (batch, n) → (batch, n, words)
    torch.Size([2, 5, 31])
    """

    def __init__(
        self,
        vocab_size: int,
        size: int,
        layers: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_size: int | None = None,
        ffn_size: int | None = None,
        max_positions: int = 1_024,
        positions: str = "learned",
        rotary_base: float = 10_000.0,
        mixer: str = "attention",
        score: str | None = None,
        activation: str = "gelu_tanh",
        norm: str = "layer",
        epsilon: float = 1e-5,
        bias: bool = True,
        attention_bias: bool | None = None,
        tie_embeddings: bool = True,
        dropout: float = 0.0,
        bos: int | None = None,
        eos: int | None = None,
        classes: int = 0,
        labels: Sequence[str] = (),
        max_length: int | None = None,
    ) -> None:
        super().__init__(locals())
        check_sizes(vocab_size=vocab_size, size=size, layers=layers, heads=heads, max_positions=max_positions)
        check_choice("positions", positions, POSITIONS)
        check_positive("rotary_base", rotary_base)
        check_marks(vocab_size, bos=bos, eos=eos)
        self.word = nn.Embedding(vocab_size, size)
        self.position = LearnedPositions(max_positions, size) if positions == "learned" else None
        self.blocks = make_blocks(
            layers,
            size,
            heads,
            ffn_size,
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
        self.output = None if tie_embeddings else nn.Linear(size, vocab_size, bias=False)
        check_labels(labels, classes)
        self.classifier = nn.Linear(size, classes) if check_count("classes", classes) else None
        self.dropout = dropout
        self.head_size = size // heads if head_size is None else head_size
        if positions == "rotary" and self.head_size % 2:
            raise ValueError(f"head_size: expected an even number for rotary positions, got {self.head_size}")
        self._reset(layers)

    def _reset(self, layers: int) -> None:
        """GPT-2's beginning: small numbers, and the smaller the more layers add up."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and "mixer.score" not in name and "mixer.net" not in name:
                deep = name.endswith("out_proj.weight")
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if deep else 0.02)

    @property
    def example(self) -> str:
        return "classify('a text')" if self.config["classes"] else "generate('a beginning')"

    def forward(self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """ids (batch, n) → logits (batch, n, vocabulary)."""
        rows, packed = self._rows(ids, lengths)
        return packed.unpack(self.predict(rows))

    def class_logits(self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """Logits (batch, classes) of the class of each text, from the mean of what the model makes of its words."""
        if self.classifier is None:
            raise ValueError("this LanguageModel has no head for classes: make it with classes=…")
        rows, packed = self._rows(ids, lengths)
        vectors = pooled("mean", packed.unpack(self.norm(rows)), lengths)
        logits: Tensor = self.classifier(dropped(vectors, self.dropout, self.training))
        return logits

    def _rows(self, ids: Tensor, lengths: Tensor | Sequence[int] | None) -> tuple[Tensor, PackedBatch]:
        """What the blocks make of a batch, and how it is laid out."""
        check_ids("ids", ids, self.word.num_embeddings)
        self._check_positions(ids.shape[1])
        packed = pack(ids, lengths)
        mask = causal() if packed.mask is None else packed.mask & causal()
        if self.config["positions"] == "alibi":
            mask = mask & self._alibi(packed.positions, packed.positions)
        places = Places(mask, self._turn(packed.positions), packed.counts)
        rows = self._begin(packed.ids, packed.positions)
        for block in self.blocks:
            rows = block(rows, places)
        return rows, packed

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
        check_ids("ids", ids, self.word.num_embeddings)
        batch, n = ids.shape
        real = _real(ids, lengths, padding)
        if cache is not None:
            if len(cache.layers) != len(self.blocks):
                raise ValueError(f"cache: expected {len(self.blocks)} layers, this model's, got {len(cache.layers)}")
            check_batch("ids", ids, cache.batch, "the cache")
        before = Cache((), torch.empty(1, 0, dtype=torch.long, device=ids.device)) if cache is None else cache
        counts = before.counts.to(ids.device)
        steps = torch.arange(n, device=ids.device)[None] if real is None else (real.cumsum(1) - 1).clamp(min=0)
        positions = counts + steps  # (batch or 1, n)
        self._check_positions(int(positions.max()) + 1)
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
        max_new_tokens: int = 128,
        sampling: Sampling | None = None,
        beam_size: int = 1,
        length_penalty: float = 1.0,
    ) -> list[Hypothesis]:
        """The continuation of each sequence of ids (batch, n): `max_new_tokens` words at max_new_tokens, up to the model's end mark.

        With beam_size > 1 the best of that many hypotheses, else word by word as `sampling` says (the likeliest).
        """
        sampling = checked_way(sampling, check_size("beam_size", beam_size))
        logits, state = self._read(ids, lengths)
        counts = [ids.shape[1]] * len(ids) if lengths is None else torch.as_tensor(lengths).tolist()
        room = [self._room(max_new_tokens, count) for count in counts]
        eos = self.config["eos"]
        if beam_size > 1:
            found = beams(
                self._step,
                state,
                logits,
                beam_size=beam_size,
                max_new_tokens=room,
                eos=eos,
                length_penalty=length_penalty,
            )
            return [hypotheses[0] for hypotheses in found]
        steps = sampled(self._step, state, logits, sampling=sampling, max_new_tokens=room, eos=eos)
        return followed(steps, len(ids), eos, length_penalty)

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
    def stream(self, prompt: str, *, max_new_tokens: int = 128, sampling: Sampling | None = None) -> Iterator[str]:
        """The same for one prompt, piece by piece as it is written."""
        tokenizer = self.need_tokenizer()
        if not isinstance(prompt, str):
            raise TypeError(f"prompt: expected one text, got {type(prompt).__name__}")
        (before,) = tokens(tokenizer, [prompt])
        ids = torch.tensor([before], device=self.word.weight.device)
        eos, room = self.config["eos"], self._room(max_new_tokens, len(before))
        written: list[int] = []
        shown = ""
        with evaluation(self):
            logits, state = self._read(ids, None)
            for ((_, word, _),) in sampled(
                self._step, state, logits, sampling=checked_way(sampling, 1), max_new_tokens=room, eos=eos
            ):
                if word != eos:
                    written.append(word)
                text = continued(tokenizer, before, written)
                done = word == eos or len(written) == room
                if done or not text.endswith("\N{REPLACEMENT CHARACTER}"):  # else a character is not complete yet
                    yield text[len(shown) :]
                    shown = text

    def _room(self, max_new_tokens: int, count: int) -> int:
        """How many words may follow `count` of them: the last one needs no place."""
        return min(max_new_tokens, int(self.config["max_positions"]) - count + 1)

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

    def _turn(self, positions: Tensor) -> RotaryTable | None:
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

    def _check_positions(self, n: int) -> None:
        if n > self.config["max_positions"]:
            raise ValueError(
                f"ids: expected at most {self.config['max_positions']} positions, the model's max_positions, got {n}"
            )


def _real(ids: Tensor, lengths: Tensor | Sequence[int] | None, padding: str) -> Tensor | None:
    """Which of the ids are tokens, (batch, n); None where all are."""
    check_choice("padding", padding, ("left", "right"))
    if lengths is None:
        return None
    batch, n = ids.shape
    counts = torch.tensor(check_lengths("lengths", lengths, batch, n), device=ids.device)[:, None]
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
