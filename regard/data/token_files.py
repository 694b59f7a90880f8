"""Tokens of more text than fits in memory: encoded in parallel, by a tokenizer that was trained on a sample."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import numpy
from filelock import FileLock
from numpy.typing import NDArray

from regard.data.store import prepared_folder
from regard.data.tokens import train_tokenizer
from regard.data.word_cache import WordCache, is_separable
from regard.files import write

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["BLOCK", "SAMPLE", "encode_blocks", "ids_dtype", "tokenizer_digest", "trained_tokenizer"]

Ids = NDArray[Any]
Result = TypeVar("Result")
BLOCK = 1 << 19  # characters: as many texts as make a block; the tokens of a block take fifty times its bytes
SAMPLE = 24_000_000  # characters at most that a tokenizer is trained on
FORMAT = 1


def ids_dtype(vocab_size: int) -> type[numpy.unsignedinteger[Any]]:
    """The type of ids: 16 bits where they suffice."""
    return numpy.uint16 if vocab_size < 1 << 16 else numpy.uint32


def encode_blocks(
    tokenizer: Tokenizer, blocks: Iterable[Sequence[str]], *, add_special_tokens: bool = False
) -> Iterator[list[Ids]]:
    """The ids of each text of each block, in order; a few blocks are in memory at a time."""
    dtype = ids_dtype(tokenizer.get_vocab_size())
    # Words are looked up by one thread at a time, in a fifth of the time that it takes to encode them.
    cache = (
        WordCache(tokenizer, dtype) if _threads() < 5 and not add_special_tokens and is_separable(tokenizer) else None
    )

    def encode(texts: Sequence[str]) -> list[Ids]:
        if cache is not None:
            return [cache.encode(text) for text in texts]
        encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        return [numpy.array(encoding.ids, dtype=dtype) for encoding in encodings]

    return _map_in_threads(encode, blocks)


def trained_tokenizer(
    key: Mapping[str, Any],
    sample: Callable[[], Iterable[str]],
    kind: str,
    vocab_size: int,
    **options: Any,
) -> Tokenizer:
    """A tokenizer trained on a sample of texts, of which it reads SAMPLE characters at most; a later call finds it.

    key: what the sample depends on, such as the content digest of the files.
    kind, vocab_size, options: see `train_tokenizer`.
    """
    from tokenizers import Tokenizer

    everything = {"format": FORMAT, "key": key, "kind": kind, "vocab_size": vocab_size, "sample": SAMPLE, **options}
    name = hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:32]
    path = prepared_folder() / f"tokenizer-{name}.json"
    with FileLock(path.with_name(f".{name}.lock")):
        if not path.exists():
            texts = _limited(sample())
            tokenizer = _in_thread(lambda: train_tokenizer(texts, kind, vocab_size, **options))
            write(path, tokenizer.to_str())
    return Tokenizer.from_file(str(path))


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """What a tokenizer is, as a SHA-256: the tokens of a text depend on nothing else."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def _limited(texts: Iterable[str]) -> Iterator[str]:
    """The first texts, up to SAMPLE characters."""
    size = 0
    for text in texts:
        if size and size + len(text) > SAMPLE:
            return
        size += len(text)
        yield text


# Threads are daemons: the work of one cannot be interrupted, and Ctrl-C should not wait for it.


def _in_thread(work: Callable[[], Result]) -> Result:
    """What `work` returns; Ctrl-C interrupts the waiting."""
    return next(_map_in_threads(lambda _: work(), [None]))


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _map_in_threads(work: Callable[[Any], Result], items: Iterable[Any]) -> Iterator[Result]:
    """The results in the order of the items, of which at most two for each thread are in memory."""
    tasks: SimpleQueue[tuple[Any, Future[Result]] | None] = SimpleQueue()
    threads = _threads()

    def run() -> None:
        while (task := tasks.get()) is not None:
            item, future = task
            try:
                future.set_result(work(item))
            except BaseException as error:  # raised again where the result is asked for
                future.set_exception(error)

    for _ in range(threads):
        threading.Thread(target=run, daemon=True).start()
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(Future())
            tasks.put((item, waiting[-1]))
            if len(waiting) == 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for _ in range(threads):
            tasks.put(None)
