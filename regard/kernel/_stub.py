"""Brute force, until the engines land."""

from dataclasses import dataclass

import numpy
import torch

from regard.attention.kernels import KERNELS
from regard.kernel import sums_nd as old
from regard.kernel.local import monomials

nearest_others, spatial_order = old.nearest_others, old.spatial_order
Form = str


def logk(name, u):
    k = KERNELS[name]
    u = torch.tensor(u)
    out = (u > 1 if k.edge else u >= 1) if k.compact else torch.zeros_like(u, dtype=bool)
    return k.log(u.masked_fill(out, 0)).masked_fill(out, -torch.inf).numpy()


@dataclass(frozen=True)
class KernelND:
    name: str
    widths: numpy.ndarray
    units: numpy.ndarray
    product: bool = False
    periods: object = None
    tables: tuple = ()
    table_slopes: tuple = ()


class SamplesND:
    def __init__(self, points, columns, codes=None):
        self.points, self.columns, self.codes = points, columns, codes

    def _k(self, kernel, q, codes, left_out, scales):
        d = self.points[None] - q[:, None]
        chord, basis = d.copy(), d.copy()
        if kernel.periods is not None:
            for a, P in enumerate(kernel.periods):
                if numpy.isfinite(P):
                    chord[..., a] = P / numpy.pi * numpy.sin(numpy.pi * d[..., a] / P)
                    basis[..., a] = P / 2 / numpy.pi * numpy.sin(2 * numpy.pi * d[..., a] / P)
        v = chord / kernel.widths
        if scales is not None:
            v = v / scales[:, None, None]
        if kernel.product:
            L = logk(kernel.name, numpy.abs(v)).sum(-1)
        else:
            L = logk(kernel.name, numpy.sqrt((v**2).sum(-1)))
        with numpy.errstate(divide="ignore"):
            for f, t in enumerate(kernel.tables):
                L = L + numpy.log(t)[codes[:, f]][:, self.codes[:, f]]
        if left_out is not None:
            for i, (a, b) in enumerate(left_out):
                L[i, a:b] = -numpy.inf
        if kernel.name in ("gaussian", "laplace"):
            top = L.max(1, keepdims=True)
            top[~numpy.isfinite(top)] = 0
            top[top > -200] = 0
            L = L - top
        return numpy.exp(L), v, basis / kernel.units

    def sums(self, kernel, queries, codes=None, *, order=0, form="kernel", left_out=None, scales=None, tolerance=1e-12):
        out = []
        for s in range(0, len(queries), 200):
            sl = slice(s, s + 200)
            K, v, b = self._k(
                kernel,
                queries[sl],
                None if codes is None else codes[sl],
                None if left_out is None else left_out[sl],
                None if scales is None else scales[sl],
            )
            if form == "squared":
                K = K**2
            rows = [
                numpy.prod([b[..., f] for f in m] or [numpy.ones_like(K)], axis=0)
                for m in monomials(self.points.shape[1], order)
            ]
            out.append(numpy.stack([(K * r) @ self.columns for r in rows], 1))
        return (
            numpy.concatenate(out)
            if out
            else numpy.zeros((0, len(monomials(self.points.shape[1], order)), self.columns.shape[1]))
        )

    def width_slopes(self, kernel, queries, codes, left_out, duals, fits, scales=None):
        f = queries.shape[1]
        n = len(queries)
        out = numpy.zeros((n, f + len(kernel.tables), fits.shape[2]))

        def at(theta):
            K2 = KernelND(
                kernel.name,
                kernel.widths * numpy.exp(theta[:f]),
                kernel.units,
                kernel.product,
                kernel.periods,
                kernel.tables,
                kernel.table_slopes,
            )
            return self._k(K2, queries, codes, left_out, scales)[0]

        _, _, b = self._k(kernel, queries, codes, left_out, scales)
        x = numpy.concatenate([numpy.ones((*b.shape[:2], 1)), b], 2)[..., : duals.shape[1]]
        dx = numpy.einsum("nmb,nb->nm", x, duals)
        r = self.columns[None, :, 1:] - self.columns[None, :, :1] * numpy.einsum("nmb,nbc->nmc", x, fits)
        for a in range(f):
            e = numpy.zeros(f)
            e[a] = 1e-5
            dK = (at(e) - at(-e)) / 2e-5
            out[:, a] = numpy.einsum("nm,nmc->nc", dK * dx, r)
        return out


class Samples1D:
    def __init__(self, x, columns):
        self.x, self.columns = x, columns
        self.nd = SamplesND(x[:, None], columns)

    def sums(self, kernel, width, queries, order=0, form="kernel"):
        k = KernelND(kernel, numpy.array([width]), numpy.array([width]))
        return self.nd.sums(k, queries[:, None], order=order, form=form)

    def sums_of_others(self, kernel, width, order=0, form="kernel", left_out=None, block=0):
        k = KernelND(kernel, numpy.array([width]), numpy.array([width]))
        i = numpy.arange(len(self.x))
        s = self.nd.sums(
            k,
            self.x[:, None],
            order=order,
            form=form,
            left_out=numpy.column_stack([numpy.maximum(i - block, 0), i + block + 1]),
        )
        if left_out is not None and block == 0:
            s[:, 0] += self.columns - left_out
        return s

    def window(self, kernel, width, queries, share=0.9):
        k = KernelND(kernel, numpy.array([width]), numpy.array([width]))
        K, _, _ = self.nd._k(k, queries[:, None], None, None, None)
        K = K * self.columns[:, 0]
        K /= K.sum(1, keepdims=True)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            H = -numpy.where(K > 0, K * numpy.log(K), 0).sum(1)
        c = numpy.cumsum(K, 1)
        lo, hi = ((c < t).sum(1) for t in ((1 - share) / 2, (1 + share) / 2))
        n = len(self.x) - 1
        return numpy.exp(H), self.x[numpy.minimum(lo, n)], self.x[numpy.minimum(hi, n)]
