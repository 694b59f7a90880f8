"""`regard.explore`: the laboratory around a module that lives in this process."""

from __future__ import annotations

import secrets
import threading
from typing import Any

from torch import nn

from regard.web.model_store import ModelStore
from regard.web.server import application, free_socket
from regard.web.tour import Tour
from regard.web.training import Trainer

__all__ = ["Explorer", "explore"]


class Explorer:
    """A page that is being served. `url` is its address; `close` ends it, as leaving a `with` block does."""

    def __init__(self, store: ModelStore, port: int) -> None:
        import uvicorn

        self._listener, self._trainer = free_socket(port), Trainer()
        number = self._listener.getsockname()[1]
        app = application(store, self._trainer, Tour(), secrets.token_urlsafe(24), number)
        self.url = f"http://127.0.0.1:{number}/laboratory#/model"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", server_header=False))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server; the page then says that it is gone."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        self._trainer.stop()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Explorer({self.url!r})"


def explore(model: nn.Module, tokenizer: Any = None, *, port: int = 8_417) -> Explorer:
    """Serve a page on this machine to look into a module that lives here, with every head of every text; print its
    address. The page computes with the module as it is at the time: train it further, and read the text again.

    model: a torch.nn.Module that reads token ids · tokenizer: of transformers or of tokenizers; None: the model's own ·
    port: or the next free one

    >>> import regard, tokenizers
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4)
    >>> words = {word: number for number, word in enumerate("[UNK] the cat sat on a mat".split())}
    >>> tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    >>> with regard.explore(model, tokenizer, port=8_417) as page:  # doctest: +ELLIPSIS
    ...     print(page.url)
    http://127.0.0.1:84...
    http://127.0.0.1:84.../laboratory#/model
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    explorer = Explorer(ModelStore(live={type(model).__name__: (model, tokenizer)}), port)
    print(explorer.url, flush=True)
    return explorer
