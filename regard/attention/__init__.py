"""The formula: scores, masks, attend, and the engines that make it fast."""

from regard.attention.additive import Additive
from regard.attention.api import attend, average_pool, masked_softmax, max_pool, weights
from regard.attention.dense_masks import alibi, bias, drop, keep, relative, t5_buckets
from regard.attention.kernels import Kernel
from regard.attention.masks import Mask
from regard.attention.mods import visible
from regard.attention.normalizers import Entmax, Normalizer, Sigmoid, Softmax, Sparsemax
from regard.attention.position_masks import causal, lengths, segments, window
from regard.attention.scores import Bilinear, Cosine, Dot, Score
from regard.attention.separable import Separable
from regard.attention.summary import Summary, summarize
