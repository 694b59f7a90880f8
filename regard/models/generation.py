"""Writing on, word by word, with any model that can take a step:

    step(ids (rows, 1), state) → logits (rows, vocabulary) of the next word, and the state after it

`sampled` follows one continuation for each sequence: the likeliest word, or one drawn at random. `beams` follows
several and returns the best. Either way a sequence is on its own: what its neighbours in the batch do changes nothing
for it, and those that are finished leave the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Hypothesis", "Sampling", "beams", "followed", "sampled"]

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


@dataclass(frozen=True)
class Hypothesis:
    """What was written: token ids without the end mark, and log-probability / length^length_penalty, the end mark included."""

    ids: list[int]
    score: float


@dataclass(frozen=True)
class Sampling:
    """How the next word is drawn: the more evenly the hotter; temperature 0 is the likeliest word.

    `top_k` keeps the k likeliest words, `top_p` the likeliest that together have probability p. With a seed, each
    sequence draws from a generator of its own that begins with it, so that its words do not depend on its neighbours:
    equal prompts get equal texts. A list of seeds, one for each sequence, makes them differ.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> (written,) = model.write(torch.tensor([[5, 6, 7]]), max_new_tokens=4, sampling=regard.Sampling(0.8, top_k=5, seed=0))
    >>> len(written.ids)
    4
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature: expected 0 (the likeliest word) or more, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k: expected 1 or more, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: expected a share above 0, up to 1, got {self.top_p}")
        if isinstance(self.seed, str | float):
            raise TypeError(f"seed: expected a whole number, or one for each sequence, got {type(self.seed).__name__}")

    def generators(self, batch: int) -> list[torch.Generator]:
        """One for each sequence."""
        if isinstance(self.seed, Sequence):
            if len(self.seed) != batch:
                raise ValueError(f"seed: expected {batch} of them, one for each sequence, got {len(self.seed)}")
            return [torch.Generator().manual_seed(seed) for seed in self.seed]
        if self.seed is None:
            return [torch.Generator().manual_seed(int(torch.randint(1 << 62, ()))) for _ in range(batch)]
        return [torch.Generator().manual_seed(self.seed) for _ in range(batch)]

    def draw(self, logits: Tensor, generators: list[torch.Generator]) -> Tensor:
        """Logits (rows, vocab_size) → ids (rows,), by chance."""
        logits = self._narrowed(logits / self.temperature)
        # The argmax of logits with Gumbel noise is a draw from their distribution.
        uniform = torch.stack([torch.rand(logits.shape[-1], generator=own) for own in generators]).to(logits.device)
        return (logits - (-uniform.clamp(min=1e-20).log()).log()).argmax(-1)

    def _narrowed(self, logits: Tensor) -> Tensor:
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k).values[..., -1:]
            logits = logits.masked_fill(logits < least, -math.inf)
        if self.top_p is not None:
            ordered, order = logits.sort(-1, descending=True)
            mass = log_probabilities(ordered).exp().cumsum(-1)
            beyond = torch.zeros_like(ordered, dtype=torch.bool)
            beyond[..., 1:] = mass[..., :-1] >= self.top_p  # the word that crosses p still belongs to it
            logits = logits.masked_fill(beyond.scatter(-1, order, beyond), -math.inf)
        return logits


GREEDY = Sampling(temperature=0.0)


def checked_way(sampling: Sampling | None, beam_size: int) -> Sampling:
    """How to choose: greedily unless something else is said, and not in two ways at once."""
    if sampling is not None and not isinstance(sampling, Sampling):
        raise TypeError(
            f"sampling: expected a Sampling, such as Sampling(temperature=0.8), got {type(sampling).__name__}"
        )
    if sampling is not None and beam_size > 1:
        raise ValueError(f"sampling: expected none beside beam_size={beam_size}, which does not draw words")
    return GREEDY if sampling is None else sampling


def log_probabilities(logits: Tensor) -> Tensor:
    """Of the next word, from logits (…, vocabulary)."""
    return logits - logits.logsumexp(-1, keepdim=True)


def sampled(
    step: Step,
    state: Any,
    logits: Tensor,
    *,
    sampling: Sampling,
    max_new_tokens: int | Sequence[int],
    eos: int | None = None,
    forbidden: Collection[int] = (),
) -> Iterator[list[tuple[int, int, float]]]:
    """Write on after logits (batch, vocabulary). Each time a list of (sequence, word, its log-probability).

    A sequence that has written the end mark, or `max_new_tokens` words (of each, or one for all), is heard of no more.
    """
    limits = limits_of(max_new_tokens, len(logits))
    alive, generators = list(range(len(logits))), sampling.generators(len(logits))
    for count in range(1, max(limits, default=0) + 1):
        logits = _without(_precise(logits), forbidden)
        best, likeliest = logits.max(-1)
        words = sampling.draw(logits, [generators[number] for number in alive]) if sampling.temperature else likeliest
        chances = logits.gather(-1, words[:, None])[:, 0] - best - (logits - best[:, None]).exp_().sum(-1).log()
        found = words.tolist()
        yield list(zip(alive, found, chances.tolist(), strict=True))
        going = [place for place, word in enumerate(found) if word != eos and count < limits[alive[place]]]
        if not going:
            return
        if len(going) < len(alive):
            rows = torch.tensor(going, device=words.device)
            alive, words, state = [alive[place] for place in going], words[rows], state.select(rows)
        logits, state = step(words[:, None], state)


