"""The way back through one step of a GRU, element by element. In short loops, of which each is vectorised."""

from __future__ import annotations

from regard.attention.loops import Array, compiled


@compiled("contract")
def step_back(by_state: Array, saved: Array, before: Array, by_input: Array, by_hidden: Array) -> None:
    """Gradients of r = σ(·), z = σ(·), n = tanh(· + r · g), h = n + z (before − n), each (batch, hidden).

    `saved` holds r, z, n and g, (4, batch, hidden). `by_state` is the gradient of h, and becomes the share of `before`
    that does not go through the gates; by_input and by_hidden (batch, 3 hidden) become those of what enters r, z and n
    from the input and from the state.
    """
    batch, hidden = by_state.shape
    one = by_state.dtype.type(1)
    for s in range(batch):
        own, h = by_state[s], before[s]
        r, z, n, g = saved[0, s], saved[1, s], saved[2, s], saved[3, s]
        x_r, x_z, x_n = by_input[s, :hidden], by_input[s, hidden : 2 * hidden], by_input[s, 2 * hidden :]
        g_r, g_z, g_n = by_hidden[s, :hidden], by_hidden[s, hidden : 2 * hidden], by_hidden[s, 2 * hidden :]
        for d in range(hidden):
            x_n[d] = own[d] * (one - z[d]) * (one - n[d] * n[d])
        for d in range(hidden):
            x_z[d] = own[d] * (h[d] - n[d]) * z[d] * (one - z[d])
        for d in range(hidden):
            x_r[d] = x_n[d] * g[d] * r[d] * (one - r[d])
        for d in range(hidden):
            g_n[d] = x_n[d] * r[d]
        for d in range(hidden):
            own[d] *= z[d]
        g_r[:] = x_r
        g_z[:] = x_z
