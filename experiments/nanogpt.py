"""A GPT of characters in plain torch modules, with nanoGPT's settings for a CPU: what `regard train language` is
measured against.

Settings: https://github.com/karpathy/nanoGPT, "I only have a macbook", and the defaults of its model and its loop. Only
the end differs: it stops after some minutes instead of 2,000 steps, and the learning rate falls with the time.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from experiments.trial import Figures

RATES = (1e-3, 1e-4)  # at the peak, at the end
BETAS = (0.9, 0.99)
WEIGHT_DECAY, CLIP = 0.1, 1.0
WARMUP, EVALUATE_EVERY, EVALUATED = 100, 250, 20  # steps, steps, batches
CHUNK = 64  # windows that are evaluated at once


@dataclass(frozen=True)
class Settings:
    """Sizes of the model and of a batch."""

    layers: int = 4
    heads: int = 4
    size: int = 128
    context: int = 64
    batch: int = 12


TINY = Settings(layers=1, heads=2, size=8, context=16, batch=3)


class Block(nn.Module):
    """Attention and a feed-forward net, each after a norm, without biases or dropout."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        size, self.heads = settings.size, settings.heads
        self.norms = nn.ModuleList(nn.LayerNorm(size, bias=False) for _ in range(2))
        self.query_key_value = nn.Linear(size, 3 * size, bias=False)
        self.mix = nn.Linear(size, size, bias=False)
        self.widen = nn.Linear(size, 4 * size, bias=False)
        self.narrow = nn.Linear(4 * size, size, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        heads = self.query_key_value(self.norms[0](rows)).unflatten(-1, (3, self.heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # (batch, heads, n, size) each
        output = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        rows = rows + self.mix(output.transpose(1, 2).flatten(2))
        return rows + self.narrow(functional.gelu(self.widen(self.norms[1](rows))))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """Ids (batch, n) → logits (batch, n, characters)."""

    def __init__(self, characters: int, settings: Settings) -> None:
        super().__init__()
        self.tokens = nn.Embedding(characters, settings.size)
        self.positions = nn.Embedding(settings.context, settings.size)
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.layers))
        self.norm = nn.LayerNorm(settings.size, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                is_last = name.endswith(("mix.weight", "narrow.weight"))  # of a branch that is added to the rows
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * settings.layers) if is_last else 0.02)

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            rows = block(rows)
        return functional.linear(self.norm(rows), self.tokens.weight)


def work(train: Path, validation: Path, minutes: float, seed: int, tiny: bool) -> Figures:
    """Train on one text; the loss per character of the other one, and its bits per byte."""
    torch.manual_seed(seed)
    settings = TINY if tiny else Settings()
    texts = [path.read_text(encoding="utf-8") for path in (train, validation)]
    numbers = {letter: number for number, letter in enumerate(sorted(set("".join(texts))))}
    ids, held_out = (torch.tensor([numbers[letter] for letter in text]) for text in texts)
    model = GPT(len(numbers), settings)
    steps, seconds = fit(model, ids, held_out, settings, 0.2 if tiny else 60 * minutes)
    loss = evaluate(model, held_out, settings.context)
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "steps": steps,
        "seconds": round(seconds, 1),
        "tokens_per_second": round(steps * settings.batch * settings.context / seconds, 1),
        "loss": loss,
        "bits_per_byte": loss * len(held_out) / math.log(2) / len(texts[1].encode()),
    }


def fit(model: GPT, ids: Tensor, held_out: Tensor, settings: Settings, seconds: float) -> tuple[int, float]:
    """Train for a time, and keep the weights that were best on some held-out batches: how many steps, seconds."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=BETAS)
    start, step, best, kept = time.monotonic(), 0, math.inf, dict[str, Tensor]()
    while (progress := (time.monotonic() - start) / seconds) < 1 or not kept:
        rate = RATES[1] + 0.5 * (1 + math.cos(math.pi * min(progress, 1))) * (RATES[0] - RATES[1])
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / WARMUP)
        batch_loss(model, ids, settings).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % EVALUATE_EVERY == 0 or progress >= 1:
            with torch.no_grad():
                loss = sum(float(batch_loss(model, held_out, settings)) for _ in range(EVALUATED))
            if loss < best:
                best, kept = loss, {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(kept)
    return step, time.monotonic() - start


def batch_loss(model: GPT, ids: Tensor, settings: Settings) -> Tensor:
    """The loss of windows that begin anywhere."""
    starts = torch.randint(len(ids) - settings.context, (settings.batch,))
    places = starts[:, None] + torch.arange(settings.context)
    return functional.cross_entropy(model(ids[places]).flatten(0, 1), ids[places + 1].flatten())


@torch.no_grad()
def evaluate(model: GPT, ids: Tensor, context: int) -> float:
    """The mean loss of all characters but the first, in windows end to end, as regard evaluates."""
    count = (len(ids) - 1) // context
    whole = [(ids[: count * context].view(count, context), ids[1 : count * context + 1].view(count, context))]
    rest = [(ids[None, count * context : -1], ids[None, count * context + 1 :])]
    total = 0.0
    for inputs, targets in whole + rest:
        for rows, expected in zip(inputs.split(CHUNK), targets.split(CHUNK), strict=True):
            total += float(functional.cross_entropy(model(rows).flatten(0, 1), expected.flatten(), reduction="sum"))
    return total / (len(ids) - 1)
