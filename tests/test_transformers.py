"""With attn_implementation="regard", models of transformers give what they give with "eager" attention."""

import subprocess
import sys
from copy import copy
from functools import cache, partial

import pytest
import torch
import transformers
from torch import nn
from transformers import masking_utils as masking

import regard
import regard.transformers
from regard.attention.observers import observe

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

WIDE = {"initializer_range": 0.2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 60}  # eos: it comes late
ENCODER = {**WIDE, "vocab_size": 61, "hidden_size": 24, "intermediate_size": 28, "num_hidden_layers": 2}
ENCODER |= {"num_attention_heads": 4, "max_position_embeddings": 41}
DECODER = {**ENCODER, "num_key_value_heads": 2}
EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}
WINDOWS = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
LATENT = {"kv_lora_rank": 8, "q_lora_rank": 12, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5}
LATENT |= {
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 28,
    "head_dim": 4,
}
SEQ2SEQ = {**WIDE, "vocab_size": 61, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "init_std": 0.2}
SEQ2SEQ |= {"encoder_attention_heads": 4, "decoder_attention_heads": 3, "encoder_ffn_dim": 28, "decoder_ffn_dim": 28}
SEQ2SEQ |= {"decoder_start_token_id": 1, "max_position_embeddings": 41, "forced_eos_token_id": None}
VISION = {"initializer_range": 0.2, "hidden_size": 24, "intermediate_size": 28, "num_hidden_layers": 2}
VISION |= {"num_attention_heads": 4, "image_size": 12, "patch_size": 4}

ENCODERS = {
    "BertModel": ENCODER,
    "RobertaModel": ENCODER,
    "DistilBertModel": {**WIDE, "vocab_size": 61, "dim": 24, "hidden_dim": 28, "n_layers": 2, "n_heads": 4},
    "ElectraModel": {**ENCODER, "embedding_size": 20},
    "AlbertModel": {**ENCODER, "embedding_size": 20},
    "ModernBertModel": {**ENCODER, "local_attention": 4, "global_attn_every_n_layers": 2},  # two keys on either side
    "CLIPTextModel": ENCODER,
}
DECODERS = {
    "GPT2LMHeadModel": {**WIDE, "vocab_size": 61, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 41},
    "GPTNeoXForCausalLM": ENCODER,
    "OPTForCausalLM": {**ENCODER, "ffn_dim": 28, "word_embed_proj_dim": 24, "init_std": 0.2},
    "LlamaForCausalLM": DECODER,
    "MistralForCausalLM": {**DECODER, "sliding_window": 3},
    "MixtralForCausalLM": {**DECODER, **EXPERTS},
    "Qwen2ForCausalLM": DECODER,
    "Qwen3ForCausalLM": {**DECODER, "head_dim": 8},
    "GemmaForCausalLM": {**DECODER, "head_dim": 8},
    "Gemma2ForCausalLM": {**DECODER, **WINDOWS, "head_dim": 8, "attn_logit_softcapping": 1.5},
    "Gemma3ForCausalLM": {**DECODER, **WINDOWS, "head_dim": 8},
    "PhiForCausalLM": {**DECODER, "hidden_size": 32},
    "Phi3ForCausalLM": DECODER,
    "Olmo2ForCausalLM": DECODER,
    "CohereForCausalLM": DECODER,
    "Cohere2ForCausalLM": {**DECODER, **WINDOWS},
    "StableLmForCausalLM": DECODER,
    "Starcoder2ForCausalLM": {**DECODER, "sliding_window": 3},
    "GraniteForCausalLM": {**DECODER, "attention_multiplier": 0.3},
    "Llama4ForCausalLM": {**DECODER, **EXPERTS, "intermediate_size_mlp": 28, "head_dim": 6, "attention_chunk_size": 4},
    "DeepseekV3ForCausalLM": {**DECODER, **LATENT},  # values of another size than keys
    "DeepseekV32ForCausalLM": {**DECODER, **LATENT, "index_topk": 3, "index_n_heads": 2, "index_head_dim": 8},
    "GptOssForCausalLM": {**DECODER, **EXPERTS, **WINDOWS, "head_dim": 8},  # one sink per head
}
TRANSLATORS = {
    "BartForConditionalGeneration": SEQ2SEQ,
    "MarianMTModel": SEQ2SEQ,
    "T5ForConditionalGeneration": {**WIDE, "vocab_size": 61, "d_model": 24, "d_kv": 6, "d_ff": 28, "num_layers": 2}
    | {"num_heads": 4, "relative_attention_num_buckets": 8, "decoder_start_token_id": 1},
    "WhisperForConditionalGeneration": {**SEQ2SEQ, "num_mel_bins": 5, "max_source_positions": 11},
}
IMAGES = dict.fromkeys(("ViTModel", "DeiTModel", "Dinov2Model", "CLIPVisionModel"), VISION)
IMAGES["SiglipVisionModel"] = {**VISION, "vision_use_head": False}
MODELS = {**ENCODERS, **DECODERS, **TRANSLATORS, **IMAGES}

