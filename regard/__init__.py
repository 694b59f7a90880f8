"""Attention you can compute, train and see.

One formula, ``output = Σ_j softmax_j(score(query, key_j) restricted by mask) · value_j``, and everything that follows
from it. Names are imported when they are first used, so ``import regard`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.attention.formula import attend, masked_softmax, weights
    from regard.attention.kernels import Kernel
    from regard.attention.masks import Mask, bias, causal, drop, keep, lengths, segments, window
    from regard.attention.pooling import average_pool, max_pool
    from regard.attention.scores import Additive, Bilinear, Cosine, Dot, Score
    from regard.kernel.regressor import KernelRegressor
    from regard.models.block import Block, FeedForward
    from regard.models.encoder import Encoder
    from regard.models.folders import load
    from regard.models.generation import Sampling
    from regard.models.language_model import LanguageModel
    from regard.models.multihead import Attention, MultiHead
    from regard.models.resnet import ResNet
    from regard.models.seq2seq import Seq2Seq
    from regard.models.tensors import FolderError
    from regard.models.transformer import Transformer
    from regard.models.vision import ViT
    from regard.training.run import train
    from regard.view.alignment import AlignmentDisplay
    from regard.view.attention import AttentionDisplay
    from regard.view.capture import capture
    from regard.view.images import ImageAttentionDisplay
    from regard.view.progress import TrainingWidthsDisplay
    from regard.view.regression import KernelRegressionDisplay

__version__ = "0.1.0"

__all__ = [
    "Additive",
    "AlignmentDisplay",
    "Attention",
    "AttentionDisplay",
    "Bilinear",
    "Block",
    "Cosine",
    "Dot",
    "Encoder",
    "FeedForward",
    "FolderError",
    "ImageAttentionDisplay",
    "Kernel",
    "KernelRegressionDisplay",
    "KernelRegressor",
    "LanguageModel",
    "Mask",
    "MultiHead",
    "ResNet",
    "Sampling",
    "Score",
    "Seq2Seq",
    "TrainingWidthsDisplay",
    "Transformer",
    "ViT",
    "__version__",
    "attend",
    "average_pool",
    "bias",
    "capture",
    "causal",
    "drop",
    "keep",
    "lengths",
    "load",
    "masked_softmax",
    "max_pool",
    "segments",
    "train",
    "weights",
    "window",
]

# Where each public name lives. A new name is a line here, in __all__ and above; a test holds the three together.
_HOME = {
    "attend": "regard.attention.formula",
    "masked_softmax": "regard.attention.formula",
    "weights": "regard.attention.formula",
    "Additive": "regard.attention.scores",
    "Bilinear": "regard.attention.scores",
    "Cosine": "regard.attention.scores",
    "Dot": "regard.attention.scores",
    "Score": "regard.attention.scores",
    "Kernel": "regard.attention.kernels",
    "Mask": "regard.attention.masks",
    "bias": "regard.attention.masks",
    "causal": "regard.attention.masks",
    "drop": "regard.attention.masks",
    "keep": "regard.attention.masks",
    "lengths": "regard.attention.masks",
    "segments": "regard.attention.masks",
    "window": "regard.attention.masks",
    "average_pool": "regard.attention.pooling",
    "max_pool": "regard.attention.pooling",
    "KernelRegressor": "regard.kernel.regressor",
    "KernelRegressionDisplay": "regard.view.regression",
    "capture": "regard.view.capture",
    "AlignmentDisplay": "regard.view.alignment",
    "AttentionDisplay": "regard.view.attention",
    "ImageAttentionDisplay": "regard.view.images",
    "TrainingWidthsDisplay": "regard.view.progress",
    "Block": "regard.models.block",
    "FeedForward": "regard.models.block",
    "Encoder": "regard.models.encoder",
    "load": "regard.models.folders",
    "Sampling": "regard.models.generation",
    "LanguageModel": "regard.models.language_model",
    "Attention": "regard.models.multihead",
    "MultiHead": "regard.models.multihead",
    "ResNet": "regard.models.resnet",
    "Seq2Seq": "regard.models.seq2seq",
    "FolderError": "regard.models.tensors",
    "Transformer": "regard.models.transformer",
    "ViT": "regard.models.vision",
    "train": "regard.training.run",
}


if not TYPE_CHECKING:  # a type checker that saw this function would believe in every misspelt name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'regard' has no attribute {name!r}")
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value  # the next use finds it without coming here
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
