"""The two encoder–decoders: against PyTorch's own, with lengths, alignments, and decoders that go step by step."""

import copy
import math

import pytest
import torch
from torch import nn

from regard import Additive, Seq2Seq, Transformer
from regard.attention.observers import observe
from regard.models.multihead import SCORES
from regard.models.positions import sinusoidal
from tests.models.cases import shaken
from tests.models.test_layers import block_state

LENGTHS = torch.tensor([11, 3, 7])
PADDING = torch.arange(11) >= LENGTHS[:, None]

RECURRENT = {
    "gru-additive": {},
    "gru-additive-fast": {"hidden_size": 16},
    "lstm-dot": {"cell": "lstm", "attention": "dot", "layers": 2},
    "one-direction": {"bidirectional": False, "attention": "bilinear", "layers": 3},
    "bottleneck": {"attention": None},
    "cosine": {"attention": "cosine", "cell": "lstm"},
    "gaussian": {"attention": "gaussian"},
    "feeding": {"input_feeding": True},
    "feeding-fast": {"input_feeding": True, "hidden_size": 16},
    "feeding-lstm": {"input_feeding": True, "cell": "lstm", "attention": "dot", "layers": 2},
}
MAKERS = {
    **{
        name: (lambda options=options: Seq2Seq(31, 29, 10, **{"hidden_size": 14} | options))
        for name, options in RECURRENT.items()
    },
    "transformer": lambda: Transformer(31, 29, 24, 2, 4),
    "transformer-pre-norm": lambda: Transformer(
        31, 29, 24, 2, 4, decoder_layers=1, pre_norm=True, tie_embeddings=False
    ),
    "transformer-learned": lambda: Transformer(
        31, 31, 24, 2, 4, positions="learned", share_embeddings=True, scale_embeddings=False
    ),
}


@pytest.fixture(params=MAKERS)
def model(request):
    return shaken(MAKERS[request.param]())


@pytest.fixture
def source():
    return torch.randint(31, (3, 11))


@pytest.fixture
def target():
    return torch.randint(29, (3, 5))


def same(ours, theirs, atol=2e-5):
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=2e-5)


def test_a_padded_batch_is_each_sentence_alone(model, source, target):
    with torch.no_grad():
        logits = model(source, target, LENGTHS)
        other = source.masked_fill(PADDING, 5)
        same(model(other, target, LENGTHS), logits, 0)
        for number, count in enumerate(LENGTHS.tolist()):
            alone = model(source[number : number + 1, :count], target[number : number + 1])
            same(logits[number : number + 1], alone)


def test_step_by_step_is_at_once(model, source, target):
    with torch.no_grad():
        steps, state = [], model.read(source, LENGTHS)
        for token in target.split(1, 1):
            logits, state = model.step(token, state)
            steps.append(logits)
        same(torch.stack(steps, 1), model(source, target, LENGTHS))


@pytest.mark.parametrize("name", ["gru-additive", "gru-additive-fast", "feeding-lstm"])
def test_steps_know_which_target_token_they_are_at(name, source, target):
    model = shaken(MAKERS[name]())
    calls, state = [], model.read(source, LENGTHS)
    with observe(lambda call: calls.extend(call.positions)):
        for tokens in target.split(2, 1):
            _, state = model.step(tokens, state)
    assert calls == list(range(target.shape[1]))


def test_a_state_is_a_value(model, source, target):
    with torch.no_grad():
        _, state = model.step(target[:, :2], model.read(source, LENGTHS))
        once, _ = model.step(target[:, 2:], state)
        model.step(target[:, 1:3], state)
        assert torch.equal(model.step(target[:, 2:], state)[0], once)
        for order in ([0, 0, 2], [2, 1, 0], [2, 2, 0, 0], [1], [0, 0, 1, 1, 2, 2], [0, 1, 2, 0]):
            rows = torch.tensor(order)
            chosen, after = model.step(target[rows, 2:], state.select(rows))
            same(chosen, once[rows])
            twice = after.select(torch.arange(len(rows)).flip(0))
            more, _ = model.step(target[rows, :1].flip(0), twice)
            same(more.flip(0), model.step(target[rows, :1], after)[0])