REAL = torch.ones(3, 7, dtype=torch.bool)  # (batch, n): padded on the left, on the right, and not at all
REAL[0, :3] = REAL[1, 5:] = False


@cache
def model_of(name):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**MODELS[name])).eval()
    for parameter in model.parameters():
        if bool((parameter == parameter.flatten()[0]).all()):  # biases, gains, sinks: all alike otherwise
            parameter.data.add_(torch.randn_like(parameter) / 10)
    return model


def inputs_of(name, padded):
    torch.manual_seed(1)
    if name in IMAGES:
        return {"pixel_values": torch.randn(3, 3, 12, 12)}
    if name == "WhisperForConditionalGeneration":
        return {"input_features": torch.randn(3, 5, 22), "decoder_input_ids": torch.randint(3, 60, (3, 5))}
    inputs = {"input_ids": torch.randint(3, 60, (3, 7))}
    if padded:
        inputs["attention_mask"] = REAL.long()
    if name in TRANSLATORS:
        inputs["decoder_input_ids"] = torch.randint(3, 60, (3, 5))
    return inputs


def run(name, implementation, padded=True, **options):
    model = model_of(name)
    model.set_attn_implementation(implementation)
    return model(**inputs_of(name, padded), **options)


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def features(output):
    return output.logits if "logits" in output else output.last_hidden_state


def attentions(output):
    """The weights of all layers, by the kind of layer."""
    kinds = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    return {kind: output[kind] for kind in kinds if output.get(kind)}


def real_rows(tensor, dim):
    """Without the rows of padding, for which our attention gives 0, and theirs an average of what should be hidden."""
    return tensor.movedim(dim, 1)[REAL] if tensor.shape[dim] == 7 else tensor


# --------------------------------------------------------------------------------------------------- as eager attention


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_outputs(name, padded):
    calls = []
    with torch.no_grad():
        theirs = features(run(name, "eager", padded))
        with observe(calls.append):
            ours = features(run(name, "regard", padded))
    same(real_rows(ours, 1), real_rows(theirs, 1))
    assert len(calls) == (6 if name in TRANSLATORS else 2)  # each layer called ours


@pytest.mark.parametrize("name", MODELS)
def test_weights(name):
    with torch.no_grad():
        theirs, ours = (attentions(run(name, attention, output_attentions=True)) for attention in ("eager", "regard"))
    assert theirs.keys() == ours.keys() != set()
    for kind, layers in theirs.items():
        assert len(layers) == len(ours[kind]) == 2
        for one, other in zip(ours[kind], layers, strict=True):
            same(real_rows(one, 2), real_rows(other, 2))


@pytest.mark.parametrize("wanted", [None, True])  # whether the model returns weights itself
@pytest.mark.parametrize("name", MODELS)
def test_captured_weights(name, wanted):
    with torch.no_grad():
        theirs = attentions(run(name, "eager", output_attentions=True))
        with regard.capture(model_of(name)) as seen:
            run(name, "regard", output_attentions=wanted)
    assert len(seen) == sum(map(len, theirs.values()))
    assert len({layer.name for layer in seen}) == (1 if name == "AlbertModel" else len(seen))  # it is one layer, twice
    kinds = {kind: [layer.weights for layer in seen if _kind(layer, name) == kind] for kind in theirs}
    for kind, layers in theirs.items():
        for one, other in zip(kinds[kind], layers, strict=True):
            same(real_rows(one, 2), real_rows(other, 2))


def _kind(layer, name):
    if name not in TRANSLATORS:
        return "attentions"
    if ".encoder." in f".{layer.name}":
        return "encoder_attentions"
    return "cross_attentions" if layer.kind == "cross" else "decoder_attentions"


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name):
    gradients = []
    for attention in ("eager", "regard"):
        model = model_of(name)
        rows = real_rows(features(run(name, attention)), 1)
        torch.manual_seed(2)
        learned = {path: parameter for path, parameter in model.named_parameters() if parameter.requires_grad}
        found = torch.autograd.grad((rows * torch.randn_like(rows)).mean(), learned.values(), allow_unused=True)
        gradients.append(dict(zip(learned, found, strict=True)))
    same(gradients[1], gradients[0])


