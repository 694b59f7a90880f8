"""What both translators can do, the recurrent one and the Transformer: write the target, given the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.models.checks import checked_size
from regard.models.generation import Choice, Hypothesis, beams, checked_way, followed, sampled
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
        most: int = 128,
        choice: Choice | None = None,
        beam: int = 1,
        penalty: float = 1.0,
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each source (batch, m), the best first: `beam` of them, or the one that `choice` makes."""
        choice = checked_way(choice, checked_size("beam", beam))
        begin, end, forbidden = (self.config[name] for name in ("begin", "end", "forbidden"))
        state = self.read(source, lengths)
        logits, state = self.step(torch.full((len(source), 1), begin, device=source.device), state)
        most = min(most, self.config.get("maximum", most))
        if beam > 1:
            options = {"beam": beam, "most": most, "end": end, "penalty": penalty, "forbidden": forbidden}
            return beams(self.step, state, logits, **options)
        steps = sampled(self.step, state, logits, choice=choice, most=most, end=end, forbidden=forbidden)
        return [[hypothesis] for hypothesis in followed(steps, len(source), end, penalty)]

    def translate(self, text: str | Sequence[str], **options: Any) -> Any:
        """The translation of a text, or of each of several. Options are those of `write`."""
        if isinstance(text, str):
            return self.translate([text], **options)[0]
        if not isinstance(text, Sequence):
            raise TypeError(f"text: expected a text or several, got {type(text).__name__}")
        if not text:
            return []
        # What a Transformer cannot read at once is cut off.
        source, lengths = padded(tokens(self.need_tokenizer(), text, self.config.get("maximum")))
        device = next(self.parameters()).device
        found = self.write(source.to(device), lengths, **options)
        writer = self.need_target_tokenizer()
        return [writer.decode(hypotheses[0].ids) for hypotheses in found]

    def need_target_tokenizer(self) -> Tokenizer:
        """The target's tokenizer: the source's, where there is only one."""
        return self.need_tokenizer() if self.target_tokenizer is None else self.target_tokenizer
