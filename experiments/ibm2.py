"""IBM's model 2 with a prior about the diagonal, as fast_align has it (Dyer, Chahuneau and Smith, 2013), by EM.

Word i of n in the target comes from word j of m in the source, or from none:

    p(target_i, j) = (1 − none) · exp(−tension · |i/n − j/m|) / Z_i · p(target_i | source_j)
    p(target_i, none) = none · p(target_i | none)

p(target | source) has a Dirichlet prior that prefers few translations of a word; its posterior is approximated by
variational Bayes, as fast_align does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy
from numpy.typing import NDArray
from scipy.special import digamma

Array = NDArray[Any]
Links = frozenset[tuple[int, int]]  # (source word, target word)
Words = Sequence[str]

NONE = 0.08  # probability that a word of the target comes from none of the source
TENSION = 4.0  # to begin with
TENSIONS = (0.1, 14.0)  # fast_align's bounds
PRIOR = 0.01  # of each translation, in the Dirichlet prior
UNSEEN = 1e-9  # probability of a translation that was never seen
EMPTY = ""  # the source word of words that come from none
NEIGHBOURS = [step for step in product((-1, 0, 1), repeat=2) if step != (0, 0)]


@dataclass(frozen=True)
class Cells:
    """Where each target word of a corpus may come from, end to end: a cell for none, then one for each source word."""

    starts: Array  # (target words,) the first cell of each, which is that of none
    entries: Array  # (cells,) the row of the table of translations
    distances: Array  # (cells,) |i/n − j/m|

    def total(self, values: Array) -> Array:
        """The sum over the cells of each target word."""
        return numpy.add.reduceat(values, self.starts)

    def spread(self, values: Array) -> Array:
        """A value of each target word for each of its cells."""
        return numpy.repeat(values, numpy.diff(self.starts, append=len(self.entries)))


class DiagonalModel:
    """DiagonalModel(sources, targets) is fitted; `links` are those of other sentences, or of the same."""

    def __init__(
        self, sources: Sequence[Words], targets: Sequence[Words], *, iterations: int = 8, prior: float = PRIOR
    ) -> None:
        """prior=0: maximum likelihood, whose likelihoods never fall."""
        self.source_ids = _number([EMPTY, *(word for words in sources for word in words)])
        self.target_ids = _number([word for words in targets for word in words])
        self.tension, self.likelihoods = TENSION, list[float]()
        pairs = [self._codes(source, target) for source, target in zip(sources, targets, strict=True)]
        self.codes, entries = numpy.unique(numpy.concatenate([codes.ravel() for codes in pairs]), return_inverse=True)
        widths = numpy.concatenate([numpy.full(len(codes), codes.shape[1]) for codes in pairs])
        distances = numpy.concatenate([_distances(*codes.shape).ravel() for codes in pairs])
        cells = Cells(numpy.cumsum(widths) - widths, entries, distances)
        self.translations = numpy.full(len(self.codes), 1 / len(self.target_ids))
        for _ in range(iterations):
            self._improve(cells, prior)

    def links(self, source: Words, target: Words) -> Links:
        """Each target word with the source word that it most probably comes from, if that is not none."""
        codes = self._codes(source, target)  # (n, 1 + m)
        entries = numpy.searchsorted(self.codes, codes).clip(max=len(self.codes) - 1)
        known = self.codes[entries] == codes
        joint = numpy.where(known, self.translations[entries], UNSEEN)
        distances = _distances(*codes.shape)
        near = numpy.exp(-self.tension * distances[:, 1:])
        joint[:, 0] *= NONE
        joint[:, 1:] *= (1 - NONE) * near / near.sum(1, keepdims=True)
        return frozenset((int(j) - 1, i) for i, j in enumerate(joint.argmax(1)) if j)

    def _improve(self, cells: Cells, prior: float) -> None:
        """One iteration: where the words come from, then the translations and the tension that follow."""
        none = numpy.zeros(len(cells.entries), dtype=bool)
        none[cells.starts] = True
        near = numpy.where(none, 0, numpy.exp(-self.tension * cells.distances))
        near /= cells.spread(cells.total(near))
        joint = numpy.where(none, NONE, (1 - NONE) * near) * self.translations[cells.entries]
        evidence = cells.total(joint)
        self.likelihoods.append(float(numpy.log(evidence).sum()))
        posterior = joint / cells.spread(evidence)
        self.translations = self._normalize(numpy.bincount(cells.entries, posterior, len(self.codes)), prior)
        linked = 1 - posterior[cells.starts]  # (target words,) probability that it comes from a word
        self._adjust_tension(cells, near, posterior, linked)

    def _normalize(self, counts: Array, prior: float) -> Array:
        """Expected counts of translations → p(target | source)."""
        words = self.codes // len(self.target_ids)
        totals = numpy.bincount(words, counts + prior)
        if prior:
            return numpy.asarray(numpy.exp(digamma(counts + prior) - digamma(totals)[words]))
        return numpy.asarray(counts / totals[words])

    def _adjust_tension(self, cells: Cells, near: Array, posterior: Array, linked: Array) -> None:
        """A step of Newton's method: the expected distance of links becomes that of the prior."""
        expected = cells.total(near * cells.distances)
        variance = cells.total(near * cells.distances**2) - expected**2
        observed = cells.total(numpy.where(near > 0, posterior, 0) * cells.distances)
        gradient, curvature = (linked * expected - observed).sum(), (linked * variance).sum()
        if curvature > 0:
            self.tension = float(numpy.clip(self.tension + gradient / curvature, *TENSIONS))

    def _codes(self, source: Words, target: Words) -> Array:
        """A number for each pair of a target word and a source word, or none: (n, 1 + m); -1 for unknown words."""
        left = numpy.array([self.source_ids.get(word, -1) for word in (EMPTY, *source)])
        right = numpy.array([self.target_ids.get(word, -1) for word in target])[:, None]
        return numpy.where((left < 0) | (right < 0), -1, left * len(self.target_ids) + right)


def _number(words: Sequence[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(dict.fromkeys(words))}


def _distances(n: int, columns: int) -> Array:
    """|i/n − j/m| for each target word i and each source word j, after a column for none."""
    m = columns - 1
    rows, places = (numpy.arange(n) + 0.5) / n, (numpy.arange(m) + 0.5) / m
    return numpy.concatenate([numpy.zeros((n, 1)), abs(rows[:, None] - places)], 1)


def grow_diagonal(forward: Links, backward: Links) -> Links:
    """The links of both directions in one: those that both have; then neighbours of links that one has and that give a
    word its first link; at last links of one between words that have none (grow-diag-final-and)."""
    links, union = forward & backward, forward | backward
    while added := {
        link
        for link in union - links
        if any((link[0] + down, link[1] + across) in links for down, across in NEIGHBOURS)
        and not (_is_linked(link, links, 0) and _is_linked(link, links, 1))
    }:
        links |= {min(added)}  # one at a time: each may link a word that another one would have linked
    for link in sorted(union - links):
        if not _is_linked(link, links, 0) and not _is_linked(link, links, 1):
            links |= {link}
    return links


def _is_linked(link: tuple[int, int], links: Links, side: int) -> bool:
    """Whether the word of this side has a link."""
    return any(other[side] == link[side] for other in links)
