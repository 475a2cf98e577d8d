"""Pictures of attention: which source words each target word attended to.

Shapes: T target tokens, S source tokens.

A cluster is a character with its combining marks, which must be drawn in one font.

Pictures that compare systems: learning curves, and BLEU by source length.

A few systems are drawn together. More have a panel each, in which the others are grey,
as nobody can follow fifteen lines by their colours.
"""

from __future__ import annotations

import functools
import math
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from keras_luong.evaluation.alignment import (
    WORD_START,
    Word,
    matrix,
    merge_ranges,
    words_of,
)
from keras_luong.evaluation.scores import FEW
from keras_luong.files import saved_beside
from keras_luong.text.words import is_unspaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontEntry


PER_TOKEN = 0.34  # inches
SMALLEST_SIDE = 1.6  # inches, of one-token sentences
LONGEST_TITLE = 8.0  # inches that a picture is made wider for
MOST_CODES = 6  # of neighbouring code points that are spelled out
JOINERS = "\u200c\u200d"  # separate or join their neighbours
EMOJI_STYLES = "\ufe0e\ufe0f"  # black or coloured; matplotlib ignores them
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # controls, formats, private use
BOXES = ("lastresort", "fallback", "notdef")  # fonts that draw every character as a box


def check_matplotlib() -> None:
    """Raises ImportError that says what to install if matplotlib is missing.

    Raises:
        ImportError: If it is missing.

    Example:
        >>> from keras_luong.evaluation.plots import check_matplotlib
        >>> check_matplotlib()
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "Drawing needs matplotlib, which is not installed. Install the extra that "
            "has it: pip install 'keras_luong[plots]'"
        ) from error


def attention_figure(
    weights: ArrayLike,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str | None = None,
    pieces: bool = False,
) -> Figure:
    """Draws the attention weights of one translation as a heat map.

    There is a row for each target word and a column for each source word; white is 0,
    dark blue is 1. The figure does not use pyplot, so it is safe in servers, threads
    and notebooks.

    SentencePiece's pieces are merged to words: attention *to* the pieces of a source
    word is summed, attention *from* the pieces of a target word is averaged, as in
    `merge_weights`. Words of scripts without spaces, such as Chinese, stay in pieces.

    Words are drawn in matplotlib's default font (`rcParams["font.family"]`) and, where
    that lacks a character, in any installed font that has it. A character that no font
    has, or that is invisible, is drawn as its code point, such as `<U+4E2D>`; for
    missing fonts a warning says once what to install. Right-to-left scripts and those
    that join letters look right with matplotlib 3.11 or later; earlier versions draw
    letters unjoined and from left to right. The order of the tokens is always from left
    to right and from top to bottom.

    Args:
        weights: Attention weights [T, S], 0 to 1; anything NumPy can read.
        source_tokens: The S source tokens, drawn along the top.
        target_tokens: The T target tokens, drawn down the left side.
        title: Optional line above the picture.
        pieces: Whether to draw the tokens as they are. Lines between them are dark
            where a word begins.

    Returns:
        A figure, whose size depends on the number of tokens.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If `weights` is not [T, S], is empty, or is not finite.
        TypeError: If one string is given in place of a list of tokens.

    Example:
        >>> from keras_luong.evaluation.plots import attention_figure
        >>> figure = attention_figure(
        ...     [[0.9, 0.1], [0.2, 0.8]], ["▁a", "▁dog"], ["▁ein", "▁Hund"], "A dog"
        ... )
        >>> figure.savefig("attention.png")
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    weights = matrix(weights, source_tokens, target_tokens)
    rows, columns = weights.shape
    if not weights.size:
        raise ValueError(
            f"There is nothing to draw: {rows} target tokens, {columns} source tokens"
        )
    target, source = (_drawn(x, pieces) for x in (target_tokens, source_tokens))
    labels = [_readable(word.text) for word in (*target, *source)]
    lines = [] if title is None else title.split("\n")
    texts, families = _drawable([*labels, *lines])
    down, along, lines = (
        texts[: len(target)],
        texts[len(target) : len(labels)],
        texts[len(labels) :],
    )
    # Words are text, never formulas: a "$" would make matplotlib parse them.
    plain: dict[str, Any] = {"parse_math": False, "fontfamily": families}
    figure = Figure(figsize=_size(down, along, lines), layout="constrained")
    axes = figure.add_subplot()
    merged = merge_ranges(weights, source, target)
    image = axes.imshow(merged, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    _name_axes(axes, down, along, plain)
    axes.set_xlabel(f"source {_kind(source_tokens, source, pieces)}")
    axes.set_ylabel(f"target {_kind(target_tokens, target, pieces)}")
    if pieces:
        _mark_words(axes, source_tokens, target_tokens)
    bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02, ticks=[0, 0.5, 1])
    bar.set_label("attention")
    if lines:
        figure.suptitle("\n".join(lines), fontsize=11, **plain)
    return figure


