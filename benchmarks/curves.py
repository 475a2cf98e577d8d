"""Pictures that compare systems: learning curves, and BLEU by source length.

A few systems are drawn together. More have a panel each, in which the others are grey,
as nobody can follow fifteen lines by their colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_luong.evaluation.scores import FEW

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = tuple[Sequence[float], Sequence[float]]

#: Of Okabe and Ito, told apart by colour-blind eyes too; as many systems in one panel.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000")
MARKERS = "osD^v"
LONG_NAME = 30  # characters: three such names are wider than the picture


def learning_curves_figure(curves: Mapping[str, Sequence[float]]) -> Figure:
    """Draws validation perplexity by epoch (Luong et al. 2015, Figure 5).

    Args:
        curves: For each system, its perplexity after each epoch.

    Returns:
        A figure; perplexity is on a logarithmic axis.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, ScalarFormatter

    def prepare(axes: Axes) -> None:
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter("")

    points = {name: (range(1, len(y) + 1), y) for name, y in curves.items()}
    title = "Learning curves"
    return _lines(points, title, "epoch", "perplexity (validation)", prepare)


def bleu_by_length_figure(
    scores: Mapping[str, Mapping[str, float]],
    sentences: Mapping[str, int] | None = None,
    unit: str = "words",
) -> Figure:
    """Draws BLEU by the length of the source (Luong et al. 2015, Figure 6).

    Args:
        scores: For each system, the BLEU of each group of sentences. A group's key is
            the length of its longest sources in words, "inf" for all longer ones.
        sentences: The number of sentences in each group. Groups of fewer than 30, of
            which BLEU says little, are shaded.
        unit: What lengths are counted in.

    Returns:
        A figure; the groups are evenly spaced, the shortest first.
    """
    ends = sorted({float(end) for groups in scores.values() for end in groups})
    counts = {float(end): number for end, number in (sentences or {}).items()}
    few = {end for end in ends if counts and counts.get(end, 0) < FEW}
    labels = ["longer" if end == math.inf else f"{end:g}" for end in ends]
    if counts:
        labels = [
            f"{label}\n({counts.get(end, 0):,})"
            for label, end in zip(labels, ends, strict=True)
        ]

    def prepare(axes: Axes) -> None:
        axes.set_xticks(range(len(ends)), labels)
        for place, end in enumerate(ends):
            if end in few:
                axes.axvspan(place - 0.5, place + 0.5, color="0.92", zorder=0)

    points = {
        name: ([ends.index(float(end)) for end in groups], list(groups.values()))
        for name, groups in scores.items()
    }
    x = f"source {unit}, at most"
    if counts:
        x += " (sentences)"
    if few:
        x += f"; shaded: fewer than {FEW} sentences"
    return _lines(points, "BLEU by source length", x, "BLEU", prepare)


def _lines(
    points: Mapping[str, Points],
    title: str,
    x: str,
    y: str,
    prepare: Callable[[Axes], None],
) -> Figure:
    """Draws a line for each system, all in one panel or each in its own.

    Args:
        points: System → places and values.
        title: What is above it all.
        x: What is below it all.
        y: What is left of it all.
        prepare: Is called with each panel, before anything is drawn in it.
    """
    from matplotlib.figure import Figure

    if not points:
        raise ValueError("There must be a system to draw. Received: none")
    is_together = len(points) <= len(COLORS)
    columns = 1 if is_together else math.ceil(math.sqrt(len(points)))
    rows = 1 if is_together else math.ceil(len(points) / columns)
    size = (7.5, 4.8) if is_together else (2.3 * columns + 0.6, 1.9 * rows + 0.8)
    figure = Figure(figsize=size, layout="constrained")
    first = None
    for place in range(1 if is_together else len(points)):
        axes = figure.add_subplot(rows, columns, place + 1, sharex=first, sharey=first)
        first = first or axes
        _plain(axes)
        prepare(axes)
        if not is_together:
            _draw_one(axes, points, place)
            axes.tick_params(labelsize=8, labelleft=place % columns == 0)
            axes.tick_params(labelbottom=place + columns >= len(points))
    if is_together:
        _draw_together(figure, points)
        figure.axes[0].set(title=title, xlabel=x, ylabel=y)
    else:
        figure.suptitle(f"{title} (grey: the other systems)", fontsize=12)
        figure.supxlabel(x, fontsize=10)
        figure.supylabel(y, fontsize=10)
    return figure


def _plain(axes: Axes) -> None:
    axes.grid(color="0.9")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_together(figure: Figure, points: Mapping[str, Points]) -> None:
    """Draws all systems in the only panel, each with its own colour and marker."""
    style: dict[str, Any] = {"markersize": 4, "linewidth": 1.4}
    for (name, line), color, marker in zip(
        points.items(), COLORS, MARKERS, strict=False
    ):
        figure.axes[0].plot(*line, color=color, marker=marker, label=name, **style)
    ncols = 3 if max(map(len, points)) < LONG_NAME else 1
    figure.legend(loc="outside lower center", ncols=ncols, fontsize=9, frameon=False)


def _draw_one(axes: Axes, points: Mapping[str, Points], place: int) -> None:
    """Draws one system in a panel of its own, and the others behind it."""
    names = list(points)
    for other in names[:place] + names[place + 1 :]:
        axes.plot(*points[other], color="0.8", linewidth=0.8)
    xs, ys = points[names[place]]
    axes.plot(xs, ys, color=COLORS[0], marker="o", markersize=3, linewidth=1.6)
    axes.set_title(names[place], fontsize=9, parse_math=False)