def limits_of(max_new_tokens: int | Sequence[int], batch: int) -> list[int]:
    """How many words each sequence may write."""
    limits = [max_new_tokens] * batch if isinstance(max_new_tokens, int) else list(max_new_tokens)
    for limit in limits:
        if limit < 1:
            raise ValueError(f"max_new_tokens: expected 1 word or more, got {limit}")
    return limits


def followed(
    steps: Iterator[list[tuple[int, int, float]]], batch: int, eos: int | None, length_penalty: float
) -> list[Hypothesis]:
    """What `sampled` wrote, to its end."""
    ids: list[list[int]] = [[] for _ in range(batch)]
    totals, counts = [0.0] * batch, [0] * batch
    for words in steps:
        for number, word, chance in words:
            totals[number] += chance
            counts[number] += 1
            if word != eos:
                ids[number].append(word)
    scores = (total / max(count, 1) ** length_penalty for total, count in zip(totals, counts, strict=True))
    return [Hypothesis(own, score) for own, score in zip(ids, scores, strict=True)]


def beams(
    step: Step,
    state: Any,
    logits: Tensor,
    *,
    beam_size: int,
    max_new_tokens: int | Sequence[int],
    eos: int | None,
    length_penalty: float = 1.0,
    forbidden: Collection[int] = (),
) -> list[list[Hypothesis]]:
    """The best continuations of each sequence after logits (batch, vocabulary), the best first, `beam_size` at most.

    A sequence is done when it has `beam_size` finished hypotheses, none of which the best unfinished one could still beat if
    it ended now.
    """
    batch, vocab_size = logits.shape
    device = logits.device
    limits = limits_of(max_new_tokens, batch)
    alive = list(range(batch))
    finished: list[list[Hypothesis]] = [[] for _ in alive]
    scores = torch.full((batch, beam_size), -math.inf, device=device)
    scores[:, 0] = 0.0  # all beams are the same at first: only one of them counts
    ids = torch.empty(batch, beam_size, 0, dtype=torch.long, device=device)
    state = state.select(torch.arange(batch, device=device).repeat_interleave(beam_size))
    logits = logits.repeat_interleave(beam_size, 0)
    for length in range(1, max(limits, default=0) + 1):
        chances = log_probabilities(_without(_precise(logits), forbidden)).view(len(alive), beam_size, vocab_size)
        # Of twice as many candidates at most half can end here, so there are always enough to go on with.
        best, index = (scores[..., None] + chances).flatten(1).topk(min(2 * beam_size, beam_size * vocab_size))
        origin, word = index // vocab_size, index % vocab_size
        written = torch.cat([ids.gather(1, origin[..., None].expand(-1, -1, length - 1)), word[..., None]], -1)
        over = word == eos if eos is not None else torch.zeros_like(word, dtype=torch.bool)
        ending = torch.tensor([length == limits[number] for number in alive], device=device)
        over = over | ending[:, None]
        _collect(finished, alive, written, best / length**length_penalty, over[:, :beam_size], eos)
        scores, chosen = best.masked_fill(over, -math.inf).topk(beam_size)
        going = [
            place
            for place, (number, attainable) in enumerate(
                zip(alive, (scores[:, 0] / length**length_penalty).tolist(), strict=True)
            )
            if attainable > -math.inf and (len(finished[number]) < beam_size or attainable > finished[number][-1].score)
        ]
        if not going:
            break
        rows = torch.tensor(going, device=device)
        sequence = rows[:, None] * beam_size + origin[rows].gather(
            1, chosen[rows]
        )  # (going, beam_size), of the state's rows
        ids = written[rows].gather(1, chosen[rows][..., None].expand(-1, -1, length))
        alive, scores = [alive[place] for place in going], scores[rows]
        logits, state = step(ids[..., -1].reshape(-1, 1), state.select(sequence.flatten()))
    return finished


def _collect(
    finished: list[list[Hypothesis]], alive: list[int], written: Tensor, scores: Tensor, over: Tensor, eos: int | None
) -> None:
    """Take note of those that are over, (alive, beam_size), and keep the best of each sequence."""
    beam_size = over.shape[1]
    for place, candidate in over.nonzero().tolist():
        score = float(scores[place, candidate])
        if score > -math.inf:
            ids = written[place, candidate].tolist()
            own = finished[alive[place]]
            own.append(Hypothesis(ids[:-1] if ids[-1] == eos else ids, score))
            own.sort(key=lambda hypothesis: -hypothesis.score)
            del own[beam_size:]


def _precise(logits: Tensor) -> Tensor:
    """Sums over a vocabulary need more digits than half precision has."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _without(logits: Tensor, forbidden: Collection[int]) -> Tensor:
    """Logits in which these words cannot be chosen."""
    if not forbidden:
        return logits
    return logits.index_fill(-1, torch.tensor(sorted(forbidden), device=logits.device), -math.inf)
