"""Nadaraya–Watson classification as a scikit-learn estimator: attention over labels."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from regard.kernel.estimator import KernelEstimator
from regard.kernel.local import Array
from regard.kernel.parts import classes_of, compress_parts, is_distributed, map_parts


class KernelClassifier(ClassifierMixin, KernelEstimator):
    """A class's probability is the share of the samples' weight that it has: the average of its labels, 0 or 1.

    The parameters are those of KernelRegressor. The bandwidth is chosen for all classes together, by the leave-one-out
    error of their probabilities (Brier's score).

    Examples
    --------
    >>> import regard
    >>> model = regard.KernelClassifier().fit([[0.0], [0.2], [0.9], [1.1]], ["low", "low", "high", "high"])
    >>> model.predict([[0.1], [1.0]]).tolist()
    ['low', 'high']
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> KernelClassifier:
        """Keep the samples and choose the bandwidth.

        X and y may be Dask collections of one feature: the classes of their parts are collected first, then only sums
        come here, some megabytes for each class. Copies of a row are counted there, as with `counts=True`.
        """
        self.check_parameters()
        if is_distributed(X) or is_distributed(y):
            self._begin_parts(X, sample_weight)
            self.classes_ = classes_of(y)
            self._fit_merged(compress_parts(X, y, partial(_one_hot, self.classes_)))
            return self
        rows, y, weights = self._validate(X, y, sample_weight)
        check_classification_targets(y)
        self.classes_ = numpy.unique(y)
        self._fit(rows, _one_hot(self.classes_, y), weights, together=True)
        return self

    def predict_proba(self, X: ArrayLike) -> Array:
        """The probability of each class, (n, classes); of a Dask collection lazily, part by part."""
        if is_distributed(X):
            check_is_fitted(self)
            lazy: Array = map_parts(X, self.predict_proba, [*self.classes_])
            return lazy
        shares = [self.smoothers_[0].predict(queries) for queries in self._by_parts(X)]
        probabilities = numpy.clip(numpy.concatenate(shares), 0, None)  # a local line may leave [0, 1]
        return numpy.asarray(probabilities / probabilities.sum(1, keepdims=True))

    def predict(self, X: ArrayLike) -> NDArray[numpy.generic]:
        """The most probable class of each row; of a Dask collection lazily, part by part."""
        if is_distributed(X):
            check_is_fitted(self)
            lazy: NDArray[numpy.generic] = map_parts(X, self.predict, "predicted", self.classes_.dtype)
            return lazy
        probabilities = self.predict_proba(X)
        unknown = numpy.flatnonzero(numpy.isnan(probabilities[:, 0]))
        if len(unknown):
            raise ValueError(f"X: row {unknown[0]} has no sample in reach, so no class; fit with empty='nearest'")
        classes: NDArray[numpy.generic] = self.classes_[probabilities.argmax(1)]
        return classes


def _one_hot(classes: NDArray[Any], y: Any) -> Array:
    """(n, classes): 1 in the column of each row's class."""
    return numpy.asarray(numpy.eye(len(classes))[numpy.searchsorted(classes, column_or_1d(y))])
