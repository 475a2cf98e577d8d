"""Target sequences from anybody's model: `generate` now, `SequenceGenerator` to keep.

Shapes: B sentences, N hypotheses of each, T target tokens, S source length.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.forced import Retraced
from keras_luong.decoding.step_model import (
    Hypotheses,
    Search,
    Source,
    StepModel,
    check_source,
    check_step_model,
)


def generate(
    model: StepModel, source: Source, search: Search | None = None, **changes: Any
) -> Hypotheses:
    """Finds target sequences for a batch, by a model with `encode` and `step`.

    The search is traced to a graph at the first call, and again only for another model,
    search, or kind of source. The model's weights may change between calls; if they
    are replaced, as `model.quantize` does, it is traced again. (What it sees is the
    model's attribute `variables`, which a Keras model has.) Where Python can hash
    neither a part of the search, such as a penalty, nor its fields, every call traces.

    Args:
        model: A `StepModel`: your own, or one of this library.
        source: What the model's `encode` reads: ids [B, S], features [B, S, F], images
            [B, h, w, C] or other tensors or arrays of any dtype; or a tuple or dict of
            them.
        search: A `BeamSearch`, `GreedySearch` or `RandomSampling`. Default:
            `BeamSearch()`.
        **changes: Fields of the search that differ, such as `beam_width`, `max_length`,
            `bos_id`, `eos_id` and `pad_id`.

    Returns:
        `Hypotheses`. `ids[:, 0]` are the best sequences, int32 [B, T].

    Raises:
        TypeError: If the model has no `encode` and `step`, or the search no such field.
        ValueError: If a field or the source cannot be so.

    Example:
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(20, 20, units=8))
        >>> search = kl.RandomSampling(num_samples=9)
        >>> samples = kl.generate(model, [[4, 5, 3]], search, max_length=7)
        >>> samples.ids.shape[:2]
        TensorShape([1, 9])
    """
    check_step_model("model", model)
    search = _checked(search)
    if changes:
        search = dataclasses.replace(search, **changes)  # type: ignore[type-var]
    return _traced(model, search)(check_source(source))


#: Functions by model and search. A function does not keep its model alive.
_functions: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def _traced(model: StepModel, search: Search) -> Callable[[Source], Hypotheses]:
    try:
        functions, key = _functions.setdefault(model, {}), _key(search)
        if key not in functions:
            functions[key] = _function(weakref.ref(model), search)
        return functions[key]
    except TypeError:  # one of them has no hash, or the model no weak references
        return _function(lambda: model, search)


def _key(x: Any) -> Any:
    """What is equal for equal searches: of a plain dataclass, which has no hash, too.

    Such a one may change: it is known by the fields that it has now.
    """
    if not dataclasses.is_dataclass(x) or isinstance(x, type):
        return x
    return type(x), *(_key(getattr(x, field.name)) for field in dataclasses.fields(x))


def _function(model: Callable[[], Any], search: Search) -> Any:
    def find(source: Source) -> Hypotheses:
        return search(model(), source)

    def make() -> Any:
        return tf.function(find, autograph=False, reduce_retracing=True)

    return Retraced(model, make)


def _checked(search: Any) -> Any:
    """Returns a search, `BeamSearch()` for None; or raises TypeError."""
    search = BeamSearch() if search is None else search
    if not callable(search) or isinstance(search, type):
        raise TypeError(
            "`search` must be callable as search(model, source), such as "
            f"BeamSearch(). Received: {search!r}"
        )
    return search


class SequenceGenerator:
    """A model with a search and the kind of source that it reads.

    Called on a source it finds target sequences, in a graph that is traced once. It is
    what `export_saved_model` and `export_tflite` take where the sequences are no text;
    a `Translator` is one with tokenizers around it.

    Args:
        model: A `StepModel`: your own, or one of this library.
        source: A `tf.TensorSpec` of what the model's `encode` reads, with None for
            sizes that may change; or a tuple or dict of them.
        search: A `BeamSearch`, `GreedySearch` or `RandomSampling`. Default:
            `BeamSearch()`.

    Raises:
        TypeError: If the model has no `encode` and `step`, the source is no
            `tf.TensorSpec`, or the search is not callable.
        ValueError: In a call, if a source has other keys, shapes or dtypes.

    Call arguments:
        source: Tensors or arrays of this kind.

    Returns:
        `Hypotheses`.

    Example:
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(20, 20, units=8))
        >>> ids = tf.TensorSpec([None, None], tf.int32)
        >>> generator = kl.SequenceGenerator(model, ids, kl.GreedySearch(max_length=7))
        >>> generator([[4, 5, 3], [6, 3, 0]]).ids.shape[:2]
        TensorShape([2, 1])
    """

    def __init__(self, model: StepModel, source: Any, search: Search | None = None):
        check_step_model("`model`", model)
        for spec in tf.nest.flatten(source):
            if not isinstance(spec, tf.TensorSpec):
                raise TypeError(
                    "source must be a tf.TensorSpec, or a tuple or dict of them. "
                    f"Received: {source!r}"
                )
        self.model, self.source = model, source
        self.search = _checked(search)
        self._function = Retraced(lambda: self.model, self._make)

    def __call__(self, source: Source) -> Hypotheses:
        """Finds the hypotheses of a batch."""
        return self._function(self._read(source))

    def _read(self, source):
        """The source as tensors of the specs, or raises."""
        try:
            read = keras.tree.map_structure_up_to(self.source, _as, source, self.source)
            specs = tf.nest.flatten(self.source)
            pairs = zip(specs, tf.nest.flatten(read), strict=True)
            fits = all(spec.is_compatible_with(x) for spec, x in pairs)
        except (TypeError, ValueError):  # other keys, or what is no tensor
            fits = False
        if not fits:
            raise ValueError(
                f"The source must be like {self.source}. Received: {_described(source)}"
            )
        return read

    def _make(self):
        return tf.function(self._find, input_signature=[self.source], autograph=False)

    def _find(self, source: Source) -> Hypotheses:
        return self.search(self.model, source)


def _described(source: Any) -> Any:
    """The shapes and dtypes in a nest, for an error message."""
    return keras.tree.map_structure(
        lambda x: f"{x.dtype} {tuple(x.shape)}" if hasattr(x, "shape") else repr(x),
        source,
    )


def _as(x: Any, spec: tf.TensorSpec) -> tf.Tensor:
    """Returns a tensor of a spec's dtype, if that takes no rounding of numbers."""
    # With a hint, floats of an array would become integers.
    x = tf.convert_to_tensor(x, dtype_hint=None if hasattr(x, "dtype") else spec.dtype)
    to_integers = x.dtype.is_integer and spec.dtype.is_integer
    to_floats = (x.dtype.is_integer or x.dtype.is_floating) and spec.dtype.is_floating
    return tf.cast(x, spec.dtype) if to_integers or to_floats else x
