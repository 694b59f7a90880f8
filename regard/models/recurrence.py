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
    names = ("weight_ih_l0", "bias_ih_l0", "weight_hh_l0", "bias_hh_l0")
    matrices = (score.query_weight, score.value_weight, *map(net.get_parameter, names))
    states, contexts, reach = _AttentiveGRU.apply(tokens, hidden, keys, values, *matrices, mask)  # type: ignore[no-untyped-call]
    return (states, contexts) if float(reach) < REACH else None


def _gru_step(x: Tensor, g: Tensor, state: Tensor, saved: Tensor, output: Tensor) -> Tensor:
    """One step of the cell, from x and g (batch, 3 · hidden); saved (batch, 4 · hidden) is for the backward pass."""
    size = state.shape[1]
    gates, new, inner = saved.split((2 * size, size, size), 1)
    torch.sigmoid(x[:, : 2 * size] + g[:, : 2 * size], out=gates)
    inner.copy_(g[:, 2 * size :])
    torch.tanh(torch.addcmul(x[:, 2 * size :], gates[:, :size], inner), out=new)
    return torch.addcmul(new, gates[:, size:], state - new, out=output)


class _AttentiveGRU(torch.autograd.Function):
    """States, contexts, and the largest number in a query."""

    @staticmethod
    def forward(
        ctx: Any,
        tokens: Tensor,
        hidden: Tensor,
        keys: Tensor,
        values: Tensor,
        query_weight: Tensor,
        w: Tensor,
        weight: Tensor,
        bias: Tensor,
        hidden_weight: Tensor,
        hidden_bias: Tensor,
        mask: Mask | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        (batch, n, width), (m, units), size = tokens.shape, keys.shape[1:], hidden.shape[1]
        both = torch.cat([query_weight, hidden_weight])  # what the state is multiplied by
        both_bias = torch.cat([hidden_bias.new_zeros(units), hidden_bias])
        exp_keys = keys.mul(2).exp_().mT.contiguous()  # (batch, units, m)
        # The step is the first dimension, so that the numbers of one step are contiguous.
        inputs = tokens.new_empty(n, batch, width + size)  # tokens and contexts
        inputs[..., :width] = tokens.transpose(0, 1)
        contexts, gates = inputs[..., width:], functional.linear(inputs[..., :width], weight[:, :width], bias)
        states, saved = tokens.new_empty(n, batch, size), tokens.new_empty(n, batch, 4 * size)
        weights, exp_queries = tokens.new_empty(n, batch, m), tokens.new_empty(n, batch, units)
        state = hidden
        for step in range(n):
            product = torch.addmm(both_bias, state, both.T)  # (batch, units + 3 · hidden)
            torch.exp(product[:, :units] * 2, out=exp_queries[step])
            scores = scores_from_exp(exp_queries[step][:, None], exp_keys, w, LIMIT[w.dtype])
            weights[step] = masked_softmax(scores, mask)[:, 0]
            context = torch.bmm(weights[step].unsqueeze(1), values).squeeze(1)
            contexts[step] = context
            x = torch.addmm(gates[step], context, weight[:, width:].T)
            state = _gru_step(x, product[:, units:], state, saved[step], states[step])
        ctx.save_for_backward(hidden, values, w, weight, both, exp_keys, exp_queries, states, inputs, saved, weights)
        reach = torch.stack(exp_queries.aminmax()).log().abs().max() / 2
        ctx.mark_non_differentiable(reach)
        return states.transpose(0, 1), contexts.transpose(0, 1), reach

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Tensor, grad_contexts: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        hidden, values, w, weight, both, exp_keys, exp_queries, states, inputs, saved, weights = ctx.saved_tensors
        (n, batch, size), units, width = states.shape, exp_keys.shape[1], inputs.shape[2] - states.shape[2]
        grad_gates, grad_products = values.new_empty(n, batch, 3 * size), values.new_empty(n, batch, units + 3 * size)
        grad_scores, grad_context = torch.empty_like(weights), torch.empty_like(states)
        grad_keys, grad_w = torch.zeros_like(exp_keys), values.new_zeros(batch, units)
        grad_state = torch.zeros_like(hidden)
        for step in reversed(range(n)):
            grad_state = grad_state + grad_states[:, step]
            before = states[step - 1] if step else hidden
            parts = (grad_state, saved[step], before, grad_gates[step], grad_products[step, :, units:])
            load_kernels("steps", "models").gru_backward(*(part.numpy() for part in parts))
            torch.addmm(grad_contexts[:, step], grad_gates[step], weight[:, width:], out=grad_context[step])
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
            (grad_gates @ weight[:, :width]).transpose(0, 1),
            grad_state,
            grad_keys.mT * (4 * w),
            torch.bmm(weights.permute(1, 2, 0), grad_context.transpose(0, 1)),  # (batch, m, hidden)
            grad_both[:units],
            grad_scores.sum() - 2 * grad_w.sum(0),
            flat_gates.T @ inputs.flatten(0, 1),
            flat_gates.sum(0),
            grad_both[units:],
            flat_products[:, units:].sum(0),
            None,
        )
