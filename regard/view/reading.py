"""What a model attends to in a text, a translation or a picture: regard's models, and any torch.nn.Module.

A text goes into a model by its tokenizer: a `tokenizers.Tokenizer`, one of transformers', or whatever is called with a
text (or has `encode`) and returns ids, with `decode` for the way back. `load` reads model folders: those that
`regard.load` reads, and by transformers any other of Hugging Face's. Nothing is downloaded, no code of a folder is run,
and weights come from safetensors alone.
"""

from __future__ import annotations

import importlib.util
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor, nn

from regard.models import folders
from regard.models.classifier import ImageClassifier
from regard.models.encoder import Encoder
from regard.models.language_model import LanguageModel
from regard.models.model import Model, evaluation
from regard.models.tensors import FolderError, Tensors, UnsupportedError, open_tensors, read_json
from regard.models.texts import encode, plain
from regard.models.tokenizer_files import check_tokenizer, panics_raised, read_tokenizer
from regard.models.translator import Translator
from regard.view.attention import AttentionDisplay
from regard.view.capture import capture
from regard.view.display import CELL, shown
from regard.view.images import ImageAttentionDisplay

PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
MARGIN = 14  # characters of the terminal for the name of a token in front of a row
LONGEST = 100_000  # characters; what is longer is not tokenized only to be cut
LARGEST = 1 << 31  # bytes of all weights
CLAIMED = 4  # times as many parameters as are in the files: some are there once and used twice
END = "(end)"
OFFLINE: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


@dataclass(frozen=True)
class Reading:
    """A text on its way through a model, which `run` calls.

    inputs: ids (1, n), of an encoder–decoder those of the source and those that the decoder reads
    tokens: texts of the queries; a decoder's are those it is about to write
    key_tokens: texts of the source, where there is one
    """

    model: nn.Module
    inputs: tuple[Tensor, ...]
    tokens: list[str]
    key_tokens: list[str] | None
    title: str

    def run(self) -> Any:
        """What the model returns."""
        if _config(self.model) is None:
            return self.model(*self.inputs)
        return self.model(**dict(zip(("input_ids", "decoder_input_ids"), self.inputs, strict=False)))


def read(
    model: nn.Module, text: str, target: str | None = None, *, tokenizer: Any = None, **chosen: Any
) -> AttentionDisplay:
    """The attention of a language model, an encoder or a translator in reading a text, cut at the model's limit.

    target: what a translator writes meanwhile, by default its translation; any other module with two inputs needs one
    tokenizer: by default model.tokenizer
    chosen: layers, heads and queries, as for `capture`
    """
    reading = prepare(model, text, target, tokenizer)
    if not chosen:
        _check_memory(reading)
    with torch.inference_mode(), evaluation(model), capture(model, **chosen) as captured:
        reading.run()
    if not captured:
        raise ValueError(f"model: expected one that attends, got a {type(model).__name__}, which did not")
    shortest = min(len(names) for names in (reading.tokens, reading.key_tokens) if names is not None)
    sides = (-1,) if "queries" in chosen else (-2, -1)
    if any(layer.weights.shape[side] < shortest for layer in captured.by_layer() for side in sides):
        return AttentionDisplay(captured, title=reading.title)  # it pools: these are positions, not tokens
    return AttentionDisplay(captured, reading.tokens, reading.key_tokens, title=reading.title)


