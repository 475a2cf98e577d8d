"""What an epoch is: several passes over a small corpus, or a part of a large one.

After an epoch a model is validated and its progress judged. For a corpus of a thousand
pairs a pass is too little for that, and for one of ten million it is too much.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from keras_luong.checks import check_above, check_size
from keras_luong.text.corpus import chosen


class EpochShape(NamedTuple):
    """How many passes over a corpus an epoch is, or which part of one.

    Attributes:
        passes: How often an epoch goes over its pairs; 1 if it is a part.
        parts: How many epochs one pass takes; 1 if an epoch is a pass or several.

    Example:
        >>> from keras_luong.text.epoch_shape import EpochShape
        >>> numbers = tf.data.Dataset.range(5)
        >>> thirds = EpochShape(passes=1, parts=2)
        >>> [[int(x) for x in thirds.of_epoch(numbers, e)] for e in (0, 1)]
        [[0, 2], [1, 3, 4]]
    """

    passes: int = 1
    parts: int = 1

    def of_epoch(
        self, pairs: tf.data.Dataset, epoch: int | tf.Tensor
    ) -> tf.data.Dataset:
        """Returns the pairs of one epoch, in the corpus's order.

        A part has one of each so many neighbours, drawn by their place. It is not
        always the first or the last of them: where every other pair comes from another
        text, one part would have all of that.

        Args:
            pairs: The training pairs.
            epoch: Its number, from 0; an int64 scalar tensor will do.
        """
        if self.parts > 1:
            pairs = chosen(
                pairs, lambda places: self._part(places) == epoch % self.parts
            )
        return pairs.repeat(self.passes) if self.passes > 1 else pairs

    def _part(self, places: tf.Tensor) -> tf.Tensor:
        """Which part the pairs at these places are of."""
        neighbours = tf.strings.as_string(places // self.parts)
        drawn = tf.strings.to_hash_bucket_strong(neighbours, self.parts, key=[0, 0])
        return (places + drawn) % self.parts


#: What an epoch is unless it is said otherwise.
A_PASS = EpochShape()


def epoch_shape(steps_per_pass: float, steps_per_epoch: int | None) -> EpochShape:
    """Returns the shape whose epochs have about as many steps as are asked for.

    Args:
        steps_per_pass: Full batches that the corpus makes.
        steps_per_epoch: Steps that an epoch should have; None for one pass.

    Example:
        >>> from keras_luong.text.epoch_shape import epoch_shape
        >>> epoch_shape(40, 200)
        EpochShape(passes=5, parts=1)
        >>> epoch_shape(30_000, 5_000)
        EpochShape(passes=1, parts=6)
    """
    if steps_per_epoch is None:
        return A_PASS
    check_above("steps_per_pass", steps_per_pass, 0)
    check_size("steps_per_epoch", steps_per_epoch)
    return EpochShape(
        max(1, round(steps_per_epoch / steps_per_pass)),
        max(1, round(steps_per_pass / steps_per_epoch)),
    )