@pytest.mark.parametrize("name", [*DECODERS, *TRANSLATORS])
def test_generation(name):
    """From a cache: a first step of many tokens, and steps of one."""
    inputs = inputs_of(name, padded=True)
    inputs.pop("decoder_input_ids", None)
    model, texts = model_of(name), []
    for attention in ("eager", "regard"):
        model.set_attn_implementation(attention)
        texts.append(model.generate(**inputs, max_new_tokens=11, do_sample=False))
    assert texts[1].tolist() == texts[0].tolist()


@pytest.mark.parametrize("name", DECODERS)
def test_several_tokens_after_some_in_the_cache(name):
    model, logits = model_of(name), []
    ids, real = inputs_of(name, padded=True).values()
    for attention in ("eager", "regard"):
        model.set_attn_implementation(attention)
        with torch.no_grad():
            cached = model(ids[:, :4], attention_mask=real[:, :4], use_cache=True).past_key_values
            logits.append(model(ids[:, 4:], attention_mask=real, past_key_values=cached).logits)
    same(*(rows[REAL[:, 4:]] for rows in logits))


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MistralForCausalLM", "T5ForConditionalGeneration"])
def test_static_cache(name):
    inputs = inputs_of(name, padded=True)
    inputs.pop("decoder_input_ids", None)
    model, texts = model_of(name), []
    for attention in ("eager", "regard"):
        model.set_attn_implementation(attention)
        texts.append(model.generate(**inputs, max_new_tokens=11, do_sample=False, cache_implementation="static"))
    assert texts[1].tolist() == texts[0].tolist()


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "MistralForCausalLM"])
def test_packed_sequences(name):
    """Two sequences laid end to end, told apart by their positions or by their ends, are as on their own."""
    model, ids = model_of(name), torch.randint(3, 60, (1, 11))
    model.set_attn_implementation("regard")
    ends = torch.tensor([0, 6, 11], dtype=torch.int32)
    by_positions = {"position_ids": torch.tensor([[*range(6), *range(5)]]), "use_cache": False}
    by_ends = {"position_ids": by_positions["position_ids"], "attention_mask": torch.ones(1, 11)}
    by_ends |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": 6, "max_length_k": 6}
    with torch.no_grad():
        apart = torch.cat([model(ids[:, :6]).logits, model(ids[:, 6:]).logits], 1)
        same(model(ids, **by_positions).logits, apart)
        same(model(ids, **by_ends).logits, apart)


def test_compiled():
    """Without a break in the graph: the whole model, and a layer by itself, which gets its mask from outside."""
    config = MODELS["MistralForCausalLM"] | {"num_hidden_layers": 1}
    model = transformers.MistralModel(transformers.MistralConfig(**config)).eval()
    inputs = {**inputs_of("MistralForCausalLM", padded=True), "use_cache": False}
    compiled = partial(torch.compile, backend="eager", fullgraph=True)
    with torch.no_grad():
        model.set_attn_implementation("eager")
        expected = model(**inputs).last_hidden_state[REAL]
        model.set_attn_implementation("regard")
        same(compiled(model)(**inputs).last_hidden_state[REAL], expected)
        model.layers[0] = compiled(model.layers[0])
        same(model(**inputs).last_hidden_state[REAL], expected)


def test_dropout_is_for_training():
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**DECODER, attention_dropout=0.9))
    model.set_attn_implementation("regard")
    ids = torch.randint(3, 60, (2, 7))
    with torch.no_grad():
        same(model.eval()(ids).logits, model(ids).logits)
        assert not torch.allclose(model.train()(ids).logits, model(ids).logits, atol=0.01)


# ------------------------------------------------------------------------------------------------------------- the mask


def test_a_model_that_attends_by_itself_reads_the_mask():
    """Bloom adds the mask to its scores; it never calls the attention that was asked for."""
    config = transformers.BloomConfig(vocab_size=61, hidden_size=24, n_layer=2, n_head=4, initializer_range=0.2)
    models = [transformers.AutoModel.from_config(config, attn_implementation=name) for name in ("eager", "regard")]
    models[1].load_state_dict(models[0].state_dict())
    ids = torch.randint(3, 60, (3, 7))
    with torch.no_grad():
        theirs, ours = (model.eval()(ids, attention_mask=REAL.long()).last_hidden_state for model in models)
    assert torch.equal(ours, theirs)