@panics_raised()
def prepare(model: nn.Module, text: str, target: str | None = None, tokenizer: Any = None) -> Reading:
    """The ids and names of a text for a model, as for `read`; nothing is captured."""
    if not text.strip():
        raise ValueError("text: expected some words, got none")
    if len(text) > LONGEST:
        raise ValueError(f"text: expected at most {LONGEST:,} characters, got {len(text):,}")
    if isinstance(model, Model) and not isinstance(model, Encoder | LanguageModel | Translator):
        raise ValueError(f"a {type(model).__name__} reads no text")
    config = _config(model)
    reader = writer = tokenizer_of(model, tokenizer)
    limit = _limit(model)
    source = _encode(reader, text, limit)
    if isinstance(model, Translator):
        target = model.translate(text) if target is None else target
        writer = model.need_target_tokenizer() if tokenizer is None else tokenizer
        start = [model.config["bos"]]
    elif config is not None and config.is_encoder_decoder:
        theirs: Any = model
        start = [_start(theirs)]
        target = text if target is None and not theirs.can_generate() else target  # without a head it writes nothing
    elif target is None:
        return Reading(model, (_row(model, source),), token_names(reader, source), None, _short(text))
    elif isinstance(model, Model) or config is not None or not target.strip():
        raise ValueError(f"target: expected None or, for an encoder–decoder, some words, got {target!r}")
    else:
        start = []
    if target is None:
        written = _generate(model, source, limit)
        target = reader.decode(written)
    else:
        written = _encode(writer, target, limit and limit - len(start), special=False)
    # A token is predicted one position before it is read, so the row there is named after it.
    queries = [*token_names(writer, written), *([END] if start else [])]
    inputs = (_row(model, source), _row(model, [*start, *written]))
    return Reading(model, inputs, queries, token_names(reader, source), f"{_short(text)} → {_short(target)}")


# --------------------------------------------------------------------------------------------------------------- models


def _config(model: nn.Module) -> Any:
    """The config of a model of transformers; None for all others."""
    config = getattr(model, "config", None)
    return config if hasattr(config, "is_encoder_decoder") else None


def _text_config(model: nn.Module) -> Any:
    """The part of it that is about text, where a model also sees or hears."""
    config = _config(model)
    return config if config is None else config.get_text_config()


def _limit(model: nn.Module) -> int | None:
    """How many tokens the model can read, if it says so."""
    if isinstance(model, Model):
        limit: int | None = model.config.get("max_positions")
        return limit
    limit = getattr(_text_config(model), "max_position_embeddings", None)
    for path, module in model.named_modules():
        # RoBERTa's positions begin after the one of the padding.
        if isinstance(module, nn.Embedding) and "position" in path and module.padding_idx is not None:
            limit = min(limit or module.num_embeddings, module.num_embeddings - module.padding_idx - 1)
    return limit


def _start(model: Any) -> int:
    """The token with which a decoder begins."""
    for settings in (getattr(model, "generation_config", None), model.config):
        for name in ("decoder_start_token_id", "bos_token_id"):
            start = getattr(settings, name, None)
            if start is not None:
                return int(start)
    raise ValueError(f"model: expected a decoder_start_token_id in the config of this {type(model).__name__}, got none")


def _generate(model: Any, source: Sequence[int], limit: int | None) -> list[int]:
    """What an encoder–decoder of transformers writes, without the token at the start and the one at the end."""
    most = 2 * len(source) + 16
    most = most if limit is None else min(most, limit - 1)
    # Without a cache, whose size is wrong where encoder and decoder differ in the number of layers.
    options = {"do_sample": False, "num_beams": 1, "use_cache": False}
    with torch.inference_mode(), evaluation(model):
        output = model.generate(_row(model, source), max_new_tokens=most, **options)
    written: list[int] = output[0].tolist()[1:]
    end = model.generation_config.eos_token_id
    ends = end if isinstance(end, list) else [end]
    return written[:-1] if written and written[-1] in ends else written


def _check_memory(reading: Reading) -> None:
    """ValueError where the weights of all layers would take more memory than most machines have."""
    model, config = reading.model, _text_config(reading.model)
    if isinstance(model, Model):
        layers, heads = model.config.get("layers", 1), model.config.get("heads", 1)
    else:
        layers, heads = (getattr(config, name, None) or 1 for name in ("num_hidden_layers", "num_attention_heads"))
    n = max(ids.shape[1] for ids in reading.inputs)
    size = 4 * layers * heads * n * n
    if size > LARGEST:
        raise ValueError(
            f"text: expected at most {LARGEST / 1e9:.1f} GB of weights, got {size / 1e9:.1f} for {n:,} tokens, "
            f"{layers} layers and {heads} heads: give a shorter text, or choose layers, heads or queries"
        )


