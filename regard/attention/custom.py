"""Any nn.Module as a score."""

from __future__ import annotations

from torch import Tensor, nn

from regard.arguments import shape_text
from regard.attention.scores import DEFAULT, Score, in_dtype_of

__all__ = ["Custom", "require_score"]


class Custom(Score):
    """Any nn.Module that maps (…, n, query size), (…, m, key size) to scores (…, n, m), row by row and key by key."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        try:
            scores = in_dtype_of(self.module, query, key)
        except TypeError as error:  # among others, a module of one argument
            raise TypeError(f"{self._expected(query, key)}, got {error}") from error
        if not isinstance(scores, Tensor):
            raise ValueError(f"{self._expected(query, key)}, got {type(scores).__name__}")
        if scores.shape != (*query.shape[:-1], key.shape[-2]):
            raise ValueError(f"{self._expected(query, key)}, got shape {shape_text(scores)}")
        return scores.to(query.dtype)

    def _expected(self, query: Tensor, key: Tensor) -> str:
        scores = (*query.shape[:-1], key.shape[-2])
        return (
            f"score: expected {type(self.module).__name__} to map query {shape_text(query)} and key {shape_text(key)} "
            f"to scores {scores}, one number for each query and key"
        )


def require_score(score: nn.Module | None) -> Score:
    """Any nn.Module as a Score; None is Dot()."""
    if score is None:
        return DEFAULT
    if isinstance(score, Score):
        return score
    if isinstance(score, nn.Module):
        return Custom(score)
    raise TypeError(f"score: expected an nn.Module such as Dot(), Additive(…), Kernel(…), got {type(score).__name__}")