def make_mask(**changes):
    sizes = {"batch_size": 3, "q_length": 7, "kv_length": 7, "attention_mask": REAL}
    return regard.transformers.attention_mask(**sizes | changes)


def test_a_mask_takes_no_memory_until_it_is_read():
    many = make_mask(q_length=10**7, kv_length=10**7, attention_mask=None)  # 10¹⁴ pairs
    assert many.shape == (3, 1, 10**7, 10**7)


PATTERNS = {
    "causal": (masking.causal_mask_function, None),
    "bidirectional": (masking.bidirectional_mask_function, None),
    "window": (masking.sliding_window_causal_mask_function(3), 3),
    "window of another size": (masking.sliding_window_causal_mask_function(2), 3),
    "bidirectional window": (masking.sliding_window_bidirectional_mask_function(2), 2),
    "chunks": (masking.chunked_causal_mask_function(3, torch.tensor([0, 1, 2])), 3),
}
PLACES = {
    "all": {},
    "after others": {"q_length": 2, "q_offset": 5},
    "some in the cache": {"q_length": 2, "q_offset": 5, "kv_length": 4, "kv_offset": 3},
    "room in the cache": {"kv_length": 11},
    "offset in a tensor": {"q_length": 1, "q_offset": torch.tensor(3)},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("padding", [None, REAL])
def test_attention_and_readers_see_the_same_mask(pattern, place, padding):
    mask_function, local_size = PATTERNS[pattern]
    options = {"mask_function": mask_function, "local_size": local_size, "attention_mask": padding}
    lazy, read = (make_mask(**options, **PLACES[place]) for _ in range(2))
    n, m = lazy.shape[-2:]
    query, key = torch.randn(3, 4, n, 6), torch.randn(3, 2, m, 6)
    _, weights = regard.transformers.attention(nn.Identity(), query, key, key, lazy, output_attentions=True)
    visible = masking.eager_mask(**{"batch_size": 3, "q_length": 7, "kv_length": 7} | options | PLACES[place]) == 0
    assert torch.equal(weights > 0, visible.expand_as(weights))
    assert torch.equal(read == 0, visible)


def test_a_mask_can_be_written_to():
    query, key, value = torch.randn(3, 3, 4, 7, 6)
    mask = make_mask()
    mask[..., 2] = torch.finfo(mask.dtype).min
    _, weights = regard.transformers.attention(nn.Identity(), query, key, value, mask, output_attentions=True)
    visible = torch.ones(7, 7, dtype=torch.bool).tril().index_fill(1, torch.tensor(2), False)
    same(weights[2], regard.weights(query, key, mask=regard.keep(visible))[2])


# ------------------------------------------------------------------------------------------------------ how it is asked


@pytest.mark.parametrize("name", ["BertModel", "LlamaForCausalLM"])
def test_ways_to_ask_for_it(name, tmp_path):
    auto = transformers.AutoModelForCausalLM if name in DECODERS else transformers.AutoModel
    model, inputs = model_of(name), inputs_of(name, padded=True)
    with torch.no_grad():
        expected = real_rows(features(run(name, "eager")), 1)
    model.save_pretrained(tmp_path)
    others = [
        auto.from_pretrained(tmp_path, attn_implementation="regard"),
        auto.from_config(copy(model.config), attn_implementation="regard"),
    ]
    others[1].load_state_dict(model.state_dict())
    for other in others:
        calls = []
        with torch.no_grad(), observe(calls.append):
            same(real_rows(features(other.eval()(**inputs)), 1), expected)
        assert len(calls) == 2


def test_arguments_that_may_change_the_result_are_refused():
    query, key, value = torch.randn(3, 3, 4, 7, 6)
    with pytest.raises(TypeError, match=r"Identity: .* got block_indices, .* use attn_implementation='eager'"):
        regard.transformers.attention(nn.Identity(), query, key, value, None, block_indices=torch.zeros(1))
    output, weights = regard.transformers.attention(nn.Identity(), query, key, value, None, block_indices=None)
    assert (output.shape, weights) == ((3, 7, 4, 6), None)
    same(output.transpose(1, 2), regard.attend(query, key, value, mask=regard.causal()))


def test_without_transformers():
    program = """
import sys
sys.modules["transformers"] = None
import regard
regard.attend
try:
    import regard.transformers
except ImportError as error:
    print(error)
"""
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    (line,) = child.stdout.splitlines()
    assert (child.returncode, "pip install" in line) == (0, True), child.stderr
