"""The RNN encoder–decoder with additive attention as textbooks write it: what `Seq2Seq` is measured against."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard import Seq2Seq


class TextbookAttention(nn.Module):
    """w_vᵀ tanh(W_q q + W_k k) for every query and key at once, then a masked softmax."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.key = nn.Linear(hidden_size, hidden_size, bias=False)
        self.value = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, counts: Tensor) -> Tensor:
        features = torch.tanh(self.query(queries).unsqueeze(2) + self.key(keys).unsqueeze(1))
        scores = self.value(features).squeeze(-1)  # (batch, n, m)
        missing = torch.arange(scores.shape[-1]) >= counts[:, None]
        weights = torch.softmax(scores.masked_fill(missing[:, None], -1e6), -1)
        return torch.bmm(weights, values)


class TextbookSeq2Seq(nn.Module):
    """GRU encoder, GRU decoder, one step at a time; keys are projected anew at each step."""

    def __init__(self, vocabulary: int, size: int) -> None:
        super().__init__()
        self.source = nn.Embedding(vocabulary, size)
        self.target = nn.Embedding(vocabulary, size)
        self.encoder = nn.GRU(size, size)
        self.attention = TextbookAttention(size)
        self.decoder = nn.GRU(2 * size, size)
        self.output = nn.Linear(2 * size, vocabulary)

    def forward(self, source: Tensor, target: Tensor, counts: Tensor) -> Tensor:
        states, hidden = self.encoder(self.source(source).transpose(0, 1))
        states = states.transpose(0, 1)  # (batch, m, size)
        outputs = []
        for word in self.target(target).transpose(0, 1):
            context = self.attention(hidden[-1].unsqueeze(1), states, states, counts)  # (batch, 1, size)
            step = torch.cat([word.unsqueeze(1), context], -1)
            output, hidden = self.decoder(step.transpose(0, 1), hidden)
            outputs.append(torch.cat([output, context.transpose(0, 1)], -1))
        logits: Tensor = self.output(torch.cat(outputs)).transpose(0, 1)
        return logits

    def copy_from(self, model: Seq2Seq) -> None:
        """The same weights."""
        trained = model.state_dict()
        names = {
            "source.weight": "source_embedding.weight",
            "target.weight": "target_embedding.weight",
            "attention.query.weight": "score.query_weight",
            "attention.key.weight": "score.key_weight",
        }
        state = {theirs: trained[ours] for theirs, ours in names.items()}
        state["attention.value.weight"] = trained["score.value_weight"][None]
        same_names = ("encoder.", "decoder.", "output.")
        state |= {name: tensor for name, tensor in trained.items() if name.startswith(same_names)}
        self.load_state_dict(state)
