# The public names, once: `import regard` reads this file, and imports a module when one of its names is first used.
from .attention.additive import Additive as Additive
from .attention.dense_masks import (
    alibi as alibi,
    bias as bias,
    drop as drop,
    keep as keep,
    relative as relative,
    t5_buckets as t5_buckets,
)
from .attention.api import (
    attend as attend,
    average_pool as average_pool,
    masked_softmax as masked_softmax,
    max_pool as max_pool,
    weights as weights,
)
from .attention.kernels import Kernel as Kernel
from .attention.masks import Mask as Mask
from .attention.mods import visible as visible
from .attention.normalizers import (
    Entmax as Entmax,
    Normalizer as Normalizer,
    Sigmoid as Sigmoid,
    Softmax as Softmax,
    Sparsemax as Sparsemax,
)
from .attention.position_masks import (
    causal as causal,
    lengths as lengths,
    segments as segments,
    window as window,
)
from .attention.scores import (
    Bilinear as Bilinear,
    Cosine as Cosine,
    Dot as Dot,
    Score as Score,
)
from .attention.separable import Separable as Separable
from .attention.summary import summarize as summarize
from .kernel.classifier import KernelClassifier as KernelClassifier
from .kernel.regressor import KernelRegressor as KernelRegressor
from .models.block import (
    Block as Block,
    FeedForward as FeedForward,
)
from .models.encoder import Encoder as Encoder
from .models.folders import load as load
from .models.generation import Sampling as Sampling
from .models.language_model import LanguageModel as LanguageModel
from .models.multihead import (
    Attention as Attention,
    MultiHead as MultiHead,
)
from .models.seq2seq import Seq2Seq as Seq2Seq
from .models.tensors import FolderError as FolderError
from .models.transformer import Transformer as Transformer
from .models.vision import ResNet as ResNet
from .models.vision import ViT as ViT
from .training.run import train as train
from .view.attention import AlignmentDisplay as AlignmentDisplay
from .view.attention import AttentionDisplay as AttentionDisplay
from .view.attribution import Attribution as Attribution
from .view.capture import capture as capture
from .view.heads import find_heads as find_heads
from .view.intervene import intervene as intervene
from .view.capture import load_capture as load_capture
from .view.images import ImageAttentionDisplay as ImageAttentionDisplay
from .view.widths import TrainingWidthsDisplay as TrainingWidthsDisplay
from .view.regression import KernelRegressionDisplay as KernelRegressionDisplay
from .web.server import explore as explore

__version__: str
