"""Pictures of attention: which source tokens each target token looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INCHES_PER_TOKEN = 0.34
SMALLEST_SIDE = 1.6  # inches: room for the labels of one-token sentences


def attention_figure(
    weights,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str | None = None,
) -> Figure:
    """Draws the attention weights of one translation as a heat map.

    One row a target token, one column a source token; white is 0, dark blue is 1.
    The figure belongs to no window and no pyplot state, so it is safe in servers,
    threads and notebooks.

    Args:
        weights: Attention weights `[T, S]`, 0 to 1; anything NumPy can read.
        source_tokens: The `S` source tokens, drawn along the top.
        target_tokens: The `T` target tokens, drawn down the left side.
        title: Optional line above the picture.

    Returns:
        A figure, whose size follows the number of tokens.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If `weights` is not `[T, S]`, is empty, or is not finite.

    Example:
        >>> figure = attention_figure([[0.9, 0.1], [0.2, 0.8]], ["▁a", "▁dog"],
        ...                           ["▁ein", "▁Hund"])
        >>> figure.savefig("attention.png")
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Drawing attention needs matplotlib, which is not installed. "
            "Install the extra that has it: pip install 'keras_luong[plots]'"
        ) from error

    weights = _checked(weights, source_tokens, target_tokens)
    rows, columns = weights.shape
    width = max(SMALLEST_SIDE, INCHES_PER_TOKEN * columns)
    height = max(SMALLEST_SIDE, INCHES_PER_TOKEN * rows)
    figure = Figure(figsize=(width + 1.6, height + 1.4), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    axes.xaxis.tick_top()
    # Tokens are text, never formulas: a "$" would make matplotlib parse them.
    plain = {"parse_math": False, "fontsize": 10}
    axes.set_xticks(
        range(columns),
        [_readable(token) for token in source_tokens],
        rotation=60,
        ha="left",
        rotation_mode="anchor",
        **plain,
    )
    axes.set_yticks(range(rows), [_readable(token) for token in target_tokens], **plain)
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="0.88", linewidth=0.6)
    axes.tick_params(which="both", length=0)
    figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02, ticks=[0, 0.5, 1])
    if title is not None:
        figure.suptitle(title, fontsize=11, parse_math=False)
    return figure


def save_attention(
    path,
    weights,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str | None = None,
) -> None:
    """Draws `attention_figure` into a file.

    Args:
        path: Where to; the ending (`.png`, `.pdf`, `.svg`) gives the format.
        weights: Attention weights `[T, S]`.
        source_tokens: The `S` source tokens.
        target_tokens: The `T` target tokens.
        title: Optional line above the picture.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If `weights` is not `[T, S]`, is empty, or is not finite.

    Example:
        >>> t = translator.translate(["A dog runs."])[0]
        >>> save_attention("dog.png", t.alignment, t.source_tokens, t.tokens)
    """
    figure = attention_figure(weights, source_tokens, target_tokens, title)
    figure.savefig(path, dpi=120)


def _checked(weights, source_tokens, target_tokens) -> np.ndarray:
    weights = np.asarray(weights, dtype="float32")
    expected = (len(target_tokens), len(source_tokens))
    if weights.shape != expected:
        raise ValueError(
            "weights must be [target tokens, source tokens], here "
            f"{list(expected)}. Received shape: {list(weights.shape)}"
        )
    if 0 in expected:
        raise ValueError(
            f"There is nothing to draw: {expected[0]} target tokens, "
            f"{expected[1]} source tokens"
        )
    if not np.isfinite(weights).all():
        raise ValueError("weights must be finite. Received NaN or infinite values")
    return weights


def _readable(token: str) -> str:
    """SentencePiece's word-start sign as a thin space, and nothing invisible."""
    if token == "▁":
        return "␣"
    return token.replace("▁", "\u2009") if token.strip() else "␣"
