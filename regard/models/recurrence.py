"""A GRU with additive attention at every step, trained fast: the loop of `Seq2Seq` with its backward pass written out.

    q_t = W_q h_{t−1}        a_t = masked softmax_j( w · tanh(q_t + key_j) )        c_t = Σ_j a_tj value_j
    r = σ(x_r + g_r)    z = σ(x_z + g_z)    n = tanh(x_n + r g_n)    h_t = n + z (h_{t−1} − n)

where x comes from the token and from c_t, and g = W_h h_{t−1} + b. What does not depend on the step before is computed
for all steps at once: the tokens' part of x before the loop, the gradients of all matrices after it. Keys enter as
e^{2 key}, once for all steps (attention/loops/additive.py). Automatic differentiation would make a product for each
matrix and each step: a training step takes 1.5 to 1.8 times as long with it (benchmarks/ablation.py).

Shapes: batch · n steps · m keys · hidden. The result is that of the loop in seq2seq.py, to rounding.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from regard.arguments import has_values
from regard.attention import Additive, Mask, masked_softmax
from regard.attention.additive import LIMIT, scores_from_exp, slopes_from_exp
from regard.attention.threads import load_kernels
from regard.models.mixers import RNN

REACH = 42.0  # up to where e^{2 query} and e^{2 key} are normal numbers; far before that tanh is 1


def attentive_gru(
    net: RNN, score: nn.Module | None, tokens: Tensor, hidden: Tensor, keys: Tensor, values: Tensor, mask: Mask | None
) -> tuple[Tensor, Tensor] | None:
    """States and contexts (batch, n, hidden) each, for tokens (batch, n, size), a state (batch, hidden) and the rest.

    None where this path does not apply: another cell or score, several layers, not on a CPU, numbers out of range.
    """
    if type(score) is not Additive or net.mode != "GRU" or net.num_layers > 1 or keys.shape[-1] % 4:
        return None
    if not tokens.is_cpu or tokens.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return None
    if not has_values(tokens, keys) or load_kernels("steps", "models") is None or not keys.numel():
        return None
    if not float(keys.detach().abs().amax()) < REACH:
        return None
    size = tokens.shape[-1]
    weight, bias, hidden_weight, hidden_bias = (
        net.get_parameter(f"{name}_l0") for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
    )
    gates = functional.linear(tokens, weight[:, :size], bias)  # (batch, n, 3 · hidden)
    matrices = (score.query_weight, score.value_weight, weight[:, size:], hidden_weight, hidden_bias)
    states, contexts, reach = _AttentiveGRU.apply(gates, hidden, keys, values, *matrices, mask)  # type: ignore[no-untyped-call]
    return (states, contexts) if float(reach) < REACH else None


def _gru_step(x: Tensor, g: Tensor, state: Tensor, saved: Tensor, output: Tensor) -> Tensor:
    """One step of the cell, from x and g (batch, 3 · hidden); saved (4, batch, hidden) is for the backward pass."""
    size = state.shape[1]
    reset, update, new, inner = saved
    torch.sigmoid(x[:, :size] + g[:, :size], out=reset)
    torch.sigmoid(x[:, size : 2 * size] + g[:, size : 2 * size], out=update)
    inner.copy_(g[:, 2 * size :])
    torch.tanh(torch.addcmul(x[:, 2 * size :], reset, inner), out=new)
    return torch.addcmul(new, update, state - new, out=output)


class _AttentiveGRU(torch.autograd.Function):
    """States, contexts, and the largest number in a query."""

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
        exp_keys = keys.mul(2).exp_().mT.contiguous()  # (batch, units, m)
        # The step is the first dimension, so that the numbers of one step are contiguous.
        states, contexts = (gates.new_empty(n, batch, size) for _ in range(2))
        saved, weights = gates.new_empty(n, 4, batch, size), gates.new_empty(n, batch, m)
        exp_queries, reach = gates.new_empty(n, batch, units), gates.new_zeros(())
        state = hidden
        for step in range(n):
            product = torch.addmm(both_bias, state, both.T)  # (batch, units + 3 · hidden)
            query = product[:, :units]
            reach = torch.maximum(reach, query.abs().amax())
            torch.exp(query * 2, out=exp_queries[step])
            scores = scores_from_exp(exp_queries[step][:, None], exp_keys, w, LIMIT[w.dtype])
            weights[step] = masked_softmax(scores, mask)[:, 0]
            torch.bmm(weights[step].unsqueeze(1), values, out=contexts[step].unsqueeze(1))
            x = torch.addmm(gates[:, step], contexts[step], context_weight.T)
            state = _gru_step(x, product[:, units:], state, saved[step], states[step])
        ctx.save_for_backward(
            hidden, values, w, context_weight, both, exp_keys, exp_queries, states, contexts, saved, weights
        )
        ctx.mark_non_differentiable(reach)
        return states.transpose(0, 1), contexts.transpose(0, 1), reach

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor, grad_contexts: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        hidden, values, w, context_weight, both, exp_keys, exp_queries, states, contexts, saved, weights = (
            ctx.saved_tensors
        )
        (n, batch, size), units = states.shape, exp_keys.shape[1]
        grad_gates, grad_products = values.new_empty(n, batch, 3 * size), values.new_empty(n, batch, units + 3 * size)
        grad_scores, grad_context = torch.empty_like(weights), torch.empty_like(contexts)
        grad_keys, grad_w = torch.zeros_like(exp_keys), values.new_zeros(batch, units)
        grad_state = torch.zeros_like(hidden)
        for step in reversed(range(n)):
            grad_state = grad_state + grad_states[:, step]
            before = states[step - 1] if step else hidden
            parts = (grad_state, saved[step], before, grad_gates[step], grad_products[step, :, units:])
            load_kernels("steps", "models").gru_backward(*(part.numpy() for part in parts))
            torch.addmm(grad_contexts[:, step], grad_gates[step], context_weight, out=grad_context[step])
            grad_weights = torch.bmm(values, grad_context[step].unsqueeze(2)).squeeze(2)  # (batch, m)
            centred = grad_weights - (weights[step] * grad_weights).sum(1, keepdim=True)
            torch.mul(weights[step], centred, out=grad_scores[step])
            grad_query, step_w = slopes_from_exp(
                exp_queries[step][:, None], exp_keys, grad_scores[step][:, None], grad_keys
            )
            torch.mul(grad_query[:, 0], 4 * w, out=grad_products[step, :, :units])
            grad_w += step_w[:, 0]
            grad_state.addmm_(grad_products[step], both)
        flat_gates, flat_products = grad_gates.flatten(0, 1), grad_products.flatten(0, 1)
        earlier = torch.cat([hidden[None], states[:-1]]).flatten(0, 1)  # the state before each step
        grad_both = flat_products.T @ earlier
        return (
            grad_gates.transpose(0, 1),
            grad_state,
            grad_keys.mT * (4 * w),
            torch.bmm(weights.permute(1, 2, 0), grad_context.transpose(0, 1)),  # (batch, m, hidden)
            grad_both[:units],
            grad_scores.sum() - 2 * grad_w.sum(0),
            flat_gates.T @ contexts.flatten(0, 1),
            grad_both[units:],
            flat_products[:, units:].sum(0),
            None,
        )
