"""Reading piece by piece is reading at once, and a cache is a value."""

import pytest
import torch

from regard.models import LanguageModel
from regard.models.cache import ROOM, Growing

CASES = {
    "learned": {},
    "rotary-grouped": {"positions": "rotary", "kv_heads": 2, "norm": "rms", "activation": "swiglu", "bias": False},
    "alibi": {"positions": "alibi"},
    "sinusoidal": {"positions": "sinusoidal"},
    "none-additive": {"positions": "none", "score": "additive"},
    "recurrent": {"mixer": "recurrent"},
    "convolution": {"mixer": "convolution"},
}
LENGTHS = [13, 4, 9]


@pytest.fixture(params=CASES)
def model(request):
    model = LanguageModel(31, 24, 2, 4, max_positions=100, **CASES[request.param]).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


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
    rolled = (
        ids
        if padding == "right"
        else torch.stack([own.roll(13 - count) for own, count in zip(ids, LENGTHS, strict=True)])
    )
    rows, cache = model.extend(rolled, None, LENGTHS, padding)
    after, cache = model.extend(more, cache)
    for number, count in enumerate(LENGTHS):
        alone = model(torch.cat([ids[number : number + 1, :count], more[number : number + 1]], 1))[0]
        own = rows[number, :count] if padding == "right" else rows[number, 13 - count :]
        same(model.predict(torch.cat([own, after[number]])), alone)


def test_padded_chunks_after_padded_chunks(model):
    ids = torch.randint(31, (3, 13))
    cuts = [[5, 5, 3], [1, 2, 1], [4, 1, 4]]  # of each sequence, chunk by chunk
    starts, cache, rows = [0, 0, 0], None, [[], [], []]
    for chunk in range(3):
        counts = [own[chunk] for own in cuts]
        part = torch.zeros(3, max(counts), dtype=torch.long)
        for number, count in enumerate(counts):
            part[number, :count] = ids[number, starts[number] : starts[number] + count]
        found, cache = model.extend(part, cache, counts)
        for number, count in enumerate(counts):
            rows[number].append(found[number, :count])
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


def test_a_cache_is_a_value(model):
    """One prefix, two continuations, and the first once more."""
    ids = torch.randint(31, (3, 13))
    _, cache = model.extend(ids)
    first, second = torch.randint(31, (3, 2)), torch.randint(31, (3, 2))
    once, _ = model.extend(first, cache)
    model.extend(second, cache)
    again, _ = model.extend(first, cache)
    assert torch.equal(once, again)


def test_growing_rows_share_room_but_not_values():
    start = Growing(torch.zeros(2, 3, 0, 5))
    first = start.append(torch.ones(2, 3, 1, 5))
    second, other = first.append(torch.full((2, 3, 1, 5), 2.0)), first.append(torch.full((2, 3, 1, 5), 3.0))
    assert first.rows.shape[-2] == 1
    assert (second.rows[..., 1, :] == 2).all()
    assert (other.rows[..., 1, :] == 3).all()
    assert second.rows.data_ptr() == first.rows.data_ptr()  # not copied
    long = second.append(torch.full((2, 3, ROOM, 5), 4.0))
    assert long.rows.shape[-2] == ROOM + 2
    assert (long.rows[..., 1, :] == 2).all()


def test_a_cache_from_inference_mode_goes_on_outside():
    model, ids = LanguageModel(31, 24, 2, 4).eval(), torch.randint(31, (3, 13))
    with torch.inference_mode():
        _, cache = model.extend(ids[:, :5])
        _, cache = model.extend(ids[:, 5:6], cache)
    with torch.no_grad():
        rows, _ = model.extend(ids[:, 6:], cache)
        same(model.predict(rows), model(ids)[:, 6:])


def test_a_score_alone_can_be_trained_through_a_cache():
    model, ids = LanguageModel(31, 24, 2, 4, score="cosine"), torch.randint(31, (3, 13))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("score" in name)
    with torch.enable_grad():
        rows, cache = [], None
        for part in ids.split(4, 1):
            more, cache = model.extend(part, cache)
            rows.append(more)
        model.predict(torch.cat(rows, 1)).square().sum().backward()


def test_gradients_flow_through_a_cache():
    model, ids = LanguageModel(31, 24, 2, 4), torch.randint(31, (3, 13))
    with torch.enable_grad():
        rows, cache = model.extend(ids[:, :6])
        more, _ = model.extend(ids[:, 6:], cache)
        model.predict(torch.cat([rows, more], 1)).square().sum().backward()
        found = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        model(ids).square().sum().backward()
    for own, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(own, parameter.grad, atol=1e-4, rtol=1e-4)
