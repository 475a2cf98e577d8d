"""Draws the pictures of attention.md: the same states, seen by each attention.

The states are made, not learned, and so are the few weights that an attention has: a
source position is a row of sines and cosines, alike to those near it, and a little to
those half a source away. Each query is like the source position that it stands for.

    python docs/site/draw_attentions.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from keras import ops

import keras_luong as kl

IMAGES = Path(__file__).parents[1] / "images"
SOURCE, TARGET = 24, 12
PERIODS = (6.0, 12.0, 12.0, 36.0)


def waves(positions: np.ndarray) -> np.ndarray:
    """Sines and cosines of positions [N]: -> [N, 8]."""
    angles = 2 * np.pi * positions[:, None] / np.array(PERIODS)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


def states(length: int = SOURCE) -> tuple[np.ndarray, np.ndarray]:
    """Queries [1, TARGET, 10] and a source [1, length, 10].

    The last two columns are for weights that are set by hand: of a query they are 1 and
    how far along the source it is, as a small logit; of a source position nothing.
    """
    places = np.linspace(0.5, SOURCE - 1.5, TARGET)
    share = (places + 0.5) / SOURCE
    logit = 0.1 * np.log(share / (1 - share))
    queries = np.column_stack([waves(places), np.ones(TARGET), logit])
    spread = waves(np.linspace(0, SOURCE - 1, length))
    keys = np.column_stack([spread, np.zeros((length, 2))])
    return queries[None].astype("float32"), keys[None].astype("float32")


def weights_of(attention, **options) -> np.ndarray:
    """The attention's weights of the states, [TARGET, SOURCE]."""
    found = attention(*states(), return_attention_scores=True, **options)
    return ops.convert_to_numpy(found[1])[0]


def built(attention):
    """The attention, with its weights."""
    queries, keys = states()
    attention.build(queries.shape, keys.shape)
    return attention


def luong() -> dict[str, np.ndarray]:
    """Global attention."""
    return {'LuongAttention("dot")': weights_of(kl.LuongAttention("dot"))}


def local() -> dict[str, np.ndarray]:
    """Both alignments; local-p predicts the place from the query's last column."""
    predictive = built(kl.LocalAttention(3, "predictive", "dot", units=1))
    predictive.position_kernel = np.eye(10, dtype="float32")[:, -1:]
    predictive.position_scale = np.array([10.0], "float32")
    monotonic = kl.LocalAttention(3, "monotonic", "dot")
    positions = np.arange(TARGET)[None] * SOURCE // TARGET
    return {
        '"monotonic"': weights_of(monotonic, positions=positions),
        '"predictive"': weights_of(predictive),
    }


def monotonic() -> dict[str, np.ndarray]:
    """Soft, as in training, and hard, as at inference."""
    options = {"score_bias_init": -3.2}
    return {
        "in training": weights_of(kl.MonotonicAttention("dot", **options)),
        "hard=True": weights_of(kl.MonotonicAttention("dot", hard=True, **options)),
    }


def chunkwise() -> dict[str, np.ndarray]:
    """Chunks of four, which end where it stops."""
    options = {"score_bias_init": -3.2, "chunk_size": 4, "chunk_score_mode": "cosine"}
    hard = kl.MonotonicChunkwiseAttention("dot", hard=True, **options)
    soft = kl.MonotonicChunkwiseAttention("dot", **options)
    return {"in training": weights_of(soft), "hard=True": weights_of(hard)}


def location() -> dict[str, np.ndarray]:
    """A filter that expects the next place two positions on."""
    layer = built(kl.LocationAwareAttention("dot", filters=1, kernel_size=7))
    layer.filter_kernel = np.array([[0, 1, 1, 0, 0, 0, 0]], "float32").T
    row = np.zeros((1, 10), "float32")
    row[0, 8] = 6.0  # where every query is 1
    layer.location_kernel = row
    return {
        "by content alone": weights_of(kl.LuongAttention("dot")),
        "and by where it was": weights_of(layer),
    }


def multi_head() -> dict[str, np.ndarray]:
    """One head compares what is near, the other what is far."""
    layer = built(kl.MultiHeadLuongAttention(2, key_dim=4, score_mode="dot"))
    columns = np.eye(10, dtype="float32")[:, [0, 4, 1, 5, 2, 6, 3, 7]]
    layer.score.query_kernel = 1.5 * columns
    layer.score.key_kernel = columns
    queries, keys = states()
    heads = ops.convert_to_numpy(layer.head_weights(queries, layer.prepare(keys)))[0]
    return {f"head {n + 1}": weights for n, weights in enumerate(heads)}


def multi_source() -> dict[str, np.ndarray]:
    """Two sources of different lengths."""
    layer = kl.MultiSourceAttention([kl.LuongAttention("dot") for _ in range(2)])
    (queries, first), (_, second) = states(), states(SOURCE // 2)
    _, found = layer(queries, [first, second], return_attention_scores=True)
    found = ops.convert_to_numpy(found)[0]
    return {"first source": found[:, :SOURCE], "second source": found[:, SOURCE:]}


PICTURES = {
    "luong": luong,
    "local": local,
    "monotonic": monotonic,
    "chunkwise": chunkwise,
    "location": location,
    "multi_head": multi_head,
    "multi_source": multi_source,
}


def draw(maps: dict[str, np.ndarray], path: Path) -> None:
    """A panel for each map, a row for each query."""
    size = {"figsize": (3.4 * len(maps), 2.2), "layout": "constrained"}
    figure, plots = plt.subplots(1, len(maps), squeeze=False, **size)
    for plot, (title, weights) in zip(plots[0], maps.items(), strict=True):
        plot.imshow(weights, cmap="Blues", vmin=0, aspect="auto")
        plot.set(xlabel="source", ylabel="target", xticks=[], yticks=[])
        plot.set_title(title, size=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(folder: Path = IMAGES) -> None:
    """Draws all of them."""
    for name, maps in PICTURES.items():
        draw(maps(), folder / f"attention_{name}.png")


if __name__ == "__main__":
    main()
