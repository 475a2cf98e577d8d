"""Pictures of attention: which source words each target word attended to.

Shapes: T target tokens, S source tokens.
"""

from __future__ import annotations

import functools
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
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
from keras_luong.files import saved_beside
from keras_luong.text.words import is_unspaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PER_TOKEN = 0.34  # inches
SMALLEST_SIDE = 1.6  # inches, of one-token sentences
LONGEST_TITLE = 8.0  # inches that a picture is made wider for
JOINERS = "\u200c\u200d\ufe0e\ufe0f"  # change their neighbours, and need no glyph
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
    lines = [] if title is None else re.sub(r"[^\S\n]", " ", title).split("\n")
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
    """Returns the words, or the tokens, that get a row or a column each."""
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
    """Returns texts that the fonts can draw, and the families of these fonts.

    matplotlib tries the families of a list one after the other, but no others. So
    installed ones are added that have what the default ones lack.
    """
    from matplotlib.font_manager import FontProperties, fontManager

    families = list(FontProperties().get_family())
    characters = {c for c in "".join(texts) if not c.isspace() and c not in JOINERS}
    missing = {c for c in characters if unicodedata.category(c) not in UNSEEN}
    unseen = characters - missing
    missing = {c for c in missing if not any(_has(x, c) for x in families)}
    if missing:
        names = {face.name for face in fontManager.ttflist}
        plain_first = sorted(names, key=lambda name: ("Sans" not in name, name))
        drawn_by = {x: {c for c in missing if _has(x, c)} for x in plain_first}
        for family in sorted(drawn_by, key=lambda x: -len(drawn_by[x])):
            if drawn_by[family] & missing:
                families.append(family)
                missing -= drawn_by[family]
    if missing:
        warnings.warn(
            "No installed font has some of the characters: they are drawn as their "
            "code points, <U+...>. To see them, install fonts such as Noto (on Debian "
            "and Ubuntu, fonts-noto-core and fonts-noto-cjk).",
            stacklevel=2,
        )
    codes = {ord(c): f"<U+{ord(c):04X}>" for c in missing | unseen}
    return [text.translate(codes) for text in texts], families


@functools.lru_cache(maxsize=1 << 16)
def _has(family: str, character: str) -> bool:
    """Whether the face that matplotlib chooses of a family draws a character."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    if any(box in family.lower().replace(" ", "") for box in BOXES):
        return False
    try:
        path = findfont(FontProperties(family=[family]), fallback_to_default=False)
        font = get_font(path)
        # Emoji in colour have no width.
        return bool(
            font.get_char_index(ord(character)) and font.load_char(ord(character)).width
        )
    except (ValueError, OSError, RuntimeError):  # not installed, gone or damaged
        return False
