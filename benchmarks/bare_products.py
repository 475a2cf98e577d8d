"""What the products of a model's matrices take, with nothing between them.

No search can be faster, on this machine and with these products.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from timed_loops import seconds

from keras_luong.models import Transformer

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)  # sentences, for which a step is timed
#: Of what is multiplied by what.
Shapes: TypeAlias = list[tuple[tuple[int, ...], tuple[int, ...]]]


def floor(
    model, beam_width: int, lengths: list[tuple[int, int]], batch_size: int
) -> float:
    """Seconds for sentences in batches of similar length.

    A sentence has as many steps here as its translation has tokens. A search may take
    more of them, until nothing can be better than what it has found.

    Args:
        model: a `Seq2Seq` or a `Transformer`.
        beam_width: hypotheses of a sentence.
        lengths: for each sentence, the tokens of its source and of its translation.
        batch_size: sentences at once; one that is finished is no longer counted.

    Returns:
        Seconds.
    """
    lengths = sorted(lengths)
    source = round(np.mean([length for length, _ in lengths]))
    matrices = grouped(model)

    @cache
    def step(sentences: int) -> float:
        shapes = by_rows(sentences * beam_width, matrices["step"])
        return products(shapes + attention(model, sentences, beam_width, source))

    @cache
    def encoder(sentences: int) -> float:
        """All steps at once, and then one after the other."""
        at_once = by_rows(sentences * source, matrices["memory"])
        at_once += self_attention(model, sentences, source)
        each = by_rows(sentences, matrices["encoder"])
        return products(at_once) + source * products(each)

    sizes = [size for size in ROWS if size <= 2 * batch_size]
    times = [step(size) for size in sizes]
    total = 0.0
    for i in range(0, len(lengths), batch_size):
        batch = [target for _, target in lengths[i : i + batch_size]]
        alive = [sum(length > t for length in batch) for t in range(max(batch))]
        total += np.interp(alive, sizes, times).sum() + encoder(len(batch))
    return total


def grouped(model) -> dict[str, list[tuple[int, int]]]:
    """The shapes of all matrices by what they are multiplied with."""
    groups = defaultdict(list)
    for weight in model.weights:
        shape, path = tuple(weight.shape), weight.path
        if len(shape) < 2 or path.endswith(("embeddings", "bias", "gamma")):
            continue
        if len(shape) == 3:  # a matrix for each head
            inputs = 2 if "attention_output" in path else 1
            shape = math.prod(shape[:inputs]), math.prod(shape[inputs:])
        groups[kind(path)].append(shape)
    if model.output_layer is None:  # tied: the embeddings are the output layer
        groups["step"].append(tuple(model.target_embedding.embeddings.shape[::-1]))
    return groups


def kind(path: str) -> str:
    """Whether all words of a source are multiplied at once, each, or those of a step.

    Returns:
        "memory", "encoder" or "step".
    """
    if path.startswith("encoder"):
        return "encoder" if "recurrent_kernel" in path else "memory"
    of_source = "score" in path or "cross_attention" in path
    return "step" if not of_source or "query" in path or "output" in path else "memory"


def attention(model, sentences: int, beam_width: int, source: int) -> Shapes:
    """Of a step's attention to the source; in a Transformer, to the target too."""
    if not isinstance(model, Transformer):
        return attended((sentences,), beam_width, model.config.units, source)
    heads, units = in_heads(model)
    cross = attended((sentences, heads), beam_width, units, source)
    length = model.config.cache_length
    own = attended((sentences * beam_width, heads), 1, units, length)
    return (cross + own) * model.config.num_layers


def self_attention(model, sentences: int, source: int) -> Shapes:
    """Of an encoder that attends to the source: a Transformer's."""
    if not isinstance(model, Transformer):
        return []
    heads, units = in_heads(model)
    each = attended((sentences, heads), source, units, source)
    return each * model.config.num_layers


def in_heads(model) -> tuple[int, int]:
    """How many heads a Transformer has, and the size of each."""
    config = model.config
    return config.num_heads, config.units // config.num_heads


def attended(leading: tuple[int, ...], queries: int, units: int, places: int) -> Shapes:
    """Of queries and keys, then of weights and values."""
    return [
        ((*leading, queries, units), (*leading, units, places)),
        ((*leading, queries, places), (*leading, places, units)),
    ]


def by_rows(rows: int, matrices: list[tuple[int, int]]) -> Shapes:
    """Of so many rows and each matrix."""
    return [((rows, shape[0]), shape) for shape in matrices]


def products(shapes: Shapes) -> float:
    """Seconds of one pass over all products."""
    if not shapes:
        return 0.0
    lefts, rights = zip(*shapes, strict=True)
    rights = [tf.random.normal(shape) for shape in rights]

    def step(*lefts):
        return [x @ y for x, y in zip(lefts, rights, strict=True)]

    return seconds(step, [tf.random.normal(shape) for shape in lefts])
