"""What both translators can do, the recurrent one and the Transformer: write the target, given the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.arguments import check_size
from regard.models.generation import Hypothesis, Sampling, beams, checked_way, followed, sampled
from regard.models.model import Model, evaluated
from regard.models.texts import padded, tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Translator"]


class Translator(Model):
    """A model that reads a source and takes steps: subclasses give `read`, `step` and `align`."""

    @property
    def example(self) -> str:
        return "translate('a sentence')"

    def read(self, source: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Any:
        """The state of a decoder that has written nothing yet."""
        raise NotImplementedError(f"{type(self).__name__} must define read")

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Write ids (rows, n): logits of the word after them (rows, target vocabulary), and the state."""
        raise NotImplementedError(f"{type(self).__name__} must define step")

    def align(self, source: Tensor, target: Tensor, source_lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """How much each target place looks at each source word: weights (batch, …, n, m)."""
        raise NotImplementedError(f"{type(self).__name__} must define align")

    @evaluated
    @torch.inference_mode()
    def write(
        self,
        source: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        max_new_tokens: int = 128,
        sampling: Sampling | None = None,
        beam_size: int = 1,
        length_penalty: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each source (batch, m), the best first: `beam_size` of them, or the one that `sampling` makes."""
        sampling = checked_way(sampling, check_size("beam_size", beam_size))
        bos, eos, forbidden = (self.config[name] for name in ("bos", "eos", "forbidden"))
        state = self.read(source, lengths)
        logits, state = self.step(torch.full((len(source), 1), bos, device=source.device), state)
        max_new_tokens = min(max_new_tokens, self.config.get("max_positions", max_new_tokens))
        if beam_size > 1:
            options = {
                "beam_size": beam_size,
                "max_new_tokens": max_new_tokens,
                "eos": eos,
                "length_penalty": length_penalty,
                "forbidden": forbidden,
            }
            return beams(self.step, state, logits, **options)
        steps = sampled(
            self.step, state, logits, sampling=sampling, max_new_tokens=max_new_tokens, eos=eos, forbidden=forbidden
        )
        return [[hypothesis] for hypothesis in followed(steps, len(source), eos, length_penalty)]

    def translate(self, text: str | Sequence[str], **options: Any) -> Any:
        """The translation of a text, or of each of several. Options are those of `write`."""
        if isinstance(text, str):
            return self.translate([text], **options)[0]
        if not isinstance(text, Sequence):
            raise TypeError(f"text: expected a text or several, got {type(text).__name__}")
        if not text:
            return []
        # What a Transformer cannot read at once is cut off.
        source, lengths = padded(tokens(self.need_tokenizer(), text, self.config.get("max_positions")))
        device = next(self.parameters()).device
        found = self.write(source.to(device), lengths, **options)
        writer = self.need_target_tokenizer()
        return [writer.decode(hypotheses[0].ids) for hypotheses in found]

    def need_target_tokenizer(self) -> Tokenizer:
        """The target's tokenizer: the source's, where there is only one."""
        return self.need_tokenizer() if self.target_tokenizer is None else self.target_tokenizer