def _row(model: nn.Module, ids: Sequence[int]) -> Tensor:
    """Ids (1, n) where the model is."""
    count = getattr(_text_config(model), "vocab_size", None)
    if count is not None and max(ids) >= count:
        raise ValueError(
            f"tokenizer: expected ids below {count}, as many as this {type(model).__name__} knows, got {max(ids)}; "
            "it belongs to another model"
        )
    parameter = next(model.parameters(), None)
    return torch.tensor([ids], device=None if parameter is None else parameter.device)


# ----------------------------------------------------------------------------------------------------------- tokenizers


def tokenizer_of(model: nn.Module, tokenizer: Any = None) -> Any:
    """The tokenizer of a model, unless another one is given."""
    if tokenizer is not None:
        return tokenizer
    if isinstance(model, Model):
        return model.need_tokenizer()
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise ValueError(f"tokenizer: expected one that belongs to this {type(model).__name__}, got none")
    return tokenizer


def _encode(tokenizer: Any, text: str, limit: int | None, *, special: bool = True) -> list[int]:
    """The ids of a text, cut at the limit."""
    if hasattr(tokenizer, "encode_batch") and hasattr(tokenizer, "id_to_token"):  # tokenizers.Tokenizer
        if special:
            return encode(tokenizer, [text], limit)[0]
        ids = plain(tokenizer).encode(text, add_special_tokens=False).ids
    elif hasattr(tokenizer, "convert_ids_to_tokens"):  # of transformers
        cut = {} if limit is None else {"truncation": True, "max_length": limit}
        if special:
            ids = tokenizer(text, **cut)["input_ids"]
        else:
            ids = tokenizer(text_target=text, add_special_tokens=False, **cut)["input_ids"]
    else:
        ids = (tokenizer if callable(tokenizer) else tokenizer.encode)(text)
    if special and not len(ids):
        raise ValueError(f"text: expected tokens, got none from {text!r}")
    return [int(number) for number in ids][:limit]


