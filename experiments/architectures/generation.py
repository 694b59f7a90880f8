"""Models that write token by token: `seen.by_layer()` has to be what the model sees when it reads the whole text.

With a window, the cache forgets keys: those that are left keep their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.architectures.campaign import Architecture, Subject
from experiments.architectures.library import ids, make, returned
from experiments.architectures.texts import BART, GPT2, LLAMA

KIND = "token by token"
NEW = 6


def generating(name: str, model: str, options: Mapping[str, Any], batch: int = 2) -> Architecture:
    """A row: greedy generation of NEW tokens after a prompt of five."""

    def subjects() -> dict[str, Subject]:
        eager, default = make(model, options, "eager"), make(model, options, "")
        default.load_state_dict(eager.state_dict())
        prompt = ids(batch, 5)
        run = partial(write, default, prompt)
        text = run()[:, :-1]  # what the last token was chosen by
        whole = (
            {"input_ids": prompt, "decoder_input_ids": text}
            if default.config.is_encoder_decoder
            else {"input_ids": text}
        )
        return {"": Subject(default, run, returned((), "none", eager, whole), gradients=False, joined=True)}

    return Architecture(name, KIND, subjects)


def write(model: Any, prompt: Tensor) -> Tensor:
    """The tokens of the prompt, and those after it."""
    output: Tensor = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False
    )
    return output


SMALL = LLAMA | {"sliding_window": 4}
ROWS = [
    generating("GPT-2, generate", "GPT2LMHeadModel", GPT2 | {"pad_token_id": 0}),
    generating("Llama, generate", "LlamaForCausalLM", LLAMA),
    generating("Mistral, generate with a sliding window", "MistralForCausalLM", SMALL),
    generating("Gemma 3, generate with sliding and full windows", "Gemma3ForCausalLM",
               SMALL | {"layer_types": ["sliding_attention", "full_attention"]}),
    generating("BART, generate", "BartForConditionalGeneration", BART | {"forced_eos_token_id": None}),
]  # fmt: skip
