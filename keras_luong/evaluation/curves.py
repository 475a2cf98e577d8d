"""Pictures that compare systems: learning curves, and BLEU by source length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from keras_luong.evaluation.plots import check_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = tuple[Sequence[float], Sequence[float]]


def learning_curves_figure(curves: Mapping[str, Sequence[float]]) -> Figure:
    """Draws validation perplexity by epoch (Luong et al. 2015, Figure 5).

    Args:
        curves: For each system, its perplexity after each epoch.

    Returns:
        A figure; perplexity is on a logarithmic axis.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are no systems.

    Example:
        >>> from keras_luong.evaluation.curves import learning_curves_figure
        >>> learning_curves_figure({"dot": [90, 40, 30]}).savefig("curves.png")
    """
    check_matplotlib()
    from matplotlib.ticker import LogLocator, MaxNLocator, ScalarFormatter

    points = {name: (range(1, len(y) + 1), y) for name, y in curves.items()}
    figure, axes = _lines(points, "epoch", "perplexity (validation)")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter("")
    return figure


def bleu_by_length_figure(scores: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draws BLEU by the length of the source (Luong et al. 2015, Figure 6).

    Args:
        scores: For each system, the BLEU of each group of sentences. A group's key is
            the length of its longest sources in words, "inf" for all longer ones.

    Returns:
        A figure; the groups are evenly spaced, the shortest first.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are no systems.

    Example:
        >>> from keras_luong.evaluation.curves import bleu_by_length_figure
        >>> scores = {"dot": {"10": 40.0, "20": 35.0, "inf": 30.0}}
        >>> bleu_by_length_figure(scores).savefig("lengths.png")
    """
    check_matplotlib()
    ends = sorted({float(end) for groups in scores.values() for end in groups})
    points = {
        name: ([ends.index(float(end)) for end in groups], list(groups.values()))
        for name, groups in scores.items()
    }
    figure, axes = _lines(points, "source words, at most", "BLEU")
    labels = ["longer" if end == math.inf else f"{end:g}" for end in ends]
    axes.set_xticks(range(len(ends)), labels)
    return figure


def _lines(points: Mapping[str, Points], x: str, y: str) -> tuple[Figure, Axes]:
    """Draws a line for each system, each with its own colour and dashes."""
    from matplotlib.figure import Figure

    if not points:
        raise ValueError("There must be a system to draw. Received: none")
    figure = Figure(figsize=(8.5, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for i, (name, (xs, ys)) in enumerate(points.items()):
        style = ("-", "--", ":")[i // 10 % 3]  # matplotlib has ten colours
        axes.plot(xs, ys, style, marker="o", markersize=3, linewidth=1.2, label=name)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return figure, axes
