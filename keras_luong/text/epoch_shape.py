"""What an epoch is: several passes over a small corpus, or a part of a large one.

After an epoch a model is validated and its progress judged. For a corpus of a thousand
pairs a pass is too little for that, and for one of ten million it is too much.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from keras_luong.checks import check_above, check_size


class EpochShape(NamedTuple):
    """How many passes over a corpus an epoch is, or which part of one.

    Attributes:
        passes: How often an epoch goes over its pairs; 1 if it is a part.
        parts: How many epochs one pass takes; 1 if an epoch is a pass or several.

    Example:
        >>> from keras_luong.text.epoch_shape import EpochShape
        >>> numbers = tf.data.Dataset.range(5)
        >>> thirds = EpochShape(passes=1, parts=2)
        >>> [list(thirds.of_epoch(numbers, e).as_numpy_iterator()) for e in (0, 1)]
        [[np.int64(0), np.int64(2), np.int64(4)], [np.int64(1), np.int64(3)]]
    """

    passes: int = 1
    parts: int = 1

    def of_epoch(
        self, pairs: tf.data.Dataset, epoch: int | tf.Tensor
    ) -> tf.data.Dataset:
        """Returns the pairs of one epoch, in the corpus's order.

        Args:
            pairs: The training pairs.
            epoch: Its number, from 0; an int64 scalar tensor will do.
        """
        if self.parts > 1:
            pairs = pairs.shard(self.parts, epoch % self.parts)
        return pairs.repeat(self.passes) if self.passes > 1 else pairs


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
