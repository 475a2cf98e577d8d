"""What the products of a model's matrices take, with nothing between them.

No search can be faster, on this machine and with these products.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import numpy as np
import tensorflow as tf
from timed_loops import seconds

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)  # sentences, for which a step is timed


def floor(
    model, beam_width: int, lengths: list[tuple[int, int]], batch_size: int
) -> float:
    """Seconds for sentences in batches of similar length.

    Args:
        model: a `Seq2Seq`.
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
        rows = sentences * beam_width
        size = model.config.units
        keys = [sentences, beam_width, size], [sentences, size, source]
        values = [sentences, beam_width, source], [sentences, source, size]
        shapes = [([rows, shape[0]], shape) for shape in matrices["step"]]
        return products([*shapes, keys, values])

    sizes = [size for size in ROWS if size <= 2 * batch_size]
    times = [step(size) for size in sizes]
    total = 0.0
    for i in range(0, len(lengths), batch_size):
        batch = [target for _, target in lengths[i : i + batch_size]]
        alive = [sum(length > t for length in batch) for t in range(max(batch))]
        total += np.interp(alive, sizes, times).sum()
        total += encoder(matrices, len(batch), source)
    return total


@cache
def _timed(shapes: tuple) -> float:
    return products([(list(x), list(y)) for x, y in shapes])


def encoder(matrices: dict, sentences: int, source: int) -> float:
    """Seconds to encode a batch: all steps at once, and then one after the other."""
    rows = sentences * source
    at_once = tuple(((rows, shape[0]), tuple(shape)) for shape in matrices["memory"])
    step = tuple(((sentences, shape[0]), tuple(shape)) for shape in matrices["encoder"])
    return _timed(at_once) + source * _timed(step)


def grouped(model) -> dict[str, list[list[int]]]:
    """The shapes of all matrices by what they are multiplied with."""
    groups = defaultdict(list)
    for weight in model.weights:
        if len(weight.shape) != 2 or "embedding" in weight.path:
            continue
        is_encoder = weight.path.startswith("encoder")
        recurrent = "recurrent_kernel" in weight.path
        keys = "score" in weight.path
        kind = "memory" if keys or is_encoder and not recurrent else "step"
        groups["encoder" if is_encoder and recurrent else kind].append(weight.shape)
    if model.output_layer is None:  # tied: the embeddings are the output layer
        groups["step"].append(model.target_embedding.embeddings.shape[::-1])
    return groups


def products(shapes: list[tuple[list[int], list[int]]]) -> float:
    """Seconds of one pass over all products."""
    lefts, rights = zip(*shapes, strict=True)
    rights = [tf.random.normal(shape) for shape in rights]

    def step(*lefts):
        return [x @ y for x, y in zip(lefts, rights, strict=True)]

    return seconds(step, [tf.random.normal(shape) for shape in lefts])
