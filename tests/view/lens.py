"""What TransformerLens computes for two small models, in lens.npz, so that tests compare with it without installing it.

Made anew by `python tests/view/lens.py` where torch, transformers and transformer_lens 2.18.0 are installed.
"""

from pathlib import Path

import numpy
import torch
import transformers

NUMBERS = Path(__file__).with_name("lens.npz")
LAYERS, VOCABULARY, LENGTH = 2, 23, 7
HEADS = {"gpt2": 3, "llama": 4}  # llama: two heads share the keys and values of one
IDS = torch.from_numpy(numpy.random.RandomState(5).randint(VOCABULARY, size=(2, LENGTH)))
TARGET = torch.tensor([3, 11])


def model(name):
    """A model of the library transformers; its weights depend on nothing but the names and shapes of its parameters."""
    sizes = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0}
    if name == "gpt2":
        config = transformers.GPT2Config(n_positions=13, n_embd=12, n_layer=LAYERS, n_head=HEADS[name], **sizes)
        built = transformers.GPT2LMHeadModel(config)
    else:
        sizes |= {"hidden_size": 20, "head_dim": 6, "intermediate_size": 17, "num_key_value_heads": 2}
        config = transformers.LlamaConfig(num_hidden_layers=LAYERS, num_attention_heads=HEADS[name], **sizes)
        built = transformers.LlamaForCausalLM(config)
    random = numpy.random.RandomState(7)  # whose numbers stay the same in all versions of numpy
    with torch.no_grad():
        for path, parameter in sorted(built.named_parameters()):
            numbers = torch.from_numpy(random.standard_normal(tuple(parameter.shape))) * 0.4
            parameter.copy_(1 + numbers if parameter.dim() == 1 and path.endswith("weight") else numbers)
    return built.eval()


def lens(name, built, **processing):
    """The same model in TransformerLens."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.pretrained import weight_conversions

    options = {
        "gpt2": {"d_head": 4, "d_mlp": 48, "act_fn": "gelu_new", "normalization_type": "LN"},
        "llama": {
            "d_head": 6,
            "d_mlp": 17,
            "act_fn": "silu",
            "normalization_type": "RMS",
            "final_rms": True,
            "gated_mlp": True,
            "n_key_value_heads": 2,
            "rotary_dim": 6,
            "rotary_adjacent_pairs": False,
            "positional_embedding_type": "rotary",
            "eps": built.config.to_dict().get("rms_norm_eps"),
        },
    }
    sizes = {"n_layers": LAYERS, "n_heads": HEADS[name], "d_model": built.config.hidden_size}
    settings = HookedTransformerConfig(**sizes, n_ctx=13, d_vocab=VOCABULARY, device="cpu", **options[name])
    hooked = HookedTransformer(settings)
    weights = getattr(weight_conversions, f"convert_{name}_weights")(built, settings)
    asis = dict.fromkeys(("fold_ln", "center_writing_weights", "center_unembed", "fold_value_biases"), False)
    hooked.load_and_process_state_dict(weights, **asis | processing)
    return hooked


def ablated(hooked, layer, head, to):
    """Logits after the last token where the output of a head is zeros, or its mean over the batch and its queries."""

    def edit(outputs, hook):  # (batch, n, heads, head size)
        outputs[:, :, head] = 0 if to == "zero" else outputs[:, :, head].mean((0, 1))
        return outputs

    return hooked.run_with_hooks(IDS, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", edit)])[:, -1]


@torch.no_grad()
def numbers(name):
    """Logits as they are and without each head, and what heads and nets add to the logit of the target."""
    built = model(name)
    hooked, folded = lens(name, built), lens(name, built, fold_ln=True)
    torch.testing.assert_close(hooked(IDS), built(IDS).logits, rtol=1e-4, atol=1e-4)
    heads = [(layer, head) for layer in range(LAYERS) for head in range(HEADS[name])]
    results = {to: torch.stack([ablated(hooked, *head, to) for head in heads]) for to in ("zero", "mean")}
    _, cache = folded.run_with_cache(IDS)
    # (parts, batch), after the last token
    results["heads"] = cache.logit_attrs(cache.stack_head_results(pos_slice=-1), TARGET, pos_slice=-1)
    results["nets"] = cache.logit_attrs(
        torch.stack([cache["mlp_out", layer][:, -1] for layer in range(LAYERS)]), TARGET, pos_slice=-1
    )
    results["logits"] = hooked(IDS)[:, -1]
    return {f"{name}_{kind}": result.numpy().astype(numpy.float32) for kind, result in results.items()}


if __name__ == "__main__":
    numpy.savez_compressed(NUMBERS, **numbers("gpt2"), **numbers("llama"))
