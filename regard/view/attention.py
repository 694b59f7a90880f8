"""Attention weights as heat maps: one head, a grid of all, the difference of two runs, a page to explore them in; and
which words of a translation attend to which words of its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard import files
from regard.attention.capture import AttentionMap
from regard.models.translator import Alignment, Links, Translator, align
from regard.training.metrics import alignment_error_rate
from regard.view import page, pictures
from regard.view.capture import AttentionMaps
from regard.view.display import Display, LayersDisplay, print_map, shown
from regard.view.widths import Summary

QUERY, KEY = "query (looks)", "key (looked at)"
LABELLED = 64  # tokens on an axis that all have labels; of more, every second, third …
GAP = 0.03  # between the maps of a grid, of a map
CELLS = 160  # of a map in the grid, a side, as many as it has pixels; of more tokens each cell has the largest weight


class AttentionDisplay(LayersDisplay):
    """Attention maps, for one entry of their batch. `plot` draws one head, or the mean of a layer's; `plot_grid` all.

    maps: a capture, whose steps are joined by layer, or maps of layers
    tokens: texts of the queries; by default those of the maps, or their positions
    key_tokens: texts of the keys of cross-attention; also used on both axes for self-attention over the source
    entry: which one of the batch
    title: of the page that `save` writes

    `a - b` is what changed. `save` writes a picture, or a page to explore (.html), which loads nothing from elsewhere.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> with regard.capture(model) as seen:
    ...     _ = model(torch.tensor([[5, 6, 7]]))
    >>> display = regard.AttentionDisplay(seen, tokens=["a", "b", "c"])
    >>> display.to_frame(layer=1, head=3).shape  # a row for each pair of tokens
    (9, 7)
    """

    def __init__(
        self,
        maps: Sequence[AttentionMap],
        tokens: Sequence[str] | None = None,
        key_tokens: Sequence[str] | None = None,
        *,
        entry: int = 0,
        title: str = "",
    ) -> None:
        if not maps:
            raise ValueError("maps: expected one or more, got none")
        self.title, self.signed, self.before = title, False, list[AttentionMap]()
        if any(one.summary is not None for one in maps):
            raise ValueError("maps: captured with summary=True, without the weights: there is nothing to draw")
        layers = maps.by_layer() if isinstance(maps, AttentionMaps) else maps
        self.maps = [_entry(layer, entry, tokens, key_tokens) for layer in layers]  # weights (1, heads, n, m)

    def __sub__(self, other: AttentionDisplay) -> AttentionDisplay:
        """What changed from the other to this one, layer by layer."""
        if not isinstance(other, AttentionDisplay):
            return NotImplemented
        shapes, before = ([layer.weights.shape[1:] for layer in display.maps] for display in (self, other))
        if shapes != before:
            raise ValueError(f"expected the same layers, heads and tokens, got {shapes} and {before}")
        pairs = zip(self.maps, other.maps, strict=True)
        changes = [replace(layer, weights=layer.weights - earlier.weights) for layer, earlier in pairs]
        display = AttentionDisplay(changes, title=self.title)
        display.signed, display.before = True, other.maps
        return display

    # ------------------------------------------------------------------------------------------------------ pictures

    def plot(
        self, layer: int = -1, head: int | None = None, *, ax: Axes | None = None, by_row: bool = False
    ) -> AttentionDisplay:
        """One head of a layer, or the mean of its heads. by_row: colours relative to the largest weight of each row."""
        chosen, weights = self._chosen(layer, head)
        with pictures.fonts_for(*chosen.tokens, *chosen.key_tokens):
            if ax is None:  # as large as the tokens want it
                height, width = (min(9.0, max(2.4, 1.6 + 0.22 * min(count, LABELLED))) for count in weights.shape)
                ax = pictures.figure(height, width + 1.2).subplots()
            if by_row:
                weights = weights / weights.amax(-1, keepdim=True).clamp(min=1e-12)
            image = self._heat_map(ax, weights)
            for axis, tokens, rotation in ((ax.xaxis, chosen.key_tokens, 90), (ax.yaxis, chosen.tokens, 0)):
                ticks = range(0, len(tokens), max(1, -(-len(tokens) // LABELLED)))
                axis.set_ticks(list(ticks), [tokens[tick] for tick in ticks], rotation=rotation)
            ax.tick_params(labelsize=8)
            ax.set(xlabel=KEY, ylabel=QUERY, title=_title(chosen, head))
            label = "share of the row's largest" if by_row else "change" if self.signed else "weight"
            self.ax_, self.figure_ = ax, pictures.colorbar(ax, image, label, shrink=0.8)
        return self

    def save(self, path: str | Path, layer: int | None = None, head: int | None = None) -> Path:
        """Write .png, .svg or .pdf: one head (layer and head), the mean of a layer's heads (layer), or the grid of all;
        or .html: all of them, to explore; of a difference both runs, and what changed."""
        if Path(path).suffix.lower() == ".html":
            if (layer, head) != (None, None):
                raise ValueError("layer, head: a page has all of them: leave them out, or write a picture")
            files.write(Path(path), page.html(self.title or "Attention", *self._runs()))
            return Path(path)
        return super().save(path, layer, head)

    def widget(self) -> Any:
        """The page as a widget for notebooks; `_repr_mimebundle_` shows it where anywidget is installed."""
        return page.widget(page.content(*self._runs()))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget()._repr_mimebundle_(**options) if find_spec("anywidget") else None

    def _runs(self) -> tuple[list[AttentionMap], list[AttentionMap]]:
        """The maps that pages show: of a difference those after it and those before."""
        if not self.signed:
            return self.maps, []
        pairs = zip(self.maps, self.before, strict=True)
        return [replace(layer, weights=layer.weights + before.weights) for layer, before in pairs], self.before

    @property
    def _has_grid(self) -> bool:
        return len(self.maps) > 1 or len(self.maps[0].heads) > 1

    def _grid(self) -> Figure:
        """Layers below each other, heads side by side: all on one axes, for layout takes a second for a dozen axes and
        there may be hundreds of maps."""
        heads = max((layer.heads for layer in self.maps), key=len)
        with pictures.fonts_for(self.title):
            figure = pictures.figure(1.3 + 0.85 * len(self.maps), max(5.0, 1.7 + 0.85 * len(heads)))
            axes = figure.subplots()
            for row, layer in enumerate(self.maps):
                for column, weights in enumerate(page.pooled(layer.weights[0], CELLS)):
                    image = self._heat_map(axes, weights)
                    image.set_extent((column + GAP, column + 1 - GAP, row + 1 - GAP, row + GAP))
            axes.set_xticks([column + 0.5 for column in range(len(heads))], [str(head) for head in heads])
            axes.set_yticks([row + 0.5 for row in range(len(self.maps))], [str(layer.layer) for layer in self.maps])
            axes.set(xlim=(0, len(heads)), ylim=(len(self.maps), 0), xlabel="head", ylabel="layer", aspect="equal")
            lines = [self.title, "in each map: rows look (queries), columns are looked at (keys)"]
            title = axes.set_title("\n".join(filter(None, lines)), fontsize=9)
            title.set_in_layout(False)  # or a long text would leave the maps no room
            figure.colorbar(image, ax=axes, label="change" if self.signed else "weight", shrink=0.8)
        return figure

    def _heat_map(self, axes: Axes, weights: Tensor) -> Any:
        if not self.signed:
            return pictures.heat(axes, weights)
        return pictures.signed(axes, weights, max(float(layer.weights.abs().max()) for layer in self.maps) or 1.0)

    # ------------------------------------------------------------------------------------------------ numbers, terminal

    def summary(self) -> Summary:
        """How wide every head attends."""
        return Summary(self.maps)

    def to_frame(self, layer: int | None = None, head: int | None = None) -> Any:
        """A pandas DataFrame with a row for each weight: layer, head, query, key, their tokens, weight."""
        import pandas

        tables = []
        for chosen in self.select(layer, head):
            n, m = chosen.weights.shape[2:]
            for number, weights in zip(chosen.heads, chosen.weights[0], strict=True):
                columns = {
                    "layer": chosen.layer,
                    "head": number,
                    "query": [query for query in range(n) for _ in range(m)],
                    "key": list(range(m)) * n,
                    "query_token": [token for token in chosen.tokens for _ in range(m)],
                    "key_token": chosen.key_tokens * n,
                    "weight": weights.flatten().tolist(),
                }
                tables.append(pandas.DataFrame(columns))
        return pandas.concat(tables, ignore_index=True)

    def print(self, layer: int = -1, head: int | None = None, *, last: int = 0, file: TextIO | None = None) -> None:
        """The heat map in the terminal; of the `last` tokens only, if that is not 0."""
        chosen, weights = self._chosen(layer, head)
        print(_title(chosen, head), file=file)
        print_map(weights[-last:, -last:], chosen.tokens[-last:], chosen.key_tokens[-last:], file=file)

    def select(self, layer: int | None = None, head: int | None = None) -> list[AttentionMap]:
        """The weights of all layers, or of one by its number, negative ones from the end; of all heads, or of one."""
        maps = self.maps
        if layer is not None:
            numbers = [other.layer for other in maps]
            number = numbers[layer] if -len(numbers) <= layer < 0 else layer
            if number not in numbers:
                raise IndexError(f"layer: expected one of {', '.join(map(str, numbers))}, got {layer}")
            maps = [maps[numbers.index(number)]]
        if head is None:
            return maps
        heads = sorted({number for other in maps for number in other.heads})
        if head not in heads:
            raise IndexError(f"head: expected one of {', '.join(map(str, heads))}, got {head}")
        having = [other for other in maps if head in other.heads]
        return [replace(one, heads=(head,), weights=one.weights[:, [one.heads.index(head)]]) for one in having]

    def _chosen(self, layer: int, head: int | None) -> tuple[AttentionMap, Tensor]:
        """A layer, and the weights (n, m) of a head or their mean."""
        (whole,), (chosen,) = self.select(layer), self.select(layer, head)
        return whole, chosen.weights[0].mean(0)


def _entry(
    layer: AttentionMap, entry: int, tokens: Sequence[str] | None, key_tokens: Sequence[str] | None
) -> AttentionMap:
    """One entry of the batch, (1, heads, n, m), without its padding, and with texts for both axes."""
    if not -len(layer.weights) <= entry < len(layer.weights):
        raise IndexError(f"entry: expected a number below {len(layer.weights)}, got {entry}")
    n, m = layer.weights.shape[2:]
    columns = layer.keys or tuple(range(m))
    if tokens is None and key_tokens is None and layer.tokens:
        return _cut(layer, entry, range(n), range(m))
    other = tokens if key_tokens is None else key_tokens
    # The encoder beside a decoder reads the other sequence. So may a decoder of one token, unless the length tells.
    sequence = other if layer.kind == "self" and other is not None and len(other) == m else tokens
    queries = [str(query) for query in range(max(layer.queries, default=-1) + 1)] if sequence is None else sequence
    keys = other if layer.kind == "cross" else sequence
    keys = [str(key) for key in range(max(columns, default=-1) + 1)] if keys is None else keys
    if len(keys) > max(columns, default=-1) + 1:
        raise ValueError(f"tokens: {layer.name} has {m} keys, got {len(keys)} tokens")
    rows = [row for row, query in enumerate(layer.queries) if query < len(queries)]
    kept = [column for column, key in enumerate(columns) if key < len(keys)]
    return replace(
        _cut(layer, entry, rows, kept),
        tokens=tuple(shown(queries[layer.queries[row]]) for row in rows),
        key_tokens=tuple(shown(keys[columns[column]]) for column in kept),
    )


def _cut(layer: AttentionMap, entry: int, rows: Sequence[int], columns: Sequence[int]) -> AttentionMap:
    """One entry of the batch, with these of its rows and columns."""

    def taken(tensor: Tensor | None, *places: Sequence[int]) -> Tensor | None:
        part = None if tensor is None else tensor[entry : entry + 1 or None].detach().float().cpu()  # (1, heads, …)
        for dim, chosen in enumerate(places, 2):
            if part is not None and len(chosen) < part.shape[dim]:
                part = part.index_select(dim, torch.tensor([*chosen]).long())
        return part

    operands = {"query": rows, "key": columns, "value": columns, "output": rows, "sink": rows}
    parts: dict[str, Any] = {name: taken(getattr(layer, name), places) for name, places in operands.items()}
    parts["queries"] = tuple(layer.queries[row] for row in rows)
    parts["keys"] = tuple(layer.keys[column] for column in columns) if layer.keys else ()
    parts["weights"] = taken(layer.weights, rows, columns)
    return replace(layer, **parts)


def _title(layer: AttentionMap, head: int | None) -> str:
    count = len(layer.heads)
    heads = "one head" if count == 1 else f"mean of {count} heads" if head is None else f"head {head}"
    return f"layer {layer.layer} ({layer.name}), {heads}"


class AlignmentDisplay(Display):
    """The words of a translation and those of its source: how much each attends to each, and the links that follow.

    Made by `from_model`. Rings mark the links; squares the right ones, where they are known (`gold`).

    >>> import regard, torch
    >>> from regard.models.translator import Alignment
    >>> alignment = Alignment(["on", "the", "mat"], ["sur", "le", "tapis"], torch.eye(3))
    >>> regard.AlignmentDisplay(alignment).to_frame().shape  # words of the translation × words of its source
    (3, 3)
    """

    def __init__(self, alignment: Alignment, gold: Links | None = None) -> None:
        self.alignment, self.gold = alignment, gold
        self.height = 1.6 + 0.28 * len(alignment.target)

    @classmethod
    def from_model(
        cls,
        model: Translator,
        source: str,
        target: str | None = None,
        *,
        gold: Links | None = None,
        ax: Axes | None = None,
    ) -> AlignmentDisplay:
        """Translate, unless the translation is given, and draw."""
        translation = model.translate(source) if target is None else target
        (alignment,) = align(model, [source], [translation])
        return cls(alignment, gold).plot(ax=ax)

    @property
    def error_rate(self) -> float | None:
        """The alignment error rate of this sentence, where the right links are known."""
        return None if self.gold is None else alignment_error_rate([self.alignment.links], [self.gold])

    def to_frame(self) -> Any:
        """A pandas DataFrame: a row for each word of the translation, a column for each of the source."""
        import pandas

        words = self.alignment
        return pandas.DataFrame(words.weights.tolist(), index=words.target, columns=words.source)

    def print(self, *, file: TextIO | None = None) -> None:
        """The heat map in the terminal."""
        print_map(self.alignment.weights, self.alignment.target, self.alignment.source, file=file)

    def _draw(self, axes: Axes) -> None:
        words = self.alignment
        with pictures.fonts_for(*words.source, *words.target):
            image = pictures.heat(axes, words.weights)
            axes.set_xticks(range(len(words.source)), words.source, rotation=90)
            axes.set_yticks(range(len(words.target)), words.target)
            axes.set(xlabel="source (looked at)", ylabel="translation (looks)")
        marks = [(words.links, "o", pictures.TRUTH, 60, "linked"), (self.gold, "s", pictures.OTHER, 130, "right")]
        for links, marker, colour, size, label in marks:
            if links is not None:
                sources, targets = ([link[side] for link in sorted(links)] for side in (0, 1))
                style: Any = {"marker": marker, "edgecolors": colour, "facecolors": "none"}
                axes.scatter(sources, targets, s=size, label=label, **style)
        pictures.legend(axes, borderaxespad=0.2)
        pictures.colorbar(axes, image, "weight", shrink=0.8)
