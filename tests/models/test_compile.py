"""Models under torch.compile(fullgraph=True): no break in the graph, and the numbers of eager mode."""

import pytest
import torch

from regard import Encoder, LanguageModel, Seq2Seq, Transformer, ViT

IDS, LENGTHS = torch.arange(51).reshape(3, 17) % 31, torch.tensor([17, 5, 9])
SIZES = {"size": 16, "layers": 2, "heads": 2}
MODELS = {
    "language": lambda: (LanguageModel(31, **SIZES, max_positions=32), (IDS,)),
    "language-rotary-lengths": lambda: (LanguageModel(31, **SIZES, positions="rotary"), (IDS, LENGTHS)),
    "language-alibi-additive": lambda: (LanguageModel(31, **SIZES, positions="alibi", score="additive"), (IDS,)),
    "encoder-lengths": lambda: (Encoder(31, **SIZES, max_positions=32), (IDS, LENGTHS)),
    "vision": lambda: (ViT(16, 4, **SIZES, classes=3), (torch.randn(2, 3, 16, 16),)),
    "transformer-lengths": lambda: (Transformer(31, 31, **SIZES), (IDS, IDS, LENGTHS)),
    "seq2seq": lambda: (Seq2Seq(31, 31, 16, 12), (IDS, IDS[:, :5])),
}


@pytest.mark.parametrize("name", MODELS)
def test_compiled_as_one_graph(name):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    results = []
    for run in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        output = run(*inputs)
        results.append(
            [output, *torch.autograd.grad(output.square().sum(), list(model.parameters()), allow_unused=True)]
        )
    for eager, compiled in zip(*results, strict=True):
        assert (eager is None) == (compiled is None)
        if eager is not None:
            torch.testing.assert_close(compiled, eager, rtol=1e-3, atol=1e-4)


def test_wrong_ids_are_refused_in_eager_mode():
    with pytest.raises(ValueError, match="ids: expected ids from 0 to 30"):
        LanguageModel(31, **SIZES)(IDS + 31)
