"""Sequences in, sequences out: what an export has of a `SequenceGenerator`.

Shapes: B sentences, N hypotheses of each, T target tokens, S source length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_luong.decoding.generation import SequenceGenerator
from keras_luong.decoding.hypotheses import Hypotheses
from keras_luong.decoding.sources import Source
from keras_luong.decoding.stepping import StepModel


class SequenceExport:
    """What an export has of a generator of sequences."""

    longest: int | None = None  # what sources are padded to, where a file needs it

    def __init__(self, generator: SequenceGenerator):
        self.generator = generator
        self.model: StepModel = generator.model
        self.search = generator.search
        self.specs = named_specs(generator.source)
        inputs = {
            x.name: {"shape": [*x.shape], "dtype": x.dtype.name} for x in self.specs
        }
        self.about: dict[str, Any] = {"source": inputs}

    @property
    def resources(self) -> list[Any]:
        """What the graphs use beside the weights."""
        return []

    def asked(self) -> dict[str, Any]:
        """Returns each signature's function and the specs of its arguments."""

        def serving_default(*inputs):
            return fields(self.generator(packed(inputs, self.generator.source)))

        return {"serving_default": (serving_default, *self.specs)}

    def check_warmup(self, warmup: Any) -> list[Any]:
        """Returns the sources of each row, of which there may be none."""
        if isinstance(warmup, tuple | list) and not warmup:
            return []
        arrays = [np.asarray(x) for x in tf.nest.flatten(warmup)]
        return list(zip(*arrays, strict=True))

    def requests(self, rows: list[Any]) -> dict[str, dict[str, Any]]:
        """Returns the inputs of each signature."""
        pairs = zip(self.specs, zip(*rows, strict=True), strict=True)
        inputs = {x.name: np.stack(y).astype(x.dtype.as_numpy_dtype) for x, y in pairs}
        return {"serving_default": inputs}

    def compare(self, said: Mapping[str, tf.Tensor], rows: list[Any]) -> None:
        """Raises RuntimeError if an export generates other sequences.

        Args:
            said: The answer of `serving_default`.
            rows: The sources that it was given.
        """
        inputs = self.requests(rows)["serving_default"].values()
        expected = self.generator(packed([*inputs], self.generator.source)).ids
        for i, (a, b) in enumerate(zip(said["ids"], expected, strict=True)):
            if not np.array_equal(a, b):
                raise RuntimeError(
                    f"The export's ids for source {i} are {a.numpy().tolist()}, the "
                    f"generator's {b.numpy().tolist()}."
                )

    def one_source(self, source_length: int | None) -> Any:
        """Returns the specs of one source."""
        if source_length is not None:
            raise ValueError(
                "source_length is for a Translator: the source of a SequenceGenerator "
                f"has its shape in a tf.TensorSpec. Received: {source_length}"
            )
        specs = [tf.TensorSpec([1, *x.shape[1:]], x.dtype, x.name) for x in self.specs]
        return packed(specs, self.generator.source)

    def describe_file(self, source_length: int | None) -> dict[str, Any]:
        """Returns nothing: a file of sequences needs no runtime of its own."""
        return {}

    def tokenizers(self) -> dict[str, Any]:
        """Returns none."""
        return {}


def named_specs(source: Any) -> list[tf.TensorSpec]:
    """Returns the specs of a nest, each with a name.

    Args:
        source: A `tf.TensorSpec`, or a tuple or dict of them.

    Example:
        >>> from keras_luong.export.sequence_export import named_specs
        >>> ids = tf.TensorSpec([None, None], tf.int32)
        >>> [spec.name for spec in named_specs({"ids": ids, "lengths": (ids, ids)})]
        ['ids', 'lengths_0', 'lengths_1']
    """
    specs = []
    for path, spec in keras.tree.flatten_with_path(source):
        name = "_".join(map(str, path))
        if not path or not isinstance(path[0], str):
            name = f"source_{name}".rstrip("_")
        specs.append(tf.TensorSpec(spec.shape, spec.dtype, spec.name or name))
    return specs


def packed(flat: Any, like: Any) -> Source:
    """Returns a nest like another one, of a flat list of its leaves."""
    return tf.nest.pack_sequence_as(like, list(flat))


def fields(found: Hypotheses) -> dict[str, tf.Tensor]:
    """Returns hypotheses by name, without the weights of a model without attention."""
    outputs = found._asdict()
    if found.weights.shape[-1] == 0:
        del outputs["weights"]
    return outputs
