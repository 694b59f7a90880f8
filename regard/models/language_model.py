"""The language model: every token attends to the tokens before it, and predicts the next (GPT, Llama, Gemma).

    ids → token (+ position) vectors → blocks that see no future → norm → logits of the next token

Shapes: ids (batch, n) · rows (batch, n, size) · logits (batch, n, vocabulary).
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.arguments import check_batch, check_choice, check_ids, check_lengths, check_positive, check_size, has_values
from regard.attention import Mask, alibi, bias, causal, keep
from regard.attention import window as sliding_window
from regard.attention.dropout import dropout as apply_dropout
from regard.models.block import BlockConfig
from regard.models.cache import Cache, Context
from regard.models.classifier import TextClassifier, pool
from regard.models.decode_kernels import Linear, product
from regard.models.generation import GenerativeModel, Sampling, check_sampling, sample
from regard.models.model import evaluation
from regard.models.packing import PackedBatch, SequenceInfo, pack
from regard.models.positions import LearnedPositions, add_positions, alibi_slopes, check_positions, rotary_table
from regard.models.texts import encode, padded, warn_of_cuts
from regard.models.tokenizer_files import panics_raised


class LanguageModel(TextClassifier, GenerativeModel):
    """LanguageModel(ids, lengths) → logits of the token after each one; zeros where there is no token.

    `extend` processes more tokens after a cache, `generate` produces new tokens.

    vocab_size · size: of the vectors · layers · heads · kv_heads: heads of keys and values, shared by groups of heads ·
    head_size: size / heads unless given · ffn_size: of the feed-forward nets, 4 · size unless given · max_positions:
    positions that it can read · positions: alibi, learned, none, rotary or sinusoidal · rotary_base: of rotary
    positions, a number or one for each layer · window: how many tokens a token attends to, itself and those before it;
    None: all; a number or one for each layer · mixer: attention, convolution or recurrent · score: dot, additive,
    bilinear, cosine or gaussian · score_scale: of dot products, 1 / √head_size unless given · score_softcap: bends dot
    products to softcap · tanh(score / softcap) · qk_norm: RMS norms of the queries and keys of each head · activation:
    gelu, gelu_tanh, relu, silu, tanh or, gated, swiglu, geglu, geglu_tanh · norm: layer or rms · epsilon: of norms ·
    output_norms: one more norm for what each part of a block adds · bias: of all projections · attention_bias: of those
    of attention, if different · attention_output_bias: of the last of these, if different · tie_embeddings: the token
    vectors are also the output layer · scale_embeddings: by √size · logit_softcap: as score_softcap, of the logits ·
    dropout · bos: id of the token that begins a text; an empty prompt becomes it · eos: id of the token that ends one ·
    classes: number of classes for `classify` · labels: their names · max_length: `classify` reads only the first
    max_length tokens of a text.
    A Llama is positions="rotary", norm="rms", activation="swiglu", bias=False.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4)
    >>> model(torch.randint(31, (2, 5))).shape  # (batch, n) → (batch, n, vocabulary)
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
        rotary_base: float | Sequence[float] = 10_000.0,
        window: int | Sequence[int | None] | None = None,
        mixer: str = "attention",
        score: str | None = None,
        score_scale: float | None = None,
        score_softcap: float | None = None,
        qk_norm: bool = False,
        activation: str = "gelu_tanh",
        norm: str = "layer",
        epsilon: float = 1e-5,
        output_norms: bool = False,
        bias: bool = True,
        attention_bias: bool | None = None,
        attention_output_bias: bool | None = None,
        tie_embeddings: bool = True,
        scale_embeddings: bool = False,
        logit_softcap: float | None = None,
        dropout: float = 0.0,
        bos: int | None = None,
        eos: int | None = None,
        classes: int = 0,
        labels: Sequence[str] = (),
        max_length: int | None = None,
    ) -> None:
        super().__init__(locals(), positions=("alibi", "learned", "none", "rotary", "sinusoidal"))
        self.rotary_bases = _by_layer("rotary_base", rotary_base, layers)
        self.windows = _by_layer("window", window, layers)
        for base, size_of_window in zip(self.rotary_bases, self.windows, strict=True):
            check_positive("rotary_base", base)
            if size_of_window is not None:
                check_size("window", size_of_window)
        if mixer != "attention" and window is not None:
            raise ValueError(f"window: expected None for mixer={mixer!r}, which attends to nothing, got {window!r}")
        self.logit_softcap = None if logit_softcap is None else check_positive("logit_softcap", logit_softcap)
        block = BlockConfig.of(self.config)
        self.token_embedding = nn.Embedding(vocab_size, size)
        self.position_embedding = LearnedPositions(max_positions, size) if positions == "learned" else None
        self.blocks = block.make_blocks(layers, causal=True)
        self.norm = block.make_norm()
        self.output = None if tie_embeddings else Linear(size, vocab_size, bias=False)
        self.classifier = nn.Linear(size, classes) if classes else None
        self.dropout, self.scale = dropout, math.sqrt(size) if scale_embeddings else 1.0
        self.head_size = head_size or size // heads
        if positions == "rotary" and self.head_size % 2:
            raise ValueError(f"head_size: expected an even number for rotary positions, got {self.head_size}")
        # GPT-2's initialisation: small numbers, and the smaller the more layers add up.
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and "mixer.score" not in name and "mixer.net" not in name:
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if name.endswith("out_proj.weight") else 0.02)

    def forward(self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """ids (batch, n) → logits (batch, n, vocabulary)."""
        rows, packed = self._read(ids, lengths)
        return packed.unpack(self.predict(rows))

    def pooled(self, ids: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:  # type: ignore[override]
        """The mean of the vectors of its tokens."""
        rows, packed = self._read(ids, lengths)
        return pool("mean", packed.unpack(self.norm(rows)), lengths)

    def extend(
        self,
        ids: Tensor,
        cache: Cache | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        padding: Literal["left", "right"] = "right",
    ) -> tuple[Tensor, Cache]:
        """Read ids (batch, n) after what the cache holds: rows (batch, n, size) for `predict`, and the longer cache.

        Caches are immutable: the given one stays as it was. Sequences shorter than n are padded on the right, or
        on the left with padding="left".
        """
        check_ids("ids", ids, self.token_embedding.num_embeddings)
        batch, n = ids.shape
        valid = _valid(ids, lengths, padding)
        if cache is not None:
            if len(cache.layers) != len(self.blocks):
                raise ValueError(f"cache: expected {len(self.blocks)} layers, this model's, got {len(cache.layers)}")
            check_batch("ids", ids, cache.batch, "the cache")
        before = cache or Cache((), torch.empty(1, 0, dtype=torch.long, device=ids.device))
        read = before.lengths.to(ids.device)
        steps = torch.arange(n, device=ids.device)[None] if valid is None else (valid.cumsum(1) - 1).clamp(min=0)
        positions = read + steps  # (batch or 1, n)
        check_positions(positions, self.config["max_positions"])
        all_positions, all_valid = _append_columns(before, positions, valid, batch)
        make_mask = functools.partial(self._cached_mask, all_positions, all_valid, n)
        infos = self._infos(make_mask, positions, SequenceInfo(valid=valid, first=before.columns))
        rows, layers = self._embed(ids, positions), []
        for number, (block, info) in enumerate(zip(self.blocks, infos, strict=True)):
            rows, state = block.extend(rows, info, before.layers[number] if before.layers else None)
            layers.append(state)
        added = n if valid is None else valid.sum(1, keepdim=True)
        return rows, Cache(tuple(layers), all_positions, all_valid, read + added)

    def predict(self, rows: Tensor) -> Tensor:
        """Rows (…, size) → logits of the next token (…, vocabulary)."""
        weight = self.token_embedding.weight if self.output is None else self.output.weight
        logits = product(self.norm(rows), weight)
        return logits if self.logit_softcap is None else self.logit_softcap * torch.tanh(logits / self.logit_softcap)

    # --------------------------------------------------------------------------------------------------- generation

    def start(self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None) -> tuple[Tensor, Context]:
        check_ids("ids", ids, self.token_embedding.num_embeddings)
        batch, n = ids.shape
        counts = [n] * batch if lengths is None else check_lengths("lengths", lengths, batch, n).tolist()
        limit = int(self.config["max_positions"])
        if max(counts, default=0) > limit:
            warn_of_cuts("prompt", counts, batch, limit, "end")
            ends = [row[max(0, count - limit) : count] for row, count in zip(ids.tolist(), counts, strict=True)]
            cut, counts = padded(ends)
            ids = cut.to(ids.device)
        rows, cache = self.extend(ids, None, counts)
        last = torch.tensor(counts, dtype=torch.long, device=ids.device) - 1
        return self.predict(rows[torch.arange(batch), last]), Context.of(ids, counts, limit, cache)

    def step(self, ids: Tensor, state: Context) -> tuple[Tensor, Context]:
        context = state.append(ids)
        too_long = context.too_long
        if context.cache is None:
            return self.predict(self.extend(context.ids)[0][:, -1]), context
        rows, cache = self.extend(ids, context.cache)
        rows = rows[:, -1]
        if too_long:  # they are read again, from the first token that is still seen
            rows[too_long] = self.extend(context.ids[too_long])[0][:, -1]
        return self.predict(rows), dataclasses.replace(context, cache=cache)

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        bos = self.config["bos"]
        return encode(self.need_tokenizer(), texts, empty=[] if bos is None else [bos], name="prompt")

    @panics_raised()
    def decode_output(self, prompt: list[int], ids: list[int]) -> str:
        tokenizer = self.need_tokenizer()
        text: str = tokenizer.decode(prompt + ids)  # together with the prompt: a space may belong to either
        return text[len(tokenizer.decode(prompt)) :]

    @torch.no_grad()
    def stream(self, prompt: str, *, max_new_tokens: int = 128, sampling: Sampling | None = None) -> Iterator[str]:
        """The same as `generate` for one text, piece by piece as it is generated."""
        if not isinstance(prompt, str):
            raise TypeError(f"prompt: expected one text, got {type(prompt).__name__}")
        check_sampling(sampling, beam_size=1)
        (before,) = self.encode_prompts([prompt])
        eos, limit = self.config["eos"], self.token_limit(max_new_tokens)
        generated: list[int] = []
        shown = ""
        with evaluation(self):
            logits, state = self.start(torch.tensor([before], device=self.device))
            steps = sample(self.step, state, logits, sampling=sampling, max_new_tokens=limit, eos=eos)
            for ((_, token, _),) in steps:
                if token != eos:
                    generated.append(token)
                text = self.decode_output(before, generated)
                done = token == eos or len(generated) == limit
                if done or not text.endswith("\N{REPLACEMENT CHARACTER}"):  # else a character is not complete yet
                    yield text[len(shown) :]
                    shown = text

    # ------------------------------------------------------------------------------------------------------ reading

    def _read(self, ids: Tensor, lengths: Tensor | Sequence[int] | None) -> tuple[Tensor, PackedBatch]:
        """The rows of a batch after the last block, packed."""
        check_ids("ids", ids, self.token_embedding.num_embeddings)
        check_positions(ids.shape[1], self.config["max_positions"])
        packed = pack(ids, lengths)
        make_mask = functools.partial(self._packed_mask, packed)
        infos = self._infos(make_mask, packed.positions, packed.info)
        rows = self._embed(packed.ids, packed.positions)
        for block, info in zip(self.blocks, infos, strict=True):
            rows = block(rows, info)
        return rows, packed

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        kind = self.config["positions"]
        rows = self.token_embedding(ids) if self.scale == 1 else self.token_embedding(ids) * self.scale
        rows = add_positions(rows, positions, kind, self.position_embedding)
        return apply_dropout(rows, self.dropout, self.training)

    def _infos(
        self, make_mask: Callable[[int | None], Mask | None], positions: Tensor, info: SequenceInfo
    ) -> list[SequenceInfo]:
        """What each block knows of its rows: the mask of its window, and positions (batch or 1, n) by its base."""
        masks = {window: make_mask(window) for window in set(self.windows)}
        rotary = self.config["positions"] == "rotary"
        bases = set(self.rotary_bases)
        tables = {base: rotary_table(positions, self.head_size, base) if rotary else None for base in bases}
        kinds = zip(self.windows, self.rotary_bases, strict=True)
        rest = (info.lengths, info.valid, info.first)
        return [SequenceInfo(masks[window], tables[base], *rest) for window, base in kinds]

    def _packed_mask(self, packed: PackedBatch, window: int | None) -> Mask:
        """What the tokens may attend to. Packed or not: in a sequence, rows are as far apart as positions."""
        mask = _band(window)
        mask = mask if packed.info.mask is None else packed.info.mask & mask
        return mask & alibi(self._slopes(packed.ids.device)) if self.config["positions"] == "alibi" else mask

    def _cached_mask(self, positions: Tensor, valid: Tensor | None, n: int, window: int | None) -> Mask | None:
        """What the last n of the columns may attend to; positions (batch or 1, m), valid (batch, m)."""
        is_alibi, m = self.config["positions"] == "alibi", positions.shape[-1]
        window = None if window is None or m <= window else window  # a window around everything is none
        if valid is None:
            masks = [] if n == 1 and window is None else [_band(window, offset=m - n)]
            masks += [alibi(self._slopes(positions.device), align="end")] if is_alibi else []
        else:  # between a sequence's columns there may be padding
            masks = [keep(valid[:, None, None]), *([causal(offset=m - n)] if n > 1 else [])]
            if window is not None or is_alibi:
                distance = positions[:, None, -n:, None] - positions[:, None, None]  # (batch or 1, 1, n, m)
                masks += [keep(distance < window)] if window is not None else []
                masks += [bias(-self._slopes(positions.device)[:, None, None] * distance.abs())] if is_alibi else []
        return functools.reduce(operator.and_, masks) if masks else None

    def _slopes(self, device: torch.device) -> Tensor:
        return alibi_slopes(self.config["heads"]).to(device)


def _by_layer(name: str, value: Any, layers: int) -> tuple[Any, ...]:
    """A value for each layer: the same for all, or as they are given."""
    if not isinstance(value, list | tuple):
        return (value,) * layers
    if len(value) != layers:
        raise ValueError(f"{name}: expected one, or one for each of the {layers} layers, got {len(value)}")
    return tuple(value)


def _band(window: int | None, offset: int | None = None) -> Mask:
    """A row sees itself and the rows before it, `window` of them in all, or all."""
    return causal(offset) if window is None else sliding_window(window - 1, 0, offset)


def _valid(ids: Tensor, lengths: Tensor | Sequence[int] | None, padding: str) -> Tensor | None:
    """Which of the ids are tokens, (batch, n); None where all are."""
    check_choice("padding", padding, ("left", "right"))
    if lengths is None:
        return None
    batch, n = ids.shape
    counts = check_lengths("lengths", lengths, batch, n).to(ids.device)[:, None]
    steps = torch.arange(n, device=ids.device)
    valid = steps < counts if padding == "right" else steps >= n - counts
    return None if has_values(valid) and bool(valid.all()) else valid


def _append_columns(before: Cache, positions: Tensor, valid: Tensor | None, batch: int) -> tuple[Tensor, Tensor | None]:
    """Positions (batch or 1, m) and valid (batch, m) of a cache's columns with the new ones behind them."""
    both = [before.positions, positions]
    if len(before.positions) != len(positions):
        both = [part.expand(batch, -1) for part in both]
    if before.valid is not None or valid is not None:
        masks = [
            torch.ones(batch, columns.shape[1], dtype=torch.bool, device=columns.device) if mask is None else mask
            for mask, columns in ((before.valid, before.positions), (valid, positions))
        ]
        valid = torch.cat(masks, 1)
    return torch.cat(both, 1), valid