def test_alignments(model, source, target):
    """Rows are distributions over the words that are there; looking changes no bit of the output."""
    if isinstance(model, Seq2Seq) and model.score is None:
        with pytest.raises(ValueError, match="no attention"):
            model.align(source, target)
        return
    with torch.no_grad():
        before = model(source, target, LENGTHS)
        weights = model.align(source, target, LENGTHS)
        assert torch.equal(model(source, target, LENGTHS), before)
    assert weights.shape[0] == 3
    assert weights.shape[-2:] == (5, 11)
    same(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    hidden = PADDING.view(3, *[1] * (weights.dim() - 2), 11).expand_as(weights)
    assert (weights[hidden] == 0).all()
    assert (weights.std(-1) > 1e-4).any()


def test_looking_changes_no_bit_in_training_either(model, source, target):
    """Whichever way the decoder takes; and what is seen are the weights of `align`."""
    if isinstance(model, Seq2Seq) and model.score is None:
        return
    plain, seen = model(source, target, LENGTHS), []
    with observe(seen.append):
        assert torch.equal(model(source, target, LENGTHS), plain)
    looks = [call.weights()[:, 0] for call in seen if call.module is model]
    if looks:
        same(torch.cat(looks, 1), model.align(source, target, LENGTHS))


def test_alignments_drop_nothing(source, target):
    for model in (Seq2Seq(31, 29, 10, 16, dropout=0.5), Transformer(31, 29, 24, 1, 4, dropout=0.5)):
        assert torch.equal(model.align(source, target), model.align(source, target))
        assert model.training


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_sentence_does_not_depend_on_its_neighbours(model, source, beam_size):
    options = {"max_new_tokens": 9, "beam_size": beam_size}
    together, beams = model.generate(source, LENGTHS, **options), model.beam_search(source, LENGTHS, **options)
    for number, count in enumerate(LENGTHS.tolist()):
        alone = source[number : number + 1, :count]
        ((n_best,), generated) = model.beam_search(alone, **options), model.generate(alone, **options)
        for single, batched in zip([*generated, *n_best], [together[number], *beams[number]], strict=True):
            assert single.ids == batched.ids
            assert abs(single.score - batched.score) < 1e-4


def test_scores_of_hypotheses_are_their_log_probabilities(model, source):
    (hypotheses,) = model.beam_search(source[:1], max_new_tokens=6, beam_size=3, length_penalty=0.5)
    (best,) = model.generate(source[:1], max_new_tokens=6, beam_size=3, length_penalty=0.5)
    assert best == max(hypotheses, key=lambda hypothesis: hypothesis.score) == hypotheses[0]
    for hypothesis in hypotheses:
        tokens = hypothesis.ids + ([2] if len(hypothesis.ids) < 6 else [])
        target = torch.tensor([[1, *tokens[:-1]]])
        with torch.no_grad():
            log_probabilities = torch.log_softmax(model(source[:1], target)[0], -1)
        total = sum(float(row[token]) for row, token in zip(log_probabilities, tokens, strict=True))
        assert abs(total / len(tokens) ** 0.5 - hypothesis.score) < 1e-4


# ----------------------------------------------------------------------------------------------------------- references


@pytest.mark.parametrize("pre_norm", [True, False])
def test_transformer_is_nn_transformer(pre_norm, source, target):
    encoder_layer = nn.TransformerEncoderLayer(24, 4, 19, 0.0, batch_first=True, norm_first=pre_norm)
    decoder_layer = nn.TransformerDecoderLayer(24, 4, 19, 0.0, batch_first=True, norm_first=pre_norm)
    norms = [nn.LayerNorm(24) if pre_norm else None for _ in range(2)]
    theirs = nn.Transformer(
        24,
        4,
        custom_encoder=nn.TransformerEncoder(encoder_layer, 2, norms[0], enable_nested_tensor=False),
        custom_decoder=nn.TransformerDecoder(decoder_layer, 2, norms[1]),
        batch_first=True,
    )
    shaken(theirs)
    ours = Transformer(31, 29, 24, 2, 4, ffn_size=19, pre_norm=pre_norm).eval()
    for mine, yours in zip(ours.encoder_blocks, theirs.encoder.layers, strict=True):
        mine.load_state_dict(block_state(yours, cross=False))
    for mine, yours in zip(ours.decoder_blocks, theirs.decoder.layers, strict=True):
        mine.load_state_dict(block_state(yours, cross=True))
    if pre_norm:
        ours.encoder_norm.load_state_dict(theirs.encoder.norm.state_dict())
        ours.decoder_norm.load_state_dict(theirs.decoder.norm.state_dict())
    with torch.no_grad():
        inputs = [
            embedding(ids) * math.sqrt(24) + sinusoidal(torch.arange(ids.shape[1]), 24)
            for ids, embedding in ((source, ours.source_embedding), (target, ours.target_embedding))
        ]
        ahead = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.bool)
        masks = {"src_key_padding_mask": PADDING, "memory_key_padding_mask": PADDING, "tgt_mask": ahead}
        same(ours(source, target, LENGTHS), theirs(*inputs, **masks) @ ours.target_embedding.weight.T, 1e-4)