def save_attention(
    path: str | Path,
    weights: ArrayLike,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str | None = None,
    pieces: bool = False,
) -> None:
    """Draws `attention_figure` into a file.

    Args:
        path: The file; its suffix (`.png`, `.pdf`, `.svg`) gives the format. An SVG
            holds outlines instead of letters, so it looks the same on machines that
            lack the fonts (unless `rcParams["svg.fonttype"]` has been changed).
        weights: Attention weights [T, S].
        source_tokens: The S source tokens.
        target_tokens: The T target tokens.
        title: Optional line above the picture.
        pieces: As for `attention_figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If `weights` is not [T, S], is empty, or is not finite.
        TypeError: If one string is given in place of a list of tokens.

    Example:
        >>> from keras_luong.evaluation.plots import save_attention
        >>> weights = [[0.9, 0.1], [0.2, 0.8]]
        >>> save_attention("dog.png", weights, ["▁a", "▁dog"], ["▁ein", "▁Hund"])
    """
    figure = attention_figure(weights, source_tokens, target_tokens, title, pieces)
    with saved_beside(path) as beside:
        figure.savefig(beside, dpi=120)


def _drawn(tokens: Sequence[str], pieces: bool) -> list[Word]:
    """Returns what has a row or a column of its own: words, or each token."""
    if pieces:
        return [Word(token, range(i, i + 1)) for i, token in enumerate(tokens)]
    drawn: list[Word] = []
    for word in words_of(tokens):
        if len(word.tokens) > 1 and any(map(is_unspaced, word.text)):
            drawn += _in_pieces(tokens, word)
        else:
            drawn.append(word)
    return drawn


def _in_pieces(tokens: Sequence[str], word: Word) -> Iterator[Word]:
    """Splits a word into its pieces; a "▁" alone belongs to the piece after it."""
    start = word.tokens.start
    for i in word.tokens:
        if tokens[i].strip(WORD_START) or i == word.tokens[-1]:
            yield Word("".join(tokens[start : i + 1]), range(start, i + 1))
            start = i + 1


def _kind(tokens: Sequence[str], drawn: list[Word], pieces: bool) -> str:
    """Returns what the rows or columns are, for the name of the axis."""
    if not any(WORD_START in token for token in tokens):
        return "tokens"
    return "pieces" if pieces or len(drawn) > len(words_of(tokens)) else "words"


def _name_axes(
    axes: Axes, down: list[str], along: list[str], plain: dict[str, Any]
) -> None:
    """Writes the words beside the rows and above the columns, with a grid between."""
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    slant: dict[str, Any] = {"rotation": 60, "ha": "left", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(along)), along, fontsize=10, **slant, **plain)
    axes.set_yticks(range(len(down)), down, fontsize=10, **plain)
    axes.set_xticks(np.arange(len(along) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(down) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="0.88", linewidth=0.6)
    axes.tick_params(which="both", length=0)


def _mark_words(
    axes: Axes, source_tokens: Sequence[str], target_tokens: Sequence[str]
) -> None:
    """Draws a dark line where a word begins, out to the labels."""
    dark: dict[str, Any] = {"color": "0.35", "linewidth": 1.1, "clip_on": False}
    for word in words_of(source_tokens)[1:]:
        place = word.tokens.start - 0.5
        axes.plot([place] * 2, [0, 1.02], transform=axes.get_xaxis_transform(), **dark)
    for word in words_of(target_tokens)[1:]:
        place = word.tokens.start - 0.5
        axes.plot([-0.02, 1], [place] * 2, transform=axes.get_yaxis_transform(), **dark)


def _readable(token: str) -> str:
    """Returns a token without SentencePiece's "▁", with a blank one as "␣"."""
    return " ".join(token.replace("▁", " ").split()) or "␣"


def _size(down: list[str], along: list[str], title: list[str]) -> tuple[float, float]:
    """Returns width and height in inches, with room for the longest labels."""
    rows, columns = (max(SMALLEST_SIDE, PER_TOKEN * len(x)) for x in (down, along))
    left = max(_length(label) for label in down)
    # Labels are at 60 degrees, and the last ones lean over the right edge.
    up = max(0.87 * _length(label) for label in along)
    right = max(
        0.5 * _length(label) - PER_TOKEN * place
        for place, label in enumerate(reversed(along))
    )
    wide = min(max(map(_length, title), default=0.0), LONGEST_TITLE)
    height = rows + up + 0.9 + 0.2 * len(title)
    return max(left + columns + max(right, 0) + 1.4, wide + 0.4), height


def _length(label: str) -> float:
    """Estimates a label's length in inches; East Asian characters count double."""
    return 0.085 * sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in label)


