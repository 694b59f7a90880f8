"""Small random models of `transformers`, in odd sizes, and their twins read from the folders that they write."""

import torch
import transformers

from regard import load

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

WIDE = {"initializer_range": 0.4}  # numbers large enough that a mistake shows

BERTS = {
    "words": ("BertForMaskedLM", {}),
    "classes": ("BertForSequenceClassification", {"num_labels": 7}),
    "one-type-relu": ("BertForMaskedLM", {"type_vocab_size": 1, "hidden_act": "relu"}),
    "bare": ("BertModel", {"num_hidden_layers": 1, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
}
GPT2S = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "inner": {"n_inner": 29, "activation_function": "relu", "n_layer": 1},
}
LLAMAS = {
    "heads": {},
    "grouped": {"num_key_value_heads": 2},
    "one-kv": {"num_key_value_heads": 1, "tie_word_embeddings": True},
    "head-size": {"head_dim": 10, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "biases": {"attention_bias": True, "mlp_bias": True, "rms_norm_eps": 1e-3},
}
MISTRALS = {"window": {"sliding_window": 4}, "no-window": {"sliding_window": None, "head_dim": 10}}
QWEN2S = {
    "no-window": {"num_key_value_heads": 2},
    "last-windows": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
}
QWEN3S = {
    "norms": {"head_dim": 10, "num_key_value_heads": 3},
    "windows-biases": {
        "use_sliding_window": True,
        "sliding_window": 5,
        "max_window_layers": 1,
        "head_dim": 4,
        "attention_bias": True,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-3,
    },
}
GEMMA2S = {
    "caps": {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "sliding_window": 4},
    "no-caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None, "query_pre_attn_scalar": 7},
}
GEMMA3S = {
    "pattern": {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "untied": {
        "tie_word_embeddings": False,
        "final_logit_softcapping": 3.0,
        "query_pre_attn_scalar": 7,
        "attention_bias": True,
    },
}
ROBERTAS = {
    "words": ("RobertaForMaskedLM", {}),
    "classes": ("RobertaForSequenceClassification", {"num_labels": 7, "type_vocab_size": 1}),
    "bare": ("RobertaModel", {"hidden_act": "relu", "layer_norm_eps": 1e-3}),
}
DISTILBERTS = {
    "words": ("DistilBertForMaskedLM", {"activation": "relu"}),
    "classes": ("DistilBertForSequenceClassification", {"num_labels": 7}),
    "bare": ("DistilBertModel", {"n_layers": 1}),
}
VITS = {
    "class": {},
    "no-query-bias": {"qkv_bias": False, "num_channels": 1, "hidden_act": "relu"},
    "oblong": {"image_size": (12, 20)},
}
RESNETS = {
    "basic": {"depths": [2, 1], "hidden_sizes": [7, 14], "layer_type": "basic"},
    "bottleneck": {"depths": [1, 2], "num_channels": 2},
    "stride-first": {"depths": [1, 2, 1], "hidden_sizes": [28, 56, 112], "downsample_in_bottleneck": True},
}
MARIANS = {
    "plain": {},
    "scaled": {"scale_embedding": True, "activation_function": "silu"},
    "lopsided": {"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 23},
}


BERT_SIZES = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 19,
    "max_position_embeddings": 17,
}


def bert(name):
    kind, options = BERTS[name]
    return getattr(transformers, kind)(transformers.BertConfig(**BERT_SIZES | WIDE | options))


def roberta(name):
    kind, options = ROBERTAS[name]
    return getattr(transformers, kind)(transformers.RobertaConfig(**BERT_SIZES | WIDE | options))


def distilbert(name):
    kind, options = DISTILBERTS[name]
    sizes = {"vocab_size": 31, "dim": 12, "n_layers": 2, "n_heads": 3, "hidden_dim": 19, "max_position_embeddings": 17}
    return getattr(transformers, kind)(transformers.DistilBertConfig(**sizes | WIDE | options))


def gpt2(name):
    sizes = {"vocab_size": 31, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 41}
    marks = {"bos_token_id": 3, "eos_token_id": 3}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes | marks | WIDE | GPT2S[name]))


LLAMA_SIZES = {
    "vocab_size": 31,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "intermediate_size": 19,
    "max_position_embeddings": 41,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GEMMA_SIZES = LLAMA_SIZES | {"num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 10, "pad_token_id": 0}


def llama(name):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA_SIZES | WIDE | LLAMAS[name]))


def mistral(name):
    sizes = LLAMA_SIZES | {"num_key_value_heads": 3}
    return transformers.MistralForCausalLM(transformers.MistralConfig(**sizes | WIDE | MISTRALS[name]))


def qwen2(name):
    sizes = LLAMA_SIZES | {"num_key_value_heads": 6}
    return shake(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes | WIDE | QWEN2S[name])))


def qwen3(name):
    sizes = LLAMA_SIZES | {"num_key_value_heads": 6}
    return shake(transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**sizes | WIDE | QWEN3S[name])))


def gemma2(name):
    return shake(transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**GEMMA_SIZES | WIDE | GEMMA2S[name])))


def gemma3(name):
    return shake(transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**GEMMA_SIZES | WIDE | GEMMA3S[name])))


def shake(model):
    """With norms and biases that are not those of a new model."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def vit(name):
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 19}
    rest = {"image_size": 12, "patch_size": 4, "num_labels": 5}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**sizes | rest | WIDE | VITS[name]))


def resnet(name):
    sizes = {"embedding_size": 7, "hidden_sizes": [28, 56], "layer_type": "bottleneck", "num_labels": 5}
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes | RESNETS[name]))
    for path, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.uniform_(0.1, 0.5 if path.endswith("running_var") else 0.9)
    return model


def marian(name):
    sizes = {"vocab_size": 31, "d_model": 12, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 19}
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 3, "decoder_ffn_dim": 29}
    marks = {"pad_token_id": 30, "eos_token_id": 0, "decoder_start_token_id": 30, "forced_eos_token_id": None}
    rest = {"max_position_embeddings": 41, "init_std": 0.4}
    return transformers.MarianMTModel(transformers.MarianConfig(**sizes | heads | marks | rest | MARIANS[name]))


T5S = {
    "first": {},
    "gated": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 1},
    "silu": {"feed_forward_proj": "gated-silu", "layer_norm_epsilon": 1e-3},
}


def t5(name):
    sizes = {"vocab_size": 31, "d_model": 12, "d_kv": 5, "d_ff": 19, "num_layers": 2, "num_heads": 3}
    rest = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 11}
    marks = {"pad_token_id": 30, "eos_token_id": 0, "decoder_start_token_id": 30}
    return shake(transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes | rest | marks | T5S[name])))


def twin(theirs, folder):
    """The same model, read from the folder that `transformers` writes."""
    theirs.eval().save_pretrained(folder)
    return load(folder)


def back(ours, kind, folder):
    """The same model once more, read by `transformers` from the folder that we write."""
    ours.export(folder)
    return kind.from_pretrained(folder).eval()
