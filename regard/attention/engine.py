"""One call of attention, tile by tile, and its backward pass: neither keeps anything (n × m).

Without gradients each tile is solved and its output put in place. With gradients the whole call is one
`torch.autograd.Function`:

    forward   solves the tiles without a graph
    backward  solves them again, one at a time with a graph, or asks the fused kernel for the gradients

What the backward pass reads is saved through autograd, so PyTorch notices if it was changed in place meanwhile. Outputs
and gradients are allocated before the loop: a small tensor that outlives its tile would keep the heap from shrinking.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import fused
from regard.attention.formula import Call, TileInput, of_batch, solve
from regard.attention.layout import Tile
from regard.attention.masks import additive_mask, zero_hidden
from regard.attention.tiling import Tiles, full_precision, in_blocks, join_blocks, simplest, streamed_tiles
from regard.attention.tracing import recorded, substituted


def solve_tiles(call: Call, tiles: Tiles, query: Tensor, key: Tensor, value: Tensor, needs_grad: bool) -> Tensor:
    """The outputs of all tiles, joined to (B, R, n, value size)."""
    flat = [tile for row in tiles for tile in row]
    # Each tile draws what it drops from a seed of its own, so that it can draw it again.
    seed = int(torch.randint(1 << 62, (), device="cpu")) if call.dropout else None
    run = _Run(call, flat, seed, needs_grad)
    with torch.no_grad():
        output, lse = run.forward(query, key, value)
    if not needs_grad:
        return output
    # What the run has read beside its inputs, once each, those of the mask first.
    of_mask, captured = () if call.mask is None else call.mask.tensors, [] if run.state is None else run.state.captured
    run.tensors = list({id(tensor): tensor for tensor in (*of_mask, *call.tensors(), *captured)}.values())
    inputs = (query, key, value, call.per_head, *run.tensors)
    if not any(x is not None and x.requires_grad for x in inputs):
        return output
    results = [output, lse if any(run.by_kernel) else None]
    attached: Tensor = _Tiled.apply(results, run, *inputs)  # type: ignore[no-untyped-call]
    return attached


class _Tiled(torch.autograd.Function):
    """Attaches the output of a run, which is computed already, to the graph."""

    @staticmethod
    def forward(ctx: Any, results: list[Tensor], run: _Run, *inputs: Tensor | None) -> Tensor:
        output, lse = results
        results.clear()  # else the output would be kept by its own graph
        ctx.run = run
        ctx.save_for_backward(*inputs, None if lse is None else output, lse)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        run: _Run = ctx.run
        query, key, value, per_head, *_, output, lse = ctx.saved_tensors  # PyTorch compares versions here
        inputs = [query, key, value, per_head, *run.tensors]
        with full_precision(query.device):
            if torch.is_grad_enabled():  # create_graph=True: this has to be differentiable itself
                return None, None, *run.differentiable_gradients(inputs, grad)
            return None, None, *run.gradients(inputs, output, lse, grad, ctx.needs_input_grad[2:])


@dataclass
class _Run:
    """The tiles of one call, and what the forward pass leaves for the backward pass beside tensors."""

    call: Call
    tiles: list[Tile]
    seed: int | None
    remember: bool  # whether a backward pass may follow
    tensors: Sequence[Tensor] = ()  # what is read beside the inputs, those of the mask first
    state: _State | None = None  # of a score or a normaliser that is not regard's

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """(output, lse); lse only where the fused kernel was used."""
        output, lse = _empty_output(query, value), query.new_empty(query.shape[:-1])
        self.by_kernel: list[bool] = []
        self.guarded = self.remember and not fused.are_finite(query, key, value)
        if self.remember and self.call.is_foreign:
            self.state = _State(self.call.score, self.call.normalizer)
        pending, self.tiles = self.tiles[::-1], []
        while pending:
            tile = pending.pop()
            given = TileInput(query[tile.at_rows], key[tile.at_keys], value[tile.at_keys])
            solved = self._by_kernel(tile, given)
            if solved is None and self.call.scale is not None:
                smaller = [part for row in streamed_tiles(tile, query.shape[1], self.call.mask) for part in row]
                if len(smaller) > 1:  # the kernel takes tiles of any size, the formula does not
                    pending += smaller[::-1]
                    continue
            self.tiles.append(tile)
            self.by_kernel.append(solved is not None)
            if solved is None:
                with nullcontext() if self.state is None else self.state.noted(given):
                    part = self._solve(len(self.tiles) - 1, given)
                output[tile.at_rows] = part
            elif tile == self.call.layout.whole and solved[0].stride() == output.stride():  # which takes no copy
                return solved[0].to(output.dtype), solved[1].to(lse.dtype)  # a sink may be of another type
            else:
                output[tile.at_rows] = solved[0]
                if self.remember:
                    lse[tile.at_rows] = solved[1]
        return output, lse

    def _by_kernel(self, tile: Tile, given: TileInput) -> tuple[Tensor, Tensor] | None:
        """(output, lse) by the fused kernel; None where it cannot be used or trusted."""
        if self.call.scale is None or not given.key.shape[2]:
            return None
        query, key, value, mask, causal = _kernel_input(self.call, tile, given)
        sink = _for_blocks(of_batch(self.call.per_head, tile), query)
        solved = fused.forward(query, key, value, mask, causal, self.call.scale, sink)
        return None if solved is None else (join_blocks(solved[0], given.query), join_blocks(solved[1], given.query))

    def _solve(self, number: int, given: TileInput, live: Tensor | None = None) -> Tensor:
        tile, seed = self.tiles[number], None if self.seed is None else self.seed + number
        if self.call.scale is not None:  # what the kernel could not do: the whole has not been blanked before
            allowed, _ = self.call.restrictions(tile)
            key, value = zero_hidden(allowed, given.key, given.value)
            given = given._replace(key=key, value=value)
        if self.guarded:
            return solve(self.call, tile, given, live=live, guarded=True, seed=seed)[0]
        output = solve(self.call, tile, given, seed=seed)[0]
        # Without a backward pass it is enough to look at the output, which is smaller than the keys.
        if not self.remember and not fused.are_finite(output):
            return solve(self.call, tile, given, guarded=True, seed=seed)[0]
        return output

    # ------------------------------------------------------------------------------------------------------- backward

    def gradients(
        self, inputs: Sequence[Any], output: Any, lse: Any, grad: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """The gradient of each input that is wanted; output and lse are those of the fused kernel, if it was used."""
        query, key, value, per_head, *tensors = inputs
        if self.by_kernel == [True] and self.tiles == [self.call.layout.whole] and not any(wanted[3:]):
            given = TileInput(query, key, value, None, per_head)
            by_inputs = self._kernel_gradients(self.tiles[0], given, output, lse, grad)
            used = [part if want else None for part, want in zip(by_inputs, wanted[:3], strict=False)]
            return used + [None] * len(inputs[3:])
        sums = [
            tensor.new_zeros(tensor.shape, dtype=torch.promote_types(tensor.dtype, torch.float32))
            if tensor is not None and want
            else None
            for tensor, want in zip(inputs, wanted, strict=True)
        ]
        for number, tile in enumerate(self.tiles):
            rows, keys = tile.at_rows, tile.at_keys
            biased = None if self.call.mask is None or not self.call.mask.learned else self.call.mask.bias(tile)
            given = TileInput(query[rows], key[keys], value[keys], biased, of_batch(per_head, tile))
            if self.by_kernel[number]:
                parts = self._kernel_gradients(tile, given, output[rows], lse[rows], grad[rows])
                others: list[Tensor | None] = []
            else:
                parts, others = self._solved_gradients(number, given, grad[rows], tensors, wanted)
            by_query, by_key, by_value, by_bias, by_head = parts
            for total, place, part in zip(sums, (rows, keys, keys), (by_query, by_key, by_value), strict=False):
                if total is not None and part is not None:
                    total[place] += part
            if sums[3] is not None and by_head is not None:
                of_batch(sums[3], tile).add_(by_head.sum_to_size(of_batch(sums[3], tile).shape))
            for total, part in zip(sums[4:], others, strict=False):
                if total is not None and part is not None:
                    total += part
            if by_bias is not None:
                assert self.call.mask is not None
                learned = {id(t): total for t, total in zip(tensors, sums[4:], strict=True) if total is not None}
                self.call.mask.add_gradient(tile, by_bias, [learned.get(id(t)) for t in self.call.mask.tensors])
        return [
            None if total is None or tensor is None else total.to(tensor.dtype)
            for total, tensor in zip(sums, inputs, strict=True)
        ]

    def _kernel_gradients(
        self, tile: Tile, given: TileInput, output: Tensor, lse: Tensor, grad: Tensor
    ) -> tuple[Tensor | None, ...]:
        """By query, key, value, bias and per_head, from the fused kernel."""
        assert self.call.scale is not None
        query, key, value, mask, causal = _kernel_input(self.call, tile, given)
        # In one layout, because the strides of what comes from the caller would change the last bits of a product; in
        # that of the output, because layers give it so, and there is nothing to copy.
        parts = (output, lse, fused.as_kernel(grad.to(output.dtype)))
        output, lse, grad = (in_blocks(part, len(query) // max(1, len(part))) for part in parts)
        by_head = None
        if given.per_head is not None:
            sink = _for_blocks(given.per_head, query)
            by_head = join_blocks(fused.sink_gradient(grad, output, lse, sink), given.query)
        by_bias = None if given.bias is None else torch.zeros_like(given.bias, dtype=query.dtype)
        parts = fused.backward(grad, query, key, value, output, lse, mask, causal, self.call.scale, by_bias)
        by_query, by_key, by_value = (
            join_blocks(part, whole) for part, whole in zip(parts, (given.query, given.key, given.value), strict=True)
        )
        return by_query, by_key, by_value, by_bias, by_head

    def _solved_gradients(
        self, number: int, given: TileInput, grad: Tensor, tensors: Sequence[Tensor | None], wanted: Sequence[bool]
    ) -> tuple[tuple[Tensor | None, ...], list[Tensor | None]]:
        """By query, key, value, bias and per_head, and by the other tensors, from a graph of this tile alone."""
        wants = (*wanted[:3], given.bias is not None, wanted[3])
        parts = zip(given, wants, strict=True)
        leaves = TileInput(*(None if x is None else x.detach().requires_grad_(want) for x, want in parts))  # type: ignore[arg-type]
        others = [t if want else None for t, want in zip(tensors, wanted[4:], strict=True)]
        # A leaf cannot depend on another of the tensors; of any other, only this use of it may count.
        stand_ins = {t: t.detach().requires_grad_() for t in others if t is not None and not t.is_leaf}
        sources = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
        sources += [stand_ins.get(t, t) for t in others if t is not None]
        # Rows whose output does not count must not spoil the others, if what they see is not finite.
        live = (grad != 0).any(-1, keepdim=True) if self.guarded else None
        with torch.enable_grad(), self._as_before(number), substituted(stand_ins):
            output = self._solve(number, leaves, live)
        if not output.requires_grad or not sources:
            return (None,) * 5, [None] * len(others)
        gradients = iter(torch.autograd.grad(output, sources, grad.to(output.dtype), allow_unused=True))
        by_leaf = tuple(next(gradients) if leaf is not None and leaf.requires_grad else None for leaf in leaves)
        return by_leaf, [None if t is None else next(gradients) for t in others]

    def differentiable_gradients(self, inputs: Sequence[Any], grad: Tensor) -> list[Tensor | None]:
        """The gradients as functions of the inputs and of grad, for second derivatives: with a graph of all."""
        # Aliases, because one input may depend on another, and only its direct use here counts.
        aliases = [None if x is None or not x.requires_grad else x.view_as(x) for x in inputs]
        query, key, value, per_head = (
            tensor if alias is None else alias for tensor, alias in zip(inputs[:4], aliases, strict=False)
        )
        replaced = {x: alias for x, alias in zip(inputs[4:], aliases[4:], strict=True) if alias is not None}
        output = _empty_output(query, value)
        with substituted(replaced):
            for number, tile in enumerate(self.tiles):
                keys, values = key[tile.at_keys], value[tile.at_keys]
                given = TileInput(query[tile.at_rows], keys, values, None, of_batch(per_head, tile))
                with self._as_before(number):
                    output[tile.at_rows] = self._solve(number, given)
        sources = [alias for alias in aliases if alias is not None]
        gradients = iter(torch.autograd.grad(output, sources, grad, create_graph=True, allow_unused=True))
        return [None if alias is None else next(gradients) for alias in aliases]

    def _as_before(self, number: int) -> AbstractContextManager[Any]:
        """With the random numbers and modes that the score had when the tile was solved."""
        return nullcontext() if self.state is None else self.state.restored(number - sum(self.by_kernel[:number]))


# ---------------------------------------------------------------------------------------------- parts of the whole


def _empty_output(query: Tensor, value: Tensor) -> Tensor:
    """(B, R, n, size), in memory as (B, n, R, size): layers put heads side by side, which then takes no copy."""
    batch, sharing, n, _ = query.shape
    width = value.shape[-1]
    strides = (n * sharing * width, width, sharing * width, 1)  # no view, which autograd would not let be changed
    return value.new_empty_strided((batch, sharing, n, width), strides)


def _kernel_input(call: Call, tile: Tile, given: TileInput) -> tuple[Tensor, Tensor, Tensor, Tensor | None, bool]:
    """Query, key and value, in blocks if the tile is made of these, what is added to the scores, and whether they are
    causal."""
    mask, causal, blocks = simplest(call.mask, tile)
    query, key, value = (in_blocks(part, blocks) for part in (given.query, given.key, given.value))
    if mask is None:
        return query, key, value, None, causal
    allowed = mask.allowed(tile)
    added = additive_mask(allowed, mask.bias(tile), query.dtype)
    key, value = zero_hidden(allowed, key, value)
    return query, key, value, added, False


def _for_blocks(per_head: Tensor | None, query: Tensor) -> Any:
    """per_head (B or 1, R or 1, 1, 1), or None, for a query in blocks, (B · blocks, R, n, size)."""
    if per_head is None or per_head.shape[0] in (1, len(query)):
        return per_head
    return per_head.repeat_interleave(len(query) // len(per_head), 0)


# ------------------------------------------------------------------------------------------------ scores with a state


class _State:
    """What modules that are not regard's may depend on: other tensors, random numbers, train() or eval()."""

    def __init__(self, *modules: nn.Module) -> None:
        self.training = {part: part.training for module in modules for part in module.modules()}
        self.random: list[Tensor] = []  # states of the generator before each tile
        self.captured: list[Tensor] = []

    @contextmanager
    def noted(self, given: TileInput) -> Iterator[None]:
        """Solve a tile in this block."""
        first = not self.random
        self.random.append(torch.get_rng_state())
        recording: AbstractContextManager[dict[int, Tensor]] = recorded(given) if first else nullcontext({})
        with recording as captured:
            yield
        self.captured += captured.values()

    @contextmanager
    def restored(self, number: int) -> Iterator[None]:
        """As it was when the tile of this number was solved, counted among those that noted() was called for."""
        modes = {module: module.training for module in self.training}
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random[number])
            try:
                for module, training in self.training.items():
                    module.training = training
                yield
            finally:
                for module, training in modes.items():
                    module.training = training