def _drawable(texts: list[str]) -> tuple[list[str], list[str]]:
    """Returns texts that the fonts can draw, and the families of these fonts."""
    rows = [_clusters(text) for text in texts]
    clusters = {cluster for row in rows for cluster in row if cluster != " "}
    unseen = {c for c in clusters if unicodedata.category(c[0]) in UNSEEN}
    families, missing = _fonts(clusters - unseen)
    if missing:
        _warn_of_missing_fonts()
    return [_spelled(row, unseen | missing) for row in rows], families


@functools.cache  # once a process; Python itself would warn at every picture
def _warn_of_missing_fonts() -> None:
    import matplotlib

    warnings.warn(
        "No installed font has some of the characters: they are drawn as their code "
        "points, <U+...>. To see them, install fonts such as Noto (on Debian and "
        "Ubuntu, fonts-noto-core and fonts-noto-cjk), then delete matplotlib's list of "
        f"fonts in {matplotlib.get_cachedir()}",
        stacklevel=4,
    )


def _clusters(text: str) -> list[str]:
    """Splits a text into characters, each with its combining marks."""
    clusters: list[str] = []
    for character in text:
        if not clusters or not _continues(clusters[-1], character):
            clusters.append(character)
        elif character not in EMOJI_STYLES:
            clusters[-1] += character
    return clusters


def _continues(cluster: str, character: str) -> bool:
    """Tells whether a character is drawn together with those before it."""
    return (
        unicodedata.category(character).startswith("M")
        or character in JOINERS
        or cluster[1:].endswith("\u200d")  # as in families of emoji
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
    )


def _spelled(clusters: list[str], undrawable: set[str]) -> str:
    """Joins the clusters, with code points in place of those that can't be drawn."""
    parts = []
    for spell, group in groupby(clusters, undrawable.__contains__):
        part = "".join(group)
        if spell:
            codes = [f"{ord(character):04X}" for character in part]
            codes[MOST_CODES:] = ["..."] * (len(codes) > MOST_CODES)
            part = f"<U+{' '.join(codes)}>"
        parts.append(part)
    return "".join(parts)


def _fonts(clusters: set[str]) -> tuple[list[str], set[str]]:
    """Returns the font families to use, and the clusters that no font has.

    The families are the default ones and others that have what these lack. matplotlib
    tries the families of a list one after the other, but no others.
    """
    from matplotlib.font_manager import FontProperties

    families = list(FontProperties().get_family())
    missing = {c for c in clusters if not any(_has(f, c) for f in families)}
    faces = _plainest_faces() if missing else {}
    found = {name: {c for c in missing if _draws(faces[name], c)} for name in faces}
    # As few families as possible, for a uniform look; among equals the plainer one.
    while any(found.values()):
        best = max(found, key=lambda name: len(found[name]))
        families.append(best)
        drawn = {c for c in found.pop(best) if _has(best, c)}
        missing -= drawn
        found = {name: has - drawn for name, has in found.items()}
    return families, missing


def _plainest_faces() -> dict[str, str]:
    """Returns the file of each family's plainest face, plain families first."""
    from matplotlib.font_manager import fontManager

    faces: dict[str, str] = {}
    for face in sorted(fontManager.ttflist, key=_plainness, reverse=True):
        if not any(box in face.name.lower().replace(" ", "") for box in BOXES):
            faces.setdefault(face.name, face.fname)
    return faces


def _plainness(face: FontEntry) -> tuple[bool, bool, bool, str]:
    upright, regular = face.style == "normal", face.weight == 400
    return upright, regular, "Sans" in face.name, face.name


def _has(family: str, cluster: str) -> bool:
    """Tells whether the face that matplotlib chooses of a family draws a cluster."""
    from matplotlib.font_manager import FontProperties, findfont

    try:
        path = findfont(FontProperties(family=[family]), fallback_to_default=False)
    except ValueError:  # not installed: matplotlib tries the next family
        return False
    return _draws(path, cluster)


@functools.lru_cache(maxsize=1 << 16)
def _draws(path: str, cluster: str) -> bool:
    """Tells whether a font file has all characters of a cluster, not as blanks."""
    from matplotlib.font_manager import get_font

    try:
        font = get_font(path)
        return (
            all(font.get_char_index(ord(character)) for character in cluster)
            and font.load_char(ord(cluster[0])).width > 0  # 0 for emoji in colour
        )
    except (OSError, RuntimeError):  # the file is gone or damaged
        return False


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

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are no systems.

    Example:
        >>> from keras_luong.evaluation.plots import learning_curves_figure
        >>> learning_curves_figure({"dot": [90, 40, 30]}).savefig("curves.png")
    """
    check_matplotlib()
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

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are no systems.

    Example:
        >>> from keras_luong.evaluation.plots import bleu_by_length_figure
        >>> scores = {"dot": {"10": 40.0, "20": 35.0, "inf": 30.0}}
        >>> sentences = {"10": 300, "20": 120, "inf": 7}
        >>> bleu_by_length_figure(scores, sentences).savefig("lengths.png")
    """
    check_matplotlib()
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
