"""Nadaraya–Watson regression: fast kernel sums, and the estimator that stands on them."""

from regard.kernel.regressor import KernelRegressor, Window

__all__ = ["KernelRegressor", "Window"]
