"""Generation, token by token, with any model that can take a step:

    step(ids (rows, 1), state) → logits (rows, vocabulary) of the next token, and the state after it

`sample` follows one continuation of each sequence: the likeliest token, or one drawn at random. `beam_search` follows
several and returns the best. In both, the result of a sequence does not depend on the others in the batch, and
finished sequences leave the batch.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.arguments import check_marks, check_size
from regard.errors import RegardError
from regard.models.model import Model, evaluated
from regard.models.texts import padded

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]
NewTokens = list[tuple[int, int, float]]  # (sequence, token, its log-probability)


@dataclass(frozen=True)
class Hypothesis:
    """Generated ids without the eos token, and log-probability / length^length_penalty, the eos token included."""

    ids: list[int]
    score: float


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn.

    temperature: the higher, the more even the probabilities; 0 takes the likeliest token · top_k: draw from the k
    likeliest tokens (of equal ones those with the lowest ids) · top_p: draw from the likeliest tokens that together
    have probability p · seed: each sequence draws from a generator of its own with this seed, so that its tokens do not
    depend on the rest of the batch, and equal prompts get equal texts; a list of seeds, one for each sequence, makes
    them differ; None is a random seed.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> sampling = regard.Sampling(0.8, top_k=5, seed=0)
    >>> (hypothesis,) = model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=4, sampling=sampling)
    >>> len(hypothesis.ids)
    4
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | Sequence[int] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature: expected 0 (the likeliest token) or more, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k: expected 1 or more, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: expected a probability above 0, up to 1, got {self.top_p}")
        if isinstance(self.seed, str | float):
            raise TypeError(f"seed: expected a whole number, or one for each sequence, got {type(self.seed).__name__}")

    def make_generators(self, batch: int) -> list[torch.Generator]:
        """One for each sequence."""
        seeds = self.seed if isinstance(self.seed, Sequence) else [self.seed] * batch
        if len(seeds) != batch:
            raise ValueError(f"seed: expected {batch} of them, one for each sequence, got {len(seeds)}")
        seeds = [int(torch.randint(1 << 62, ())) if seed is None else seed for seed in seeds]
        return [torch.Generator().manual_seed(seed) for seed in seeds]

    def draw(self, logits: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """Logits (rows, vocabulary) → ids (rows,), at random."""
        # Relative to the largest one, because what a low temperature makes of them may be beyond float32.
        relative = logits - logits.amax(-1, keepdim=True)
        logits = self._restrict(relative / max(self.temperature, torch.finfo(logits.dtype).tiny))
        # The argmax of logits with Gumbel noise is a draw from their distribution.
        uniform = torch.stack([torch.rand(logits.shape[-1], generator=generator) for generator in generators])
        noise = -(-uniform.to(logits.device).clamp(min=1e-20).log()).log()
        return (logits + noise).argmax(-1)

    def _restrict(self, logits: Tensor) -> Tensor:
        """Logits in which only the tokens of top_k and top_p can be drawn."""
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k).values[..., -1:]
            below, tied = logits < least, logits == least
            room = self.top_k - (logits > least).sum(-1, keepdim=True)  # what larger logits leave for the tied ones
            logits = logits.masked_fill(below | (tied & (tied.cumsum(-1) > room)), -math.inf)
        if self.top_p is not None:
            ordered, order = logits.sort(-1, descending=True)
            mass = log_probabilities(ordered, ordered, ordered[..., :1]).exp().cumsum(-1)
            beyond = torch.zeros_like(ordered, dtype=torch.bool)
            beyond[..., 1:] = mass[..., :-1] >= self.top_p  # the token that crosses p still belongs to it
            logits = logits.masked_fill(beyond.scatter(-1, order, beyond), -math.inf)
        return logits


GREEDY = Sampling(temperature=0.0)


def log_probabilities(chosen: Tensor, logits: Tensor, best: Tensor) -> Tensor:
    """Of tokens with the chosen logits (rows, count); all are (rows, vocabulary), the best (rows, 1)."""
    return chosen - best - (logits - best).exp_().sum(-1, keepdim=True).log()


class GenerativeModel(Model):
    """A model that generates tokens: subclasses give the methods that raise NotImplementedError here."""

    def __init__(self, arguments: Mapping[str, Any], **choices: Collection[str]) -> None:
        super().__init__(arguments, **choices)
        vocab_size: Any = self.config.get("target_vocab_size", self.config.get("vocab_size"))
        check_marks(vocab_size, **{name: self.config.get(name) for name in ("bos", "eos", "forbidden")})

    def start(self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None) -> tuple[Tensor, Any]:
        """Logits (batch, vocabulary) of the first token after prompts (batch, n), and the state for `step`."""
        raise NotImplementedError(f"{type(self).__name__} must define start")

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits (rows, vocabulary) of the token after ids (rows, n), and the state after them."""
        raise NotImplementedError(f"{type(self).__name__} must define step")

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each prompt."""
        raise NotImplementedError(f"{type(self).__name__} must define encode_prompts")

    def decode_output(self, prompt: list[int], ids: list[int]) -> str:
        """The text of what was generated after a prompt."""
        raise NotImplementedError(f"{type(self).__name__} must define decode_output")

    def token_limit(self, max_new_tokens: int) -> int:
        """max_new_tokens, or fewer where the model has no positions for so many."""
        return max_new_tokens

    @evaluated
    @torch.inference_mode()
    def generate(
        self,
        prompt: Tensor | str | Sequence[str],
        lengths: Tensor | Sequence[int] | None = None,
        *,
        max_new_tokens: int = 128,
        sampling: Sampling | None = None,
        beam_size: int = 1,
        length_penalty: float = 1.0,
    ) -> Any:
        """What the model writes for a prompt, up to its eos token.

        prompt: a text → a text; several texts → a list of texts; ids (batch, n), with `lengths` (batch,) where they are
        padded → a list of one Hypothesis for each sequence · max_new_tokens: at most · sampling: how tokens are drawn,
        the likeliest ones unless given · beam_size: if more than 1, the best hypothesis of a beam search ·
        length_penalty: scores are log-probability / length^length_penalty.
        A prompt that is too long for the model is cut, with a CutWarning: a language model reads its end, and goes on
        past its max_positions by reading the last max_positions tokens; a translator reads the beginning of a text.
        """
        check_sampling(sampling, check_size("beam_size", beam_size))
        if isinstance(prompt, Tensor):
            ids = prompt
        else:
            texts = [prompt] if isinstance(prompt, str) else prompt
            if not isinstance(texts, Sequence):
                raise TypeError(f"prompt: expected a text, several, or a tensor of ids, got {type(prompt).__name__}")
            if lengths is not None:
                raise ValueError("lengths: expected none for texts, which have their own")
            if not texts:
                return []
            prompts = self.encode_prompts(texts)
            ids, lengths = padded(prompts)
            ids = ids.to(self.device)
        if beam_size > 1:
            options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "length_penalty": length_penalty}
            hypotheses = [best for best, *_ in self.beam_search(ids, lengths, beam_size=beam_size, **options)]
        else:
            logits, state = self.start(ids, lengths)
            limit = self.token_limit(max_new_tokens)
            steps = sample(self.step, state, logits, sampling=sampling, max_new_tokens=limit, **self._special_tokens())
            hypotheses = collect(steps, len(ids), self.config["eos"], length_penalty)
        if isinstance(prompt, Tensor):
            return hypotheses
        outputs = [self.decode_output(before, best.ids) for before, best in zip(prompts, hypotheses, strict=True)]
        return outputs[0] if isinstance(prompt, str) else outputs

    @evaluated
    @torch.inference_mode()
    def beam_search(
        self,
        ids: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        beam_size: int,
        max_new_tokens: int = 128,
        length_penalty: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """The beam_size best hypotheses for each prompt (batch, n), the best first; arguments as in `generate`."""
        logits, state = self.start(ids, lengths)
        return beam_search(
            self.step,
            state,
            logits,
            beam_size=check_size("beam_size", beam_size),
            max_new_tokens=self.token_limit(max_new_tokens),
            length_penalty=length_penalty,
            **self._special_tokens(),
        )

    def _special_tokens(self) -> dict[str, Any]:
        return {"eos": self.config["eos"], "forbidden": self.config.get("forbidden", ())}


def check_sampling(sampling: Sampling | None, beam_size: int) -> None:
    """A Sampling, and not beside a beam search."""
    if sampling is not None and not isinstance(sampling, Sampling):
        raise TypeError(
            f"sampling: expected a Sampling, such as Sampling(temperature=0.8), got {type(sampling).__name__}"
        )
    if sampling is not None and beam_size > 1:
        raise ValueError(f"sampling: expected none beside beam_size={beam_size}, which does not draw tokens")


def sample(
    step: Step,
    state: Any,
    logits: Tensor,
    *,
    sampling: Sampling | None = None,
    max_new_tokens: int,
    eos: int | None = None,
    forbidden: Collection[int] = (),
) -> Iterator[NewTokens]:
    """Continue after logits (batch, vocabulary), greedily unless there is a sampling: the new tokens of each step.

    A sequence ends with the eos token, or after `max_new_tokens` tokens.
    """
    sampling = GREEDY if sampling is None else sampling
    check_limit(max_new_tokens)
    alive, generators = list(range(len(logits))), sampling.make_generators(len(logits))
    for count in range(1, max_new_tokens + 1):
        logits = _allow(logits, forbidden)
        best, likeliest = logits.max(-1, keepdim=True)
        drawn = likeliest[:, 0]
        if sampling.temperature:
            drawn = sampling.draw(logits, [generators[number] for number in alive])
        scores = log_probabilities(logits.gather(-1, drawn[:, None]), logits, best)[:, 0]
        tokens = drawn.tolist()
        yield list(zip(alive, tokens, _check_numbers(scores.tolist()), strict=True))
        going = [row for row, token in enumerate(tokens) if token != eos]
        if not going or count == max_new_tokens:
            return
        if len(going) < len(alive):
            rows = torch.tensor(going, device=drawn.device)
            alive, drawn, state = [alive[row] for row in going], drawn[rows], state.select(rows)
        logits, state = step(drawn[:, None], state)


def check_limit(max_new_tokens: int) -> None:
    """At least one token."""
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens: expected 1 token or more, got {max_new_tokens}")


def collect(steps: Iterator[NewTokens], batch: int, eos: int | None, length_penalty: float = 1.0) -> list[Hypothesis]:
    """What `sample` generates, one hypothesis for each sequence."""
    tokens: list[list[int]] = [[] for _ in range(batch)]
    totals = [0.0] * batch
    for new_tokens in steps:
        for number, token, log_probability in new_tokens:
            tokens[number].append(token)
            totals[number] += log_probability
    scores = [total / max(len(ids), 1) ** length_penalty for total, ids in zip(totals, tokens, strict=True)]
    return [_hypothesis(ids, eos, score) for ids, score in zip(tokens, scores, strict=True)]


def _hypothesis(tokens: list[int], eos: int | None, score: float) -> Hypothesis:
    return Hypothesis(tokens[:-1] if tokens[-1:] == [eos] else tokens, score)


def beam_search(
    step: Step,
    state: Any,
    logits: Tensor,
    *,
    beam_size: int,
    max_new_tokens: int,
    eos: int | None,
    length_penalty: float = 1.0,
    forbidden: Collection[int] = (),
) -> list[list[Hypothesis]]:
    """The best continuations of each sequence after logits (batch, vocabulary), the best first, `beam_size` at most.

    A sequence is done when it has `beam_size` finished hypotheses, and the best unfinished one could not beat any of
    them if it ended now.
    """
    batch, device = len(logits), logits.device
    count = min(2 * beam_size, logits.shape[-1])  # of candidates after each beam
    check_limit(max_new_tokens)
    alive = list(range(batch))
    finished: list[list[Hypothesis]] = [[] for _ in alive]
    scores = torch.full((batch, beam_size), -math.inf, device=device)
    scores[:, 0] = 0.0  # all beams are the same at first: only one of them counts
    ids = torch.empty(batch, beam_size, 0, dtype=torch.long, device=device)
    state = state.select(torch.arange(batch, device=device).repeat_interleave(beam_size))
    logits = logits.repeat_interleave(beam_size, 0)
    for length in range(1, max_new_tokens + 1):
        scale = length**length_penalty
        logits = _allow(logits, forbidden)
        # Of twice as many candidates at most half can end here, so there are always enough to go on with.
        highest, tokens = logits.topk(count)  # (beams, count)
        log_p = log_probabilities(highest, logits, highest[:, :1])
        totals = scores[..., None] + log_p.view(len(alive), beam_size, count)
        best, index = totals.flatten(1).topk(min(2 * beam_size, beam_size * count))
        _check_numbers(best[:, 0].tolist())  # NaN counts as the largest
        origin, token = index // count, tokens.view(len(alive), -1).gather(1, index)
        candidates = torch.cat([ids.gather(1, origin[..., None].expand(-1, -1, length - 1)), token[..., None]], -1)
        over = torch.full_like(token, length == max_new_tokens, dtype=torch.bool)
        over = over if eos is None else over | (token == eos)
        _collect_finished(finished, alive, candidates, best / scale, over[:, :beam_size], eos)
        scores, chosen = best.masked_fill(over, -math.inf).topk(beam_size)
        going = []
        for row, attainable in enumerate((scores[:, 0] / scale).tolist()):
            hypotheses = finished[alive[row]]
            if attainable > -math.inf and (len(hypotheses) < beam_size or attainable > hypotheses[-1].score):
                going.append(row)
        if not going:
            break
        rows = torch.tensor(going, device=device)
        origins = rows[:, None] * beam_size + origin[rows].gather(1, chosen[rows])  # (going, beam_size), in the state
        ids = candidates[rows].gather(1, chosen[rows][..., None].expand(-1, -1, length))
        alive, scores = [alive[row] for row in going], scores[rows]
        logits, state = step(ids[..., -1].reshape(-1, 1), state.select(origins.flatten()))
    return finished


def _collect_finished(
    finished: list[list[Hypothesis]],
    alive: list[int],
    candidates: Tensor,
    scores: Tensor,
    over: Tensor,
    eos: int | None,
) -> None:
    """Add the candidates that are over, (alive, beam_size), and keep the best of each sequence."""
    beam_size = over.shape[1]
    for row, candidate in over.nonzero().tolist():
        score = float(scores[row, candidate])
        if score > -math.inf:
            hypotheses = finished[alive[row]]
            hypotheses.append(_hypothesis(candidates[row, candidate].tolist(), eos, score))
            hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
            del hypotheses[beam_size:]


def _check_numbers(scores: list[float]) -> list[float]:
    """Log-probabilities of tokens that were chosen; RegardError where they are NaN, and so the choice means nothing."""
    if any(map(math.isnan, scores)):
        raise RegardError("logits: expected numbers, got NaN or infinity: the model's weights are damaged or diverged")
    return scores


def _allow(logits: Tensor, forbidden: Collection[int]) -> Tensor:
    """Logits in which these tokens cannot be chosen, in float32: sums over a vocabulary need more than half of that."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if not forbidden:
        return logits
    return logits.index_fill(-1, torch.tensor(sorted(forbidden), device=logits.device), -math.inf)
