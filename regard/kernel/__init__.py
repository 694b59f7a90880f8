"""Nadaraya–Watson regression: fast kernel sums, and the estimators that stand on them."""

from regard.kernel.classifier import KernelClassifier
from regard.kernel.estimator import BandwidthWarning, Window
from regard.kernel.regressor import Interval, KernelRegressor, PartialDependence

__all__ = ["BandwidthWarning", "Interval", "KernelClassifier", "KernelRegressor", "PartialDependence", "Window"]
