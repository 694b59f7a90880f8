"""Reading piece by piece is reading at once, and a cache is a value."""

import pytest
import torch

from regard import LanguageModel
from regard.models.cache import SPARE, KVCache
from tests.models.cases import shaken

CASES = {
    "learned": {},
    "rotary-grouped": {"positions": "rotary", "kv_heads": 2, "norm": "rms", "activation": "swiglu", "bias": False},
    "alibi": {"positions": "alibi"},
    "window": {"positions": "rotary", "window": 3, "kv_heads": 2},
    "windows-alibi": {"positions": "alibi", "window": [None, 5], "score_softcap": 2.0},
    "gemma": {
        "positions": "rotary",
        "rotary_base": [10.0, 1e4],
        "window": [3, None],
        "qk_norm": True,
        "norm": "rms",
        "output_norms": True,
        "scale_embeddings": True,
        "logit_softcap": 3.0,
    },
    "sinusoidal": {"positions": "sinusoidal"},
    "none-additive": {"positions": "none", "score": "additive"},
    "recurrent": {"mixer": "recurrent"},
    "convolution": {"mixer": "convolution"},
}
LENGTHS = [13, 4, 9]


@pytest.fixture(params=CASES)
def model(request):
    return shaken(LanguageModel(31, 24, 2, 4, max_positions=100, **CASES[request.param]))


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("chunks", [[1] * 13, [13], [5, 8], [12, 1], [2, 1, 6, 4]])
def test_chunks_are_the_whole(model, chunks):
    ids = torch.randint(31, (3, 13))
    cache, rows = None, []
    for part in ids.split(chunks, 1):
        more, cache = model.extend(part, cache)
        rows.append(more)
    same(model.predict(torch.cat(rows, 1)), model(ids))


@pytest.mark.parametrize("padding", ["left", "right"])
def test_padding_on_either_side(model, padding):
    """Prompts of different lengths, then two more words each, are each sequence alone."""
    ids, more = torch.randint(31, (3, 13)), torch.randint(31, (3, 2))
    shifts = [13 - count if padding == "left" else 0 for count in LENGTHS]
    rolled = torch.stack([sequence.roll(shift) for sequence, shift in zip(ids, shifts, strict=True)])
    rows, cache = model.extend(rolled, None, LENGTHS, padding)
    after, cache = model.extend(more, cache)
    for number, (count, shift) in enumerate(zip(LENGTHS, shifts, strict=True)):
        alone = model(torch.cat([ids[number : number + 1, :count], more[number : number + 1]], 1))[0]
        same(model.predict(torch.cat([rows[number, shift : shift + count], after[number]])), alone)


def test_padded_chunks_after_padded_chunks(model):
    ids = torch.randint(31, (3, 13))
    cuts = [[5, 5, 3], [1, 2, 1], [4, 1, 4]]  # of each sequence, chunk by chunk
    starts, cache, rows = [0, 0, 0], None, [[], [], []]
    for chunk in range(3):
        counts = [lengths[chunk] for lengths in cuts]
        part = torch.zeros(3, max(counts), dtype=torch.long)
        for number, count in enumerate(counts):
            part[number, :count] = ids[number, starts[number] : starts[number] + count]
        more, cache = model.extend(part, cache, counts)
        for number, count in enumerate(counts):
            rows[number].append(more[number, :count])
            starts[number] += count
    for number, count in enumerate(starts):
        same(model.predict(torch.cat(rows[number])), model(ids[number : number + 1, :count])[0])


def test_selecting_rows(model):
    """As beams do: some sequences twice, in another order."""
    ids, more = torch.randint(31, (3, 13)), torch.randint(31, (4, 1))
    order = torch.tensor([2, 0, 0, 1])
    _, cache = model.extend(ids)
    rows, _ = model.extend(more, cache.select(order))
    same(model.predict(rows)[:, -1], model(torch.cat([ids[order], more], 1))[:, -1])


def test_what_is_selected_brings_little_memory_along():
    """From a cache in a buffer of 200 columns, with 101 of them and with all: room for some more, without a copy."""
    rows = torch.randn(2, 3, 200, 5)
    with torch.no_grad():
        half = KVCache(*[rows[:, :, :100]] * 2).append(*[rows[:, :, 100:101]] * 2)
        full = half.append(*[rows[:, :, 101:]] * 2)
        for grown, count in ((half, 101), (full, 200)):
            one = grown.select(torch.tensor([1]))
            assert torch.equal(one.keys, grown.keys[1:])
            assert one.keys.untyped_storage().nbytes() <= (count + SPARE // 8) * torch.zeros(2, 3, 5).nbytes
            assert one.append(*[rows[1:, :, :1]] * 2).keys.data_ptr() == one.keys.data_ptr()


def test_a_cache_is_a_value(model):
    """One prefix, two continuations, and the first once more."""
    ids = torch.randint(31, (3, 13))
    _, cache = model.extend(ids)
    first, second = torch.randint(31, (3, 2)), torch.randint(31, (3, 2))
    once, _ = model.extend(first, cache)
    model.extend(second, cache)
    again, _ = model.extend(first, cache)
    assert torch.equal(once, again)


def test_buffers_share_memory_but_not_values():
    def filled(number, count=1):
        return torch.full((2, 3, count, 5), number), torch.full((2, 3, count, 5), -number)

    first = KVCache(*filled(0.0, 0)).append(*filled(1.0))
    second, other = first.append(*filled(2.0)), first.append(*filled(3.0))
    assert first.keys.shape[-2] == first.values.shape[-2] == 1
    for cache, number in ((second, 2), (other, 3)):
        assert (cache.keys[..., 1, :] == number).all()
        assert (cache.values[..., 1, :] == -number).all()
    assert second.keys.data_ptr() == first.keys.data_ptr()  # not copied
    long = second.append(*filled(4.0, 1_000))  # more than the buffer has room for
    assert long.keys.shape[-2] == long.values.shape[-2] == 1_002
    assert (long.keys[..., 1, :] == 2).all()


def test_a_cache_from_inference_mode_goes_on_outside():
    model, ids = LanguageModel(31, 24, 2, 4).eval(), torch.randint(31, (3, 13))
    with torch.inference_mode():
        _, cache = model.extend(ids[:, :5])
        _, cache = model.extend(ids[:, 5:6], cache)
    with torch.no_grad():
        rows, _ = model.extend(ids[:, 6:], cache)
        same(model.predict(rows), model(ids)[:, 6:])


@pytest.mark.parametrize("trained", ["", "score"])
def test_gradients_flow_through_a_cache(trained):
    """Also where a score alone is trained."""
    model, ids = LanguageModel(31, 24, 2, 4, score="cosine"), torch.randint(31, (3, 13))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trained in name)
    with torch.enable_grad():
        rows, cache = [], None
        for part in ids.split(4, 1):
            more, cache = model.extend(part, cache)
            rows.append(more)
        model.predict(torch.cat(rows, 1)).square().sum().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        model(ids).square().sum().backward()
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, atol=1e-4, rtol=1e-4)
