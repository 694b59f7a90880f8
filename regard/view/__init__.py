"""Weights as numbers and pictures."""

from regard.view.regression import KernelRegressionDisplay

__all__ = ["KernelRegressionDisplay"]
