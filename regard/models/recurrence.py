"""A GRU that looks back at every step, trained fast: the loop of `Seq2Seq` with its backward pass written out.

    q_t = W_q h_{t−1}        a_t = masked softmax_j( w · tanh(q_t + key_j) )        c_t = Σ_j a_tj value_j
    r = σ(x_r + g_r)    z = σ(x_z + g_z)    n = tanh(x_n + r g_n)    h_t = n + z (h_{t−1} − n)

where x comes from the word and from c_t, and g = W_h h_{t−1} + b. What does not depend on the step before is computed
for all steps at once: the words' share of x before the loop, the gradients of all matrices after it. Keys enter as
e^{2 key}, once for all steps (loops/additive.py). Automatic differentiation would make a product for each matrix and
each step, and take longer.

Shapes: batch · n steps · m keys · hidden. The result is that of the loop in seq2seq.py, to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from regard.attention import Additive, Mask, masked_softmax
from regard.attention.additive import LIMIT, scores_from_exp, slopes_from_exp
from regard.attention.threads import load_kernels

__all__ = ["attentive_gru"]

REACH = 42.0  # up to where e^{2 query} and e^{2 key} are normal numbers; far before that tanh is 1


def attentive_gru(
    net: nn.RNNBase,
    score: nn.Module | None,
    words: Tensor,
    hidden: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Mask | None,
) -> tuple[Tensor, Tensor] | None:
    """States and contexts (batch, n, hidden) each, for words (batch, n, size), a state (batch, hidden) and the rest.

    None where this way does not apply: another cell or score, several layers, not on a CPU, numbers out of reach.
    """
    if type(score) is not Additive or type(net) is not nn.GRU or net.num_layers > 1 or keys.shape[-1] % 4:
        return None
    if not words.is_cpu or words.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return None
    if load_kernels("recurrent") is None or torch.compiler.is_compiling() or not keys.numel():
        return None
    if not float(keys.detach().abs().amax()) < REACH:
        return None
    size = words.shape[-1]
    weight, bias, hidden_weight, hidden_bias = (
        net.get_parameter(f"{name}_l0") for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
    )
    gates = functional.linear(words, weight[:, :size], bias)  # (batch, n, 3 · hidden)
    matrices = (score.query_weight, score.value_weight, weight[:, size:], hidden_weight, hidden_bias)
    states, contexts, reach = _Attentive.apply(gates, hidden, keys, values, *matrices, mask)  # type: ignore[no-untyped-call]
    return (states, contexts) if float(reach) < REACH else None


def _advance(entering: Tensor, own: Tensor, state: Tensor, saved: Tensor, place: Tensor) -> Tensor:
    """One step of the cell, from x and g (batch, 3 · hidden); saved (4, batch, hidden) is for the way back."""
    size = state.shape[1]
    reset, update, new, inner = saved
    torch.sigmoid(entering[:, :size] + own[:, :size], out=reset)
    torch.sigmoid(entering[:, size : 2 * size] + own[:, size : 2 * size], out=update)
    inner.copy_(own[:, 2 * size :])
    torch.tanh(torch.addcmul(entering[:, 2 * size :], reset, inner), out=new)
    return torch.addcmul(new, update, state - new, out=place)


class _Attentive(torch.autograd.Function):
    """States, contexts, and how far queries reach."""

    @staticmethod
    def forward(
        ctx: Any,
        gates: Tensor,
        hidden: Tensor,
        keys: Tensor,
        values: Tensor,
        query_weight: Tensor,
        w: Tensor,
        context_weight: Tensor,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
        mask: Mask | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        (batch, n, _), (m, units), size = gates.shape, keys.shape[1:], hidden.shape[1]
        both = torch.cat([query_weight, hidden_weight])  # what the state is multiplied by
        both_bias = torch.cat([hidden_bias.new_zeros(units), hidden_bias])
        far_keys = keys.mul(2).exp_().mT.contiguous()  # (batch, units, m)
        # Step by step in front, so that each step's share is in one piece.
        states, contexts = (gates.new_empty(n, batch, size) for _ in range(2))
        saved, looks = gates.new_empty(n, 4, batch, size), gates.new_empty(n, batch, m)
        far_queries, reach = gates.new_empty(n, batch, units), gates.new_zeros(())
        state = hidden
        for step in range(n):
            product = torch.addmm(both_bias, state, both.T)  # (batch, units + 3 · hidden)
            query = product[:, :units]
            reach = torch.maximum(reach, query.abs().amax())
            torch.exp(query * 2, out=far_queries[step])
            looks[step] = masked_softmax(
                scores_from_exp(far_queries[step][:, None], far_keys, w, LIMIT[w.dtype]), mask
            )[:, 0]
            torch.bmm(looks[step].unsqueeze(1), values, out=contexts[step].unsqueeze(1))
            entering = torch.addmm(gates[:, step], contexts[step], context_weight.T)
            state = _advance(entering, product[:, units:], state, saved[step], states[step])
        ctx.save_for_backward(
            hidden, values, w, context_weight, both, far_keys, far_queries, states, contexts, saved, looks
        )
        ctx.mark_non_differentiable(reach)
        return states.transpose(0, 1), contexts.transpose(0, 1), reach

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_states: Tensor, by_contexts: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        hidden, values, w, context_weight, both, far_keys, far_queries, states, contexts, saved, looks = (
            ctx.saved_tensors
        )
        (n, batch, size), units = states.shape, far_keys.shape[1]
        by_gates, by_products = values.new_empty(n, batch, 3 * size), values.new_empty(n, batch, units + 3 * size)
        by_looks, by_context = torch.empty_like(looks), torch.empty_like(contexts)
        by_keys, by_w = torch.zeros_like(far_keys), values.new_zeros(batch, units)
        by_state = torch.zeros_like(hidden)
        for step in reversed(range(n)):
            by_state = by_state + by_states[:, step]
            before = states[step - 1] if step else hidden
            parts = (by_state, saved[step], before, by_gates[step], by_products[step, :, units:])
            load_kernels("recurrent").step_back(*(part.numpy() for part in parts))
            torch.addmm(by_contexts[:, step], by_gates[step], context_weight, out=by_context[step])
            by_weights = torch.bmm(values, by_context[step].unsqueeze(2)).squeeze(2)  # (batch, m)
            look = looks[step]
            torch.mul(look, by_weights - (look * by_weights).sum(1, keepdim=True), out=by_looks[step])
            by_query, own_w = slopes_from_exp(far_queries[step][:, None], far_keys, by_looks[step][:, None], by_keys)
            torch.mul(by_query[:, 0], 4 * w, out=by_products[step, :, :units])
            by_w += own_w[:, 0]
            by_state.addmm_(by_products[step], both)
        flat_gates, flat_products = by_gates.flatten(0, 1), by_products.flatten(0, 1)
        earlier = torch.cat([hidden[None], states[:-1]]).flatten(0, 1)  # the state before each step
        by_both = flat_products.T @ earlier
        return (
            by_gates.transpose(0, 1),
            by_state,
            by_keys.mT * (4 * w),
            torch.bmm(looks.permute(1, 2, 0), by_context.transpose(0, 1)),  # (batch, m, hidden)
            by_both[:units],
            by_looks.sum() - 2 * by_w.sum(0),
            flat_gates.T @ contexts.flatten(0, 1),
            by_both[units:],
            flat_products[:, units:].sum(0),
            None,
        )
