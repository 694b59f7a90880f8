"""`attn_implementation="regard"`: models of the library transformers attend by regard's formula.

    import regard.transformers
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="regard")  # or from_config
    model.set_attn_implementation("regard")  # a model that is there already

Importing this module registers two functions with transformers: `attention`, which its layers call with projected
queries, keys and values, and `attention_mask`, which makes the mask that all layers share.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from regard.attention import Dot, Mask, Softmax, attend, bias, causal, keep, segments, window
from regard.attention.api import attend_in
from regard.attention.tracing import is_traced

try:
    from transformers import AttentionInterface, AttentionMaskInterface, masking_utils
    from transformers.utils import output_capturing
except ImportError as error:
    message = f"regard.transformers: expected transformers 5 or newer; pip install 'transformers>=5' ({error})"
    raise ImportError(message) from error


# What models hand on to attention and what does not change its result. Windows are in the mask already, and so are the
# position ids of packed sequences.
IRRELEVANT = {
    *("cache_position", "deterministic", "input_ids", "max_length_k", "max_length_q", "num_items_in_batch"),
    *("output_hidden_states", "output_router_logits", "position_ids", "return_dict", "seq_idx", "sliding_window"),
    *("token_type_ids", "use_cache"),
}


# ------------------------------------------------------------------------------------------------------- the attention


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    is_causal: bool | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    indices: Tensor | None = None,
    output_attentions: bool | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """`attend` as transformers calls it: query (batch, heads, n, size) → output (batch, n, heads, size), weights.

    module: the layer that attends. key, value: (batch, key heads, m, size); heads that share keys need no copies
    attention_mask: (batch, 1 or heads, n, m), boolean (True may be attended) or numbers that are added to the scores
    s_aux: one sink per head, a score that takes part in the softmax and has no value
    position_bias: added to the scores, as T5 does
    is_causal: counts where there is no mask, and is the module's if it is None
    cu_seq_lens_q, cu_seq_lens_k: where packed sequences begin and end
    indices: (batch, n, some), the keys that are left to each query, as DeepSeek's indexer chooses them
    output_attentions: whether the weights (batch, heads, n, m) are returned, which are None otherwise
    """
    unknown = [name for name, given in options.items() if name not in IRRELEVANT and given is not None]
    if unknown:
        raise TypeError(
            f"{type(module).__name__}: expected arguments of attention that regard knows, got {', '.join(unknown)}, "
            "which may change the result; use attn_implementation='eager'"
        )
    mask = _restriction(module, query, attention_mask, is_causal)
    if cu_seq_lens_q is not None and cu_seq_lens_k is not None:
        mask = _joined(mask, segments(cu_seq_lens_q.diff(), cu_seq_lens_k.diff()))
    if indices is not None:
        chosen = indices.new_zeros(*indices.shape[:2], key.shape[2], dtype=torch.bool).scatter(-1, indices.long(), True)
        mask = _joined(mask, keep(chosen[:, None]))
    if position_bias is not None:
        mask = _joined(mask, bias(position_bias))
    knobs: dict[str, Any] = {
        "score": Dot(scaling, softcap),
        "mask": mask,
        "normalizer": None if s_aux is None else Softmax(sink=s_aux),
        "dropout": dropout if module.training else 0.0,
    }
    if output_attentions or _weights_wanted():
        output, weights = attend(query, key, value, **knobs, need_weights=True)
    else:
        output, weights = attend_in(module, query, key, value, **knobs), None
    return output.transpose(1, 2).contiguous(), weights


def _restriction(
    module: nn.Module, query: Tensor, attention_mask: Tensor | None, is_causal: bool | None
) -> Mask | None:
    if isinstance(attention_mask, LazyMask):
        return attention_mask.mask
    if attention_mask is not None:
        return keep(attention_mask) if attention_mask.dtype == torch.bool else bias(attention_mask)
    # The layer passed no mask of its own accord, as it does for PyTorch's attention.
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    return causal(align="start") if is_causal and query.shape[2] > 1 else None


def _weights_wanted() -> bool:
    """Whether the model that is running collects weights; many do not hand output_attentions on to their layers."""
    collector = getattr(output_capturing, "_active_collector", None)
    if collector is None or (torch.compiler.is_compiling() and not collector.compiling):
        return False  # where a layer is compiled by itself, nobody can tell
    return any(name.endswith("attentions") for name in collector.get() or ())


def _joined(mask: Mask | None, other: Mask) -> Mask:
    return other if mask is None else mask & other


# ------------------------------------------------------------------------------------------------------------ the mask


class LazyMask(Tensor):
    """The mask (batch, 1, n, m) that models expect, 0 or the lowest number, kept as a mask of regard's.

    Our attention takes `mask`, which needs no (n × m) numbers. For whoever else reads it or writes to it, be it a model
    that computes attention by itself, it is the tensor that `make` makes; from then on that tensor counts.
    """

    mask: Mask | None
    make: Callable[[], Tensor]
    made: Tensor | None

    @staticmethod
    def __new__(cls, mask: Mask | None, make: Callable[[], Tensor], shape: Sequence[int], **kind: Any) -> "LazyMask":
        lazy: LazyMask = Tensor._make_wrapper_subclass(cls, shape, **kind)
        lazy.mask, lazy.make, lazy.made = mask, make, None
        return lazy

    def dense(self) -> Tensor:
        """The plain tensor."""
        if self.made is None:
            self.made = self.make()
            self.mask = bias(self.made)
        return self.made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        args, kwargs = tree_map_only(cls, cls.dense, (args, kwargs or {}))
        return func(*args, **kwargs)


def attention_mask(
    *,
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int | Tensor = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    **options: Any,
) -> Tensor:
    """Which keys (m = kv_length) the queries (n = q_length) of all layers of one kind may attend.

    mask_function says it by positions, which begin at q_offset and kv_offset; attention_mask (batch, positions) is
    False for padding. Windows, causal ones among them, stay what they are; any other pattern is made dense.
    """
    arguments = options | {
        "batch_size": batch_size,
        "q_length": q_length,
        "kv_length": kv_length,
        "q_offset": q_offset,
        "kv_offset": kv_offset,
        "mask_function": mask_function,
        "attention_mask": attention_mask,
        "device": device,
        "allow_is_causal_skip": False,
        "allow_is_bidirectional_skip": False,
    }
    make = partial(masking_utils.eager_mask, **arguments, dtype=dtype)
    if is_traced(*(given for given in (attention_mask, q_offset, kv_offset) if isinstance(given, Tensor))):
        dense: Tensor = make()
        return dense
    band = _band(mask_function, local_size)
    if band is None:
        mask: Mask | None = keep(masking_utils.sdpa_mask(**arguments))
    else:
        start, offset = int(kv_offset), int(q_offset - kv_offset)
        mask = _window(*band, offset, q_length, kv_length)
        visible = _visible(attention_mask, slice(start, start + kv_length))
        mask = mask if visible is None else _joined(mask, visible)
    return LazyMask(mask, make, (batch_size, 1, q_length, kv_length), dtype=dtype, device=device)


def _window(left: int | None, right: int | None, offset: int, n: int, m: int) -> Mask | None:
    """The window, without the sides on which it hides nothing; None: on both, as in decoding."""
    left = None if left is None or n - 1 + offset <= left else left
    right = None if right is None or m - 1 <= offset + right else right
    return None if left is right is None else window(left, right, offset=offset)


def _visible(padding: Tensor | None, positions: slice) -> Mask | None:
    """The keys at these positions that are not padding; None: all. Those that have no entry are hidden."""
    if padding is None:
        return None
    keys = padding[:, positions]
    keys = nn.functional.pad(keys, (0, positions.stop - positions.start - keys.shape[1]))
    return None if bool(keys.all()) else keep(keys[:, None, None])


def _band(mask_function: Callable[..., Any], local_size: int | None) -> tuple[int | None, int | None] | None:
    """How many keys to the left and to the right are visible (None: all) by this function; None: it is no such one."""
    if mask_function is masking_utils.bidirectional_mask_function:
        return None, None
    if mask_function is masking_utils.causal_mask_function:
        return None, 0
    if local_size is None:
        return None
    if _same(mask_function, masking_utils.sliding_window_causal_mask_function(local_size)):
        return local_size - 1, 0
    both_sides = masking_utils.sliding_window_bidirectional_mask_function(local_size)
    return (local_size, local_size) if _same(mask_function, both_sides) else None


def _same(one: Any, other: Any) -> bool:
    """Whether two functions are made by the same code from the same numbers."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if not (hasattr(one, "__code__") and hasattr(other, "__code__")):
        return type(one) is type(other) is int and one == other
    cells = [tuple(cell.cell_contents for cell in function.__closure__ or ()) for function in (one, other)]
    return one.__code__ is other.__code__ and _same(*cells)


AttentionInterface.register("regard", attention)
AttentionMaskInterface.register("regard", attention_mask)