def pytorch_rnn(rnn):
    """PyTorch's own module with the same weights."""
    make = {"GRU": nn.GRU, "LSTM": nn.LSTM}[rnn.mode]
    sizes = rnn.input_size, rnn.hidden_size, rnn.num_layers
    own = make(*sizes, batch_first=True, bidirectional=rnn.bidirectional)
    own.load_state_dict(rnn.state_dict())
    return own


@pytest.mark.parametrize("name", RECURRENT)
def test_seq2seq_is_written_out(name, source, target):
    """The formulas at the top of its file, one sentence and one step at a time."""
    model = shaken(Seq2Seq(31, 29, 10, **{"hidden_size": 14} | RECURRENT[name]))
    encoder, decoder = pytorch_rnn(model.encoder), pytorch_rnn(model.decoder)
    with torch.no_grad():
        logits = model(source, target, LENGTHS)
        for number, count in enumerate(LENGTHS.tolist()):
            states, hidden = encoder(model.source_embedding(source[number : number + 1, :count]))
            hidden = hidden if isinstance(hidden, tuple) else (hidden,)
            if encoder.bidirectional:
                hidden = tuple(torch.cat([state[0::2], state[1::2]], -1) for state in hidden)
            context = hidden[0][-1:]  # all there is without attention

            def attend(hidden, states=states):
                return torch.softmax(model.score(hidden[0][-1][:, None], states), -1) @ states

            if name != "bottleneck":
                context = attend(hidden)
            for position, token in enumerate(target[number]):
                if name != "bottleneck" and not model.input_feeding:
                    context = attend(hidden)
                step = torch.cat([model.target_embedding(token)[None, None], context], -1)
                output, hidden = decoder(step, hidden if len(hidden) > 1 else hidden[0])
                hidden = hidden if isinstance(hidden, tuple) else (hidden,)
                if model.input_feeding:
                    context = attend(hidden)
                expected = model.output(torch.cat([output, context], -1))[0, 0]
                same(logits[number, position], expected)


def test_one_embedding_for_both_sides(source, target):
    """It is the model with a table for each of them, as long as these hold the same numbers."""
    shared, apart = shaken(Seq2Seq(31, 31, 10, 14, share_embeddings=True)), Seq2Seq(31, 31, 10, 14)
    table = shared.target_embedding.weight.detach()
    apart.load_state_dict({**shared.state_dict(), "source_embedding.weight": table})
    same(shared(source, target, LENGTHS), apart(source, target, LENGTHS))
    assert shared.parameter_count == apart.parameter_count - 31 * 10


def test_keys_are_projected_once(source, target, monkeypatch):
    model = Seq2Seq(31, 29, 10, 14)
    calls = []
    project = Additive.project_key
    monkeypatch.setattr(Additive, "project_key", lambda self, key: calls.append(key.shape) or project(self, key))
    model(source, target, LENGTHS)
    assert calls == [(3, 11, 14)]


@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("far", [1.0, 15.0, 200.0])
@pytest.mark.parametrize("feeding", [False, True])
def test_the_fast_path_through_the_decoder_is_the_plain_one(lengths, far, feeding, source, target):
    """Float32 with gradients takes it, and shows all queries in one call; float64, or numbers out of range, do not."""
    model = shaken(Seq2Seq(31, 29, 10, 16, input_feeding=feeding)).train()
    with torch.no_grad():
        model.score.query_weight.mul_(far)
    plain = copy.deepcopy(model).double()
    calls = []
    with observe(calls.append):
        logits = model(source, target, lengths)
    assert len(calls) == (5 if far > 100 else 1)
    expected = plain(source, target, lengths)
    same(logits.double(), expected)
    logits.square().sum().backward()
    expected.square().sum().backward()
    for fast, slow in zip(model.parameters(), plain.parameters(), strict=True):
        same(fast.grad.double(), slow.grad, 1e-3)


def test_a_gradient_with_a_graph_is_still_the_gradient(source, target):
    model = Seq2Seq(31, 29, 10, 16)
    loss = model(source, target).square().sum()
    plain = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    kept = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    for gradient, other in zip(plain, kept, strict=True):
        assert torch.equal(gradient, other)


@pytest.mark.parametrize("score", SCORES)
def test_every_score_learns_in_both(score, source, target):
    for model in (Seq2Seq(31, 29, 10, 14, attention=score), Transformer(31, 29, 24, 1, 4, score=score)):
        model(source, target, LENGTHS).square().sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
