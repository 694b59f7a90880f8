"""ONNX's operator `Attention` (opsets 23 to 25), said in regard's words: a translation of its inputs and attributes.

What the operator packs into one mask tensor and some flags becomes masks that say what they mean:

    attn_mask (bool)       keep(t): True may be attended            is_causal, …_window_size    window(left, right)
    attn_mask (float)      bias(t): added to the scores             nonpad_kv_seqlen            lengths(t)

Legend: batch · heads, kv_heads (heads is a multiple of kv_heads) · n queries · m keys, those of the cache included.
"""

from functools import reduce
from operator import and_

import torch
from torch import Tensor
from torch.nn import functional

from regard import Dot, Mask, attend, bias, keep, lengths, weights, window

DOUBLE = 11  # onnx.TensorProto.DOUBLE, the one softmax_precision beyond regard's own float32


def onnx_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int | None = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """(Y, present_key, present_value, qk_matmul_output), as the operator defines them.

    q (batch, heads, n, size), k and v (batch, kv_heads, new keys, size); or all of them (batch, tokens, heads · size),
    with the numbers of heads given. Y has the form of q. qk_matmul_output_mode: 0 the scaled products, 1 after softcap,
    2 with the masks, 3 the weights; beyond ONNX, None for none of them, and then nothing (n × m) is kept.
    """
    if qk_matmul_output_mode not in (None, 0, 1, 2, 3):
        raise ValueError(f"qk_matmul_output_mode: expected 0, 1, 2, 3 or None, got {qk_matmul_output_mode}")
    query, key, value = _split("q", q, q_num_heads), _split("k", k, kv_num_heads), _split("v", v, kv_num_heads)
    key, value, past = _after_the_past(key, value, past_key, past_value)
    present = key, value
    n, m = query.shape[-2], key.shape[-2]
    sides = left_window_size, 0 if is_causal else right_window_size
    if nonpad_kv_seqlen is None:
        limits = _band(*sides, past)
    elif past_key is None:
        limits = _band_in_cache(*sides, nonpad_kv_seqlen, n, m)
    else:
        raise ValueError("nonpad_kv_seqlen: expected None beside past_key, whose keys are all valid, got a tensor")
    added: Tensor | None = None
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        limits.append(keep(_full(attn_mask, m, False)))
    elif attn_mask is not None:
        added = _full(attn_mask, m, -torch.inf)
    mask = _all(limits if added is None else [*limits, bias(added)])

    # Half precision is computed in float32 anyway; here the scores that are handed out are, too.
    working = torch.float64 if q.dtype == torch.float64 or softmax_precision == DOUBLE else torch.float32
    query, key, value = query.to(working), key.to(working), value.to(working)
    score = Dot(scale, softcap or None)
    y = attend(query, key, value, score=score, mask=mask).to(q.dtype)
    y = y.transpose(1, 2).flatten(2) if q.dim() == 3 else y
    if qk_matmul_output_mode is None:
        return y, *present, None
    if qk_matmul_output_mode == 3:
        return y, *present, weights(query, key, score=score, mask=mask).to(q.dtype)
    spread = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = (Dot(scale) if qk_matmul_output_mode == 0 else score)(query, spread)
    if qk_matmul_output_mode == 2:
        # To a query without features every key is worth the same: what has a weight is what the masks allow.
        allowed = weights(query[..., :0], key[..., :0], mask=_all(limits)) > 0
        scores = (scores if added is None else scores + added).masked_fill(~allowed, -torch.inf)
    return y, *present, scores.to(q.dtype)


def _after_the_past(
    key: Tensor, value: Tensor, past_key: Tensor | None, past_value: Tensor | None
) -> tuple[Tensor, Tensor, int]:
    """The cache with the new keys and values behind it, and its length before that."""
    if past_key is None and past_value is None:
        return key, value, 0
    if past_key is None or past_value is None:
        raise ValueError("past_key, past_value: expected both or neither, got one of them")
    return torch.cat([past_key, key], -2), torch.cat([past_value, value], -2), past_key.shape[-2]


def _split(name: str, rows: Tensor, heads: int | None) -> Tensor:
    """(batch, tokens, heads · size) → (batch, heads, tokens, size); four dimensions stay as they are."""
    if rows.dim() == 4:
        return rows
    if heads is None:
        raise ValueError(f"{name}: expected four dimensions, or the number of heads beside shape {tuple(rows.shape)}")
    split: Tensor = rows.unflatten(-1, (heads, -1)).transpose(1, 2)
    return split


def _full(mask: Tensor, m: int, forbidden: float) -> Tensor:
    """A mask for all m keys: those behind its end are forbidden. One for keys alone, (m,), gets its row."""
    mask = mask if mask.dim() > 1 else mask[None]
    return functional.pad(mask, (0, m - mask.shape[-1]), value=forbidden)


def _all(masks: list[Mask]) -> Mask | None:
    return reduce(and_, masks) if masks else None


def _band(left: int, right: int, past: int) -> list[Mask]:
    """Query i stands at key i + past and sees `left` keys before that place and `right` after it; −1 is no limit."""
    if left < 0 and right < 0:
        return []
    return [window(left if left >= 0 else None, right if right >= 0 else None, offset=past)]


def _band_in_cache(left: int, right: int, counts: Tensor, n: int, m: int) -> list[Mask]:
    """The same where only the first counts (batch,) keys are valid, and the n queries are the last of those."""
    places = counts[:, None] - n + torch.arange(n, device=counts.device)  # (batch, n)
    visible = counts if right < 0 else torch.minimum(places + right + 1, counts[:, None]).clamp(min=0)
    if left < 0:
        return [lengths(visible)]
    return [lengths(visible), keep(torch.arange(m, device=counts.device) >= (places - left)[:, None, :, None])]
