"""Nadaraya–Watson classification as a scikit-learn estimator: attention over labels."""

from __future__ import annotations

import numpy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from regard.kernel.estimator import KernelEstimator
from regard.kernel.local import Array


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
        """Keep the samples and choose the bandwidth."""
        self.check_parameters()
        rows, y, weights = self._validate(X, y, sample_weight)
        check_classification_targets(y)
        self.classes_, labels = numpy.unique(y, return_inverse=True)
        self._fit(rows, numpy.eye(len(self.classes_))[labels], weights, together=True)
        return self

    def predict_proba(self, X: ArrayLike) -> Array:
        """The probability of each class, (n, classes)."""
        shares = [self.smoothers_[0].predict(queries) for queries in self._by_parts(X)]
        probabilities = numpy.clip(numpy.concatenate(shares), 0, None)  # a local line may leave [0, 1]
        return numpy.asarray(probabilities / probabilities.sum(1, keepdims=True))

    def predict(self, X: ArrayLike) -> NDArray[numpy.generic]:
        """The most probable class of each row."""
        probabilities = self.predict_proba(X)
        unknown = numpy.flatnonzero(numpy.isnan(probabilities[:, 0]))
        if len(unknown):
            raise ValueError(f"X: row {unknown[0]} has no sample in reach, so no class; fit with empty='nearest'")
        classes: NDArray[numpy.generic] = self.classes_[probabilities.argmax(1)]
        return classes