def token_names(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The texts of tokens; of a part of a letter, which has none, the tokenizer's name for it."""
    name = getattr(tokenizer, "id_to_token", None) or getattr(tokenizer, "convert_ids_to_tokens", None)
    keep = {} if name is None else {"skip_special_tokens": False}
    texts = [tokenizer.decode([number], **keep) for number in ids]
    return [
        (name or str)(number) or "" if "\ufffd" in text or not text else text
        for number, text in zip(ids, texts, strict=True)
    ]


def _short(text: str) -> str:
    text = shown(" ".join(text.split()))
    return text if len(text) <= 60 else text[:59] + "…"


# ------------------------------------------------------------------------------------ displays, printed and as JSON


def look(model: nn.Module, given: str) -> AttentionDisplay | ImageAttentionDisplay:
    """The attention of a model to a text; of a classifier of images to a picture, given by its path."""
    path, name = Path(given), type(model).__name__
    if isinstance(model, ImageClassifier):
        if not path.exists():
            raise ValueError(f"a {name} reads pictures: expected the path of one, got {given!r}")
        return ImageAttentionDisplay.from_model(model, path)
    if path.suffix.lower() in PICTURES and path.is_file():
        raise ValueError(f"a {name} reads text, and {given} is a picture")
    return read(model, given)


def print_attention(
    display: AttentionDisplay | ImageAttentionDisplay,
    layer: int | None = None,
    head: int | None = None,
    *,
    file: TextIO | None = None,
) -> None:
    """Print a display: of a text the last layer, or another one, and the last tokens that the terminal has room for."""
    if isinstance(display, ImageAttentionDisplay):
        display.print(layer, head, file=file)
    else:
        tokens = max(8, (shutil.get_terminal_size().columns - MARGIN) // CELL)
        display.print(-1 if layer is None else layer, head, last=tokens, file=file)


def as_record(
    display: AttentionDisplay | ImageAttentionDisplay, layer: int | None = None, head: int | None = None
) -> dict[str, Any]:
    """A display as a dictionary for JSON: all layers of a text or one of them; of a picture one heat map."""
    if isinstance(display, ImageAttentionDisplay):
        heatmap = display.heatmap(layer, head).tolist()
        return {"label": display.label, "probability": display.probability, "kind": display.kind, "heatmap": heatmap}
    layers = [
        {
            **attention.to_dict(),
            "weights": dict(zip(map(str, attention.heads), attention.weights[0].tolist(), strict=True)),
        }
        for attention in display.select(layer, head)
    ]
    return {"layers": layers}


# -------------------------------------------------------------------------------------------------------- model folders


def load(folder: str | Path) -> nn.Module:
    """The model in a folder, in evaluation mode, in float32, on the CPU; what reads text has a `tokenizer`.

    It is one of regard's where that can be, else one of transformers' (extra `hf`).
    """
    folder, has_transformers = Path(folder), importlib.util.find_spec("transformers") is not None
    try:
        model = folders.load(folder)
    except UnsupportedError:
        if not has_transformers:
            raise
        return _load_by_transformers(folder)
    readable = model.tokenizer is not None or isinstance(model, ImageClassifier)
    if readable or not has_transformers or "model_type" not in read_json(folder / folders.CONFIG):
        return model
    return _load_by_transformers(folder)  # which knows more kinds of files of tokenizers


def _load_by_transformers(folder: Path) -> nn.Module:
    import transformers

    if not any(folder.glob("*.safetensors")):
        Tensors.of(folder)  # says what is there instead
    for path in folder.glob("*.json"):
        read_json(path, object)  # before it is read by others, who would wait for a pipe, or count with any number
    with _transformers(folder):
        config = transformers.AutoConfig.from_pretrained(folder, **OFFLINE)
        config._attn_implementation = None  # a config may name kernels to be downloaded
        options = {**OFFLINE, "config": config, "dtype": torch.float32, "use_safetensors": True}
        # What does not fit is in the report, and refused below.
        options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
        # The class that the config names, with its head; the bare model where transformers has no such class.
        kind: Any = getattr(transformers, (config.architectures or [""])[0], None)
        is_model = isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)
        is_known = is_model and kind.config_class is type(config)
        _check_claims(folder, kind if is_known else transformers.AutoModel.from_config, config)
        model, report = (kind if is_known else transformers.AutoModel).from_pretrained(folder, **options)
    if model.main_input_name != "input_ids":
        raise FolderError(f"{folder}: a {type(model).__name__} reads {model.main_input_name}, no text")
    # It would fill these with random numbers. What pools comes after all attention.
    absent = [key for key in report["missing_keys"] if "pooler" not in key] + [*report["mismatched_keys"]]
    if absent:
        raise FolderError(f"{folder}: {absent[0]} (of {len(absent)}) is missing in the files, or has another shape")
    if (folder / "tokenizer.json").exists():
        model.tokenizer = read_tokenizer(folder / "tokenizer.json")
    else:
        with _transformers(folder):
            model.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **OFFLINE)
            backend = getattr(model.tokenizer, "backend_tokenizer", None)  # made of files of other formats
            if backend is not None:
                check_tokenizer(backend.to_str().encode())
    module: nn.Module = model.eval()
    return module


def _check_claims(folder: Path, make: Callable[[Any], nn.Module], config: Any) -> None:
    """ValueError where a config claims more than the files hold, since transformers would fill what they lack."""
    shapes: list[Sequence[int]] = []
    for path in folder.glob("*.safetensors"):
        with open_tensors(path) as file:
            shapes += [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118 (it has no __iter__)
    held, layers = sum(map(math.prod, shapes)), getattr(config.get_text_config(), "num_hidden_layers", None) or 0
    if layers > len(shapes):  # each of them would be made, if only of shapes
        raise ValueError(f"config.json: says {layers} layers, but the files hold {len(shapes)} tensors")
    with torch.device("meta"):
        claimed = sum(parameter.numel() for parameter in make(config).parameters())
    if claimed > CLAIMED * held:
        raise ValueError(f"config.json: claims {claimed:,} parameters, but the files hold {held:,}")


@contextmanager
def _transformers(folder: Path) -> Iterator[None]:
    """Within this block transformers shows no progress bars and no warnings, and what it raises becomes a line."""
    import transformers

    logging = transformers.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except Exception as error:  # of many kinds, some of other libraries
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise FolderError(f"{folder}: transformers {transformers.__version__} cannot read it: {reason}") from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
