"""Models: from the RNN encoder–decoder to the Vision Transformer, all on the one formula."""

from regard.models.block import Block, BlockConfig, FeedForward
from regard.models.cache import Cache
from regard.models.encoder import Encoder
from regard.models.folders import FolderError, load
from regard.models.generation import Hypothesis, Sampling
from regard.models.language_model import LanguageModel
from regard.models.mixers import Convolution, Recurrent
from regard.models.multihead import Attention, MultiHead
from regard.models.packing import SequenceInfo
from regard.models.resnet import ResNet
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from regard.models.vision import ViT

__all__ = [
    "Attention",
    "Block",
    "BlockConfig",
    "Cache",
    "Convolution",
    "Encoder",
    "FeedForward",
    "FolderError",
    "Hypothesis",
    "LanguageModel",
    "MultiHead",
    "Recurrent",
    "ResNet",
    "Sampling",
    "Seq2Seq",
    "SequenceInfo",
    "Transformer",
    "ViT",
    "load",
]
