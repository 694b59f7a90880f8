"""What both translators can do, the recurrent one and the Transformer: generate the target, given the source."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.models.generation import GenerativeModel
from regard.models.texts import encode_with_warning

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Translator(GenerativeModel):
    """A model that reads a source and generates a target: subclasses give `read`, `decode`, `predict` and `align`.

    The source is the prompt of `generate`: ids (batch, m) with lengths → one Hypothesis for each source.
    """

    def __init__(self, arguments: Mapping[str, Any], **choices: Collection[str]) -> None:
        super().__init__(arguments, **choices)
        sizes = [self.config[f"{side}_vocab_size"] for side in ("source", "target")]
        if self.config["share_embeddings"] and len(set(sizes)) > 1:
            raise ValueError(f"share_embeddings: expected vocabularies of one size, got {sizes[0]} and {sizes[1]}")

    def forward(self, source: Tensor, target: Tensor, source_lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """source (batch, m), target (batch, n), which begins with bos → logits (batch, n, target vocabulary)."""
        return self.predict(self.decode(target, self.read(source, source_lengths))[0])

    def read(self, source: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Any:
        """Encode a source (batch, m): the state of a decoder that has generated nothing yet."""
        raise NotImplementedError(f"{type(self).__name__} must define read")

    def decode(self, target: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Rows for `predict` of target tokens (batch, n) that follow a state, and the state after them."""
        raise NotImplementedError(f"{type(self).__name__} must define decode")

    def predict(self, rows: Tensor) -> Tensor:
        """Rows (…, size) → logits of the next token (…, target vocabulary)."""
        raise NotImplementedError(f"{type(self).__name__} must define predict")

    def align(self, source: Tensor, target: Tensor, source_lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """How much each target place looks at each source word: weights (batch, …, n, m)."""
        raise NotImplementedError(f"{type(self).__name__} must define align")

    def translate(self, text: str | Sequence[str], *, length_penalty: float = 0.8, **options: Any) -> Any:
        """The translation of a text, or of each of several. Options are those of `generate`.

        A text that is longer than the model's max_positions is cut, with a CutWarning. With a length penalty of 1 the
        beam search of a model of little data prefers translations that repeat themselves.
        """
        if not isinstance(text, Sequence):
            raise TypeError(f"text: expected a text or several, got {type(text).__name__}")
        return self.generate(text, length_penalty=length_penalty, **options)

    def start(self, ids: Tensor, lengths: Tensor | Sequence[int] | None = None) -> tuple[Tensor, Any]:
        bos = self.config["bos"]
        if bos is None:
            raise ValueError(f"bos: this {type(self).__name__} has no token that begins a target: make it with bos=…")
        return self.step(torch.full((len(ids), 1), bos, device=ids.device), self.read(ids, lengths))

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        rows, state = self.decode(ids, state)
        return self.predict(rows[:, -1]), state

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        return encode_with_warning(self.need_tokenizer(), texts, self.config.get("max_positions"))

    def decode_output(self, prompt: list[int], ids: list[int]) -> str:
        text: str = self.need_target_tokenizer().decode(ids)
        return text

    def token_limit(self, max_new_tokens: int) -> int:
        return min(max_new_tokens, int(self.config.get("max_positions", max_new_tokens)))

    def need_target_tokenizer(self) -> Tokenizer:
        """The target's tokenizer: the source's, where there is only one."""
        return self.need_tokenizer() if self.target_tokenizer is None else self.target_tokenizer
