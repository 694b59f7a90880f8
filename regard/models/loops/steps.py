"""What models do step by step: a few rows times a large matrix, and the backward pass of a GRU."""

import numpy

from regard.attention.loops import Array, compiled


@compiled("reassoc", "contract", "nsz")
def products(rows: Array, weight: Array, bias: Array, output: Array, start: int, stop: int) -> None:
    """output[r, n] = Σ_k rows[r, k] · weight[n, k] + bias[n], for n from start to stop; an empty bias is none."""
    count, size = rows.shape
    for n in range(start, stop):
        column = weight[n]
        for r in range(count):
            row = rows[r]
            total = numpy.float32(0)
            for k in range(size):
                total += row[k] * column[k]
            output[r, n] = total + bias[n] if len(bias) else total


@compiled("contract")
def gru_backward(grad_state: Array, saved: Array, before: Array, grad_input: Array, grad_hidden: Array) -> None:
    """Gradients of r = σ(·), z = σ(·), n = tanh(· + r · g), h = n + z (before − n), each (batch, hidden).

    `saved` holds r, z, n and g, (4, batch, hidden). `grad_state` is the gradient of h, and becomes the part of the
    gradient of `before` that does not pass through the gates; grad_input and grad_hidden (batch, 3 hidden) become the
    gradients of what enters r, z and n from the input and from the state.
    """
    batch, hidden = grad_state.shape
    one = grad_state.dtype.type(1)
    for s in range(batch):
        grad, h = grad_state[s], before[s]
        r, z, n, g = saved[0, s], saved[1, s], saved[2, s], saved[3, s]
        x_r, x_z, x_n = grad_input[s, :hidden], grad_input[s, hidden : 2 * hidden], grad_input[s, 2 * hidden :]
        g_r, g_z, g_n = grad_hidden[s, :hidden], grad_hidden[s, hidden : 2 * hidden], grad_hidden[s, 2 * hidden :]
        for d in range(hidden):
            x_n[d] = grad[d] * (one - z[d]) * (one - n[d] * n[d])
        for d in range(hidden):
            x_z[d] = grad[d] * (h[d] - n[d]) * z[d] * (one - z[d])
        for d in range(hidden):
            x_r[d] = x_n[d] * g[d] * r[d] * (one - r[d])
        for d in range(hidden):
            g_n[d] = x_n[d] * r[d]
        for d in range(hidden):
            grad[d] *= z[d]
        for d in range(hidden):
            g_r[d], g_z[d] = x_r[d], x_z[d]


@compiled("reassoc", "contract", "nsz")
def normalize(rows: Array, weight: Array, epsilon: float, output: Array) -> None:
    """Each row divided by the root of the mean of its squares, times the weight."""
    count, size = rows.shape
    for r in range(count):
        row, total = rows[r], numpy.float32(0)
        for k in range(size):
            total += row[k] * row[k]
        scale = numpy.float32(1 / numpy.sqrt(total / size + epsilon))
        for k in range(size):
            output[r, k] = row[k] * scale * weight[k]
