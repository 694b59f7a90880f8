"""Small random models of `transformers`, in odd sizes, and their twins read from the folders that they write."""

import transformers

from regard.models import load

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


def bert(name):
    kind, options = BERTS[name]
    sizes = {"vocab_size": 31, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
    rest = {"intermediate_size": 19, "max_position_embeddings": 17}
    return getattr(transformers, kind)(transformers.BertConfig(**sizes | rest | WIDE | options))


def gpt2(name):
    sizes = {"vocab_size": 31, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 41}
    marks = {"bos_token_id": 3, "eos_token_id": 3}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes | marks | WIDE | GPT2S[name]))


def llama(name):
    sizes = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6}
    rest = {"intermediate_size": 19, "max_position_embeddings": 41, "bos_token_id": 1, "eos_token_id": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes | rest | WIDE | LLAMAS[name]))


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


def twin(theirs, folder):
    """The same model, read from the folder that `transformers` writes."""
    theirs.eval().save_pretrained(folder)
    return load(folder)


def back(ours, theirs, folder):
    """The same model once more, read by `transformers` from the folder that we write."""
    ours.export(folder)
    return type(theirs).from_pretrained(folder).eval()
