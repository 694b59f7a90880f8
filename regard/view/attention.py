"""What heads look at, as heat maps: one head, a grid of all, the difference of two runs, a page to look around in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from regard.view import fonts, page, pictures
from regard.view.capture import Capture
from regard.view.seen import Seen
from regard.view.summary import Summary
from regard.view.terminal import print_map, shown

__all__ = ["AttentionDisplay"]

QUERY, KEY = "query (looks)", "key (looked at)"
NAMED = 64  # tokens on an axis that all have their names on it; of more, some
GAP = 0.03  # between the maps of a grid, of a map


@dataclass(frozen=True)
class Map:
    """The weights of one layer, (heads, n, m), of one text."""

    look: Seen
    weights: Tensor
    rows: list[str]
    columns: list[str]


class AttentionDisplay:
    """The weights of a capture, for one entry of its batch.

    `tokens` name the queries, `key_tokens` the keys of layers that look at another sequence, and all places of the
    layers that read it. `plot` draws one head, or the mean of a layer's; `plot_grid` all of them; `a - b` is what
    changed. `save` writes a picture, or a page to look around in (.html), which loads nothing from anywhere.

    >>> import regard, torch
    >>> model = regard.LanguageModel(vocab_size=31, size=16, layers=2, heads=4).eval()
    >>> with regard.capture(model) as seen:
    ...     _ = model(torch.tensor([[5, 6, 7]]))
    >>> display = regard.AttentionDisplay(seen, tokens=["a", "b", "c"])
    >>> display.to_frame(layer=1, head=3).shape  # a row for each pair of tokens
    (9, 7)
    """

    ax_: Axes
    figure_: Figure | None

    def __init__(
        self,
        looks: Sequence[Seen] | Capture,
        tokens: Sequence[str] | None = None,
        key_tokens: Sequence[str] | None = None,
        *,
        entry: int = 0,
        title: str = "",
    ) -> None:
        seen = looks.by_layer() if isinstance(looks, Capture) else list(looks)
        if not seen:
            raise ValueError("looks: expected one or more, got none")
        self.title, self.signed = title, False
        self.maps = [_map(look, entry, tokens, key_tokens) for look in seen]

    def __sub__(self, other: AttentionDisplay) -> AttentionDisplay:
        """What changed from the other to this one: layer by layer, of the same shapes."""
        if not isinstance(other, AttentionDisplay):
            return NotImplemented
        shapes = [[own.weights.shape for own in display.maps] for display in (self, other)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"expected the same layers, heads and tokens, got {shapes[0]} and {shapes[1]}")
        changed = object.__new__(AttentionDisplay)
        changed.title, changed.signed = self.title, True
        changed.maps = [
            replace(own, weights=own.weights - before.weights)
            for own, before in zip(self.maps, other.maps, strict=True)
        ]
        return changed

    # ------------------------------------------------------------------------------------------------------ pictures

    def plot(
        self, layer: int = -1, head: int | None = None, *, ax: Axes | None = None, by_row: bool = False
    ) -> AttentionDisplay:
        """One head of a layer, or the mean of its heads. by_row: colours relative to the largest weight of each row."""
        chosen, weights = self._chosen(layer, head)
        with _written([*chosen.rows, *chosen.columns]):
            axes = _alone(weights) if ax is None else ax
            image = self._draw(axes, chosen, weights, by_row=by_row)
            axes.set(xlabel=KEY, ylabel=QUERY, title=self._named(chosen, head))
            figure = axes.get_figure(root=True)
            if figure is not None:
                label = "share of the row's largest" if by_row else "change" if self.signed else "weight"
                figure.colorbar(image, ax=axes, label=label, shrink=0.8)
        self.ax_, self.figure_ = axes, figure
        return self

    def plot_grid(self) -> AttentionDisplay:
        """Layers below each other, heads side by side."""
        figure = self._grid()
        self.ax_, self.figure_ = figure.axes[0], figure
        return self

    def save(self, path: str | Path, layer: int | None = None, head: int | None = None) -> Path:
        """Write .png, .svg or .pdf: one head (layer and head), the mean of a layer's heads (layer), or the grid of all;
        or .html: all of them, to look around in."""
        if Path(path).suffix.lower() == ".html" and not self.signed:
            return page.write(self._content(), path)
        return pictures.write(self._drawing(layer, head), path)

    def _repr_html_(self) -> str:
        return pictures.html(self._drawing(None, None))

    def _drawing(self, layer: int | None, head: int | None) -> Callable[[], Figure]:
        if layer is None and head is not None:
            layer = -1
        one = len(self.maps) == 1 and len(self.maps[0].weights) == 1

        def drawn() -> Figure:
            if layer is None and not one:
                return self._grid()
            figure = self.plot(-1 if layer is None else layer, head).figure_
            assert isinstance(figure, Figure)  # it has just been made
            return figure

        return drawn

    def _grid(self) -> Figure:
        """All maps on one axes, for layout takes a second for a dozen axes and there may be hundreds of maps."""
        most = max(len(own.weights) for own in self.maps)
        with _written([self.title]):
            return self._gridded(most)

    def _gridded(self, most: int) -> Figure:
        figure = pictures.figure(1.3 + 0.85 * len(self.maps), max(5.0, 1.7 + 0.85 * most))
        axes = figure.subplots()
        for row, own in enumerate(self.maps):
            for column, weights in enumerate(own.weights):
                image = self._paint(axes, weights)
                image.set_extent((column + GAP, column + 1 - GAP, row + 1 - GAP, row + GAP))
        numbers = [str(own.look.layer) for own in self.maps]
        heads = max((own.look.heads for own in self.maps), key=len)
        axes.set_xticks([place + 0.5 for place in range(most)], [str(head) for head in heads])
        axes.set_yticks([place + 0.5 for place in range(len(numbers))], numbers)
        axes.set(xlim=(0, most), ylim=(len(numbers), 0), xlabel="head", ylabel="layer", aspect="equal")
        lines = [
            *([self.title] if self.title else []),
            "in each map: rows look (queries), columns are looked at (keys)",
        ]
        title = axes.set_title("\n".join(lines), fontsize=9)
        title.set_in_layout(False)  # or a long text would leave the maps no room
        figure.colorbar(image, ax=axes, label="change" if self.signed else "weight", shrink=0.8)
        return figure

    def _draw(self, axes: Axes, own: Map, weights: Tensor, *, by_row: bool) -> Any:
        """One map with the names of its tokens."""
        image = self._paint(axes, weights / weights.amax(-1, keepdim=True).clamp(min=1e-12) if by_row else weights)
        _label(axes.xaxis, own.columns, 90)
        _label(axes.yaxis, own.rows, 0)
        axes.tick_params(labelsize=8)
        return image

    def _paint(self, axes: Axes, weights: Tensor) -> Any:
        if not self.signed:
            return pictures.heat(axes, weights)
        return pictures.signed(axes, weights, max(float(own.weights.abs().max()) for own in self.maps) or 1.0)

    # ------------------------------------------------------------------------------------------------ numbers, terminal

    def summary(self) -> Summary:
        """How wide every head looks."""
        return Summary([replace(own.look, weights=own.weights[None]) for own in self.maps])

    def to_frame(self, layer: int | None = None, head: int | None = None) -> Any:
        """A pandas DataFrame with a row for each weight: layer, head, query, key, their tokens, weight."""
        import pandas

        tables = []
        for own in self.maps if layer is None else [self._chosen(layer, None)[0]]:
            for place, number in enumerate(own.look.heads):
                if head is None or number == head:
                    n, m = own.weights.shape[1:]
                    columns = {
                        "layer": own.look.layer,
                        "head": number,
                        "query": [place for place in range(n) for _ in range(m)],
                        "key": list(range(m)) * n,
                        "query_token": [name for name in own.rows for _ in range(m)],
                        "key_token": own.columns * n,
                        "weight": own.weights[place].flatten().tolist(),
                    }
                    tables.append(pandas.DataFrame(columns))
        return pandas.concat(tables, ignore_index=True)

    def print(self, layer: int = -1, head: int | None = None, *, most: int = 0) -> None:
        """The heat map in the terminal; of the last `most` tokens, if that is not 0."""
        own, weights = self._chosen(layer, head)
        print(self._named(own, head))
        print_map(weights[-most:, -most:], own.rows[-most:], own.columns[-most:])

    # --------------------------------------------------------------------------------------------------------- details

    def _chosen(self, layer: int, head: int | None) -> tuple[Map, Tensor]:
        """A layer by its number, negative ones from the end, and the weights (n, m) of a head or their mean."""
        known = [own.look.layer for own in self.maps]
        if layer < 0 and -layer <= len(known):
            layer = known[layer]
        if layer not in known:
            raise IndexError(f"layer: expected one of {', '.join(map(str, known))}, got {layer}")
        own = self.maps[known.index(layer)]
        if head is None:
            return own, own.weights.mean(0)
        if head not in own.look.heads:
            raise IndexError(f"head: expected one of {', '.join(map(str, own.look.heads))}, got {head}")
        return own, own.weights[own.look.heads.index(head)]

    def _named(self, own: Map, head: int | None) -> str:
        which = f"head {head}" if head is not None else f"mean of {len(own.weights)} heads"
        return f"layer {own.look.layer} ({own.look.name}), {which if len(own.weights) > 1 else 'one head'}"

    def _content(self) -> page.Content:
        layers = [
            page.Layer(own.look.layer, own.look.name, own.look.kind, own.look.heads, own.weights, own.rows, own.columns)
            for own in self.maps
        ]
        return page.Content(self.title or "Attention", layers)


def _map(look: Seen, entry: int, tokens: Sequence[str] | None, key_tokens: Sequence[str] | None) -> Map:
    """The weights of an entry, without its padding, and the names of both axes."""
    if not -len(look.weights) <= entry < len(look.weights):
        raise IndexError(f"entry: expected a number below {len(look.weights)}, got {entry}")
    weights = look.weights[entry].detach().float().cpu()
    other = key_tokens if key_tokens is not None else tokens
    # An encoder beside a decoder reads the other sequence; a decoder of one word looks like one, but for the length.
    reads = other if look.kind == "self" and other is not None and len(other) == weights.shape[-1] else tokens
    queries = None if reads is None else [shown(name) for name in reads]
    keys = None if other is None else [shown(name) for name in (other if look.kind == "cross" else reads or ())]
    if queries is not None:
        queries = [queries[place] for place in look.queries if place < len(queries)]
    n, m = weights.shape[1:]
    if queries is not None and len(queries) > n:
        raise ValueError(f"tokens: {look.name} has {n} queries, got {len(queries)} tokens")
    if keys is not None and len(keys) > m:
        raise ValueError(f"tokens: {look.name} has {m} keys, got {len(keys)} tokens")
    rows = [str(place) for place in look.queries] if queries is None else queries
    columns = [str(place) for place in range(m)] if keys is None else keys
    return Map(look, weights[:, : len(rows), : len(columns)], rows, columns)


def _alone(weights: Tensor) -> Axes:
    """Axes for one map, as large as its tokens want it."""
    n, m = weights.shape
    height, width = (min(9.0, max(2.4, 1.6 + 0.22 * min(size, NAMED))) for size in (n, m))
    return pictures.figure(height, width + 1.2).subplots()


def _label(axis: Any, names: Sequence[str], rotation: float) -> None:
    """Names of tokens on an axis: all of them, or every k-th."""
    step = max(1, -(-len(names) // NAMED))
    places = list(range(0, len(names), step))
    axis.set_ticks(places, [names[place] for place in places], rotation=rotation)


def _written(texts: Sequence[str]) -> Any:
    """Within this block letters come from fonts that have them."""
    from matplotlib import rc_context

    return rc_context({"font.family": fonts.families(texts)})
