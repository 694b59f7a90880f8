"""What models do step by step: a few rows times a large matrix, and the backward pass of a GRU."""

import numpy

from regard.attention.loops import Array, carray, compiled, pointer, take, task


@compiled("reassoc", "contract", "nsz", inline=True)
def _products(rows: Array, weight: Array, bias: Array, output: Array, start: int, stop: int) -> None:
    """output[r, n] = Σ_k rows[r, k] · weight[n, k] + bias[n], for n from start to stop; an empty bias is none.

    The matrix is read at four places in turn. A processor fetches ahead at each of them, but not beyond a page of
    memory: at one place it would wait at the beginning of every page.
    """
    count, size = rows.shape
    part, last = (stop - start + 3) // 4, stop - 1
    for n_0 in range(start, start + part):
        n_1, n_2, n_3 = min(n_0 + part, last), min(n_0 + 2 * part, last), min(n_0 + 3 * part, last)
        w_0, w_1, w_2, w_3 = weight[n_0], weight[n_1], weight[n_2], weight[n_3]
        for r in range(count):
            row, sums = rows[r], output[r]
            sum_0 = sum_1 = sum_2 = sum_3 = numpy.float32(0)
            for k in range(size):
                sum_0 += row[k] * w_0[k]
                sum_1 += row[k] * w_1[k]
                sum_2 += row[k] * w_2[k]
                sum_3 += row[k] * w_3[k]
            sums[n_0], sums[n_1], sums[n_2], sums[n_3] = sum_0, sum_1, sum_2, sum_3
    if len(bias):
        for r in range(count):
            for n in range(start, stop):
                output[r, n] += bias[n]


@task
def products(address: int) -> None:
    """rows (count, size) · weight (outputs, size)ᵀ + bias, in shares of so many outputs, until none is left.

    At the address: how many shares are taken · outputs of a share · count · size · outputs · where rows, weight, bias
    (0: none) and output lie.
    """
    _, step, count, size, outputs, rows, weight, bias, output = carray(pointer(address), (9,), numpy.int64)
    start = step * take(address)
    while start < outputs:
        _products(
            carray(pointer(rows), (count, size), numpy.float32),
            carray(pointer(weight), (outputs, size), numpy.float32),
            carray(pointer(bias), (outputs if bias else 0,), numpy.float32),
            carray(pointer(output), (count, outputs), numpy.float32),
            start,
            min(start + step, outputs),
        )
        start = step * take(address)


@compiled("contract")
def gru_backward(grad_state: Array, saved: Array, before: Array, grad_input: Array, grad_hidden: Array) -> None:
    """Gradients of r = σ(·), z = σ(·), n = tanh(· + r · g), h = n + z (before − n), each (batch, hidden).

    `saved` holds r, z, n and g, (batch, 4 hidden). `grad_state` is the gradient of h, and becomes the part of the
    gradient of `before` that does not pass through the gates; grad_input and grad_hidden (batch, 3 hidden) become the
    gradients of what enters r, z and n from the input and from the state.
    """
    batch, hidden = grad_state.shape
    one = grad_state.dtype.type(1)
    for s in range(batch):
        grad, h = grad_state[s], before[s]
        r, z, n, g = (
            saved[s, :hidden],
            saved[s, hidden : 2 * hidden],
            saved[s, 2 * hidden : 3 * hidden],
            saved[s, 3 * hidden :],
        )
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
