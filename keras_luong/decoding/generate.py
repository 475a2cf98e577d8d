"""Target sequences from anybody's model: `generate`, `SequenceGenerator`, `force`.

`generate` finds some now, a `SequenceGenerator` keeps a model with its search, and
`force` scores sequences that are given.

Shapes: B sentences, N hypotheses of each, S source length, T target tokens, V
vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, cast

import keras
import tensorflow as tf

from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.hoisting import begin, cast_once
from keras_luong.decoding.search_state import Written, collect, empty_arrays, write
from keras_luong.decoding.step_model import (
    Hypotheses,
    Search,
    Source,
    SpecialTokens,
    StepModel,
    check_source,
    check_step_model,
    check_target_ids,
    described,
    known_count_of,
    split_log_softmax,
)

Method = TypeVar("Method", bound=Callable[..., Any])


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


def _function(model: Callable[[], Any], search: Search) -> Any:
    def find(source: Source) -> Hypotheses:
        return search(model(), source)

    make = functools.partial(tf.function, find, autograph=False, reduce_retracing=True)
    return Retraced(model, make)


def _key(x: Any) -> Any:
    """Returns a hashable key of a search: equal searches have equal keys.

    As they may change, they are known by the fields that they have now.
    """
    if not dataclasses.is_dataclass(x) or isinstance(x, type):
        return x
    return type(x), *(_key(getattr(x, field.name)) for field in dataclasses.fields(x))


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
        self._function = Retraced(
            lambda: self.model,
            lambda: tf.function(self._find, input_signature=[source], autograph=False),
        )

    def __call__(self, source: Source) -> Hypotheses:
        """Finds the hypotheses of a batch."""
        try:
            read = keras.tree.map_structure_up_to(self.source, _as, source, self.source)
            specs = tf.nest.flatten(self.source)
            pairs = zip(specs, tf.nest.flatten(read), strict=True)
            fits = all(spec.is_compatible_with(x) for spec, x in pairs)
        except (TypeError, ValueError):  # other keys, or what is no tensor
            fits = False
        if not fits:
            raise ValueError(
                f"The source must be like {self.source}. Received: {described(source)}"
            )
        return self._function(read)

    def _find(self, source: Source) -> Hypotheses:
        return self.search(self.model, source)


def _as(x: Any, spec: tf.TensorSpec) -> tf.Tensor:
    """Returns a tensor of a spec's dtype, if that takes no rounding of numbers."""
    # With a hint, floats of an array would become integers.
    x = tf.convert_to_tensor(x, dtype_hint=None if hasattr(x, "dtype") else spec.dtype)
    to_integers = x.dtype.is_integer and spec.dtype.is_integer
    to_floats = (x.dtype.is_integer or x.dtype.is_floating) and spec.dtype.is_floating
    return tf.cast(x, spec.dtype) if to_integers or to_floats else x


def force(
    model: StepModel, source: Source, target_ids: tf.Tensor, **special_ids: int
) -> Hypotheses:
    """Scores a given target for each source, by the same `step` as every search.

    Args:
        model: A `StepModel`.
        source: What the model's `encode` reads: int32 [B, S] ids, or tensors [B, ...]
            of any dtype, or a tuple or dict of them.
        target_ids: int32 [B, T], `T >= 1`, without the begin token, usually up to and
            with the end token, right-padded with `pad_id`. If padding is the end token
            too, the first one in a row is the end.
        **special_ids: `bos_id`, `eos_id` and `pad_id`, where they are not this
            library's; see `SpecialTokens`.

    Returns:
        `Hypotheses` with `N = 1`: the targets themselves, their log-probabilities
        (which are the scores too), and the attention at each of their tokens.

    Raises:
        TypeError: If an id is not an integer.
        ValueError: If the source or the targets have the wrong shape, or an id is
            negative.

    Example:
        >>> from keras_luong.decoding import force
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> hypotheses = force(model, np.array([[4, 5, 3]]), np.array([[6, 3]]))
        >>> tuple(hypotheses.log_probs.shape), tuple(hypotheses.weights.shape)
        ((1, 1), (1, 1, 2, 3))
    """
    special = SpecialTokens(**special_ids)
    source = check_source(source)
    target_ids = check_target_ids("target_ids", target_ids, source)
    with cast_once(model):
        return _force(model, source, target_ids, special)


def _force(model, source, target_ids, special):
    _, before, state, step, (_, weights) = begin(model, source, special, beams=1)
    length = tf.shape(target_ids)[1]
    is_token = special.is_token(target_ids)

    def read(time, before, state, total, written):
        logits, state, weights = step(before, state)
        now = target_ids[:, time][:, None]
        normalisers, _ = split_log_softmax(logits)
        gain = tf.gather(logits, now, batch_dims=2) - tf.squeeze(normalisers, axis=-1)
        total += tf.where(is_token[:, time][:, None], gain, 0.0)
        written = write(written, time, Written(now, total, weights))
        return time + 1, now, state, total, written

    shape = [known_count_of(source), 1]
    written = empty_arrays(shape, [x.shape[2:] for x in weights], length)
    total = tf.zeros_like(before, tf.float32)
    first = tf.constant(0), before, state, total, written
    *_, total, written = tf.while_loop(lambda time, *_: time < length, read, first)
    lengths = tf.reduce_sum(tf.cast(is_token, tf.int32), axis=1)[:, tf.newaxis]
    written = tf.nest.map_structure(lambda x: x.stack(), written)
    return collect(written, lengths, total, special.pad_id)


class Retraced:
    """A `tf.function` of a model, made anew where the model's variables are others.

    A graph reads the variables that there were when it was traced. Their values may
    change; but `model.quantize("int8")`, say, puts others in their place.

    Args:
        model: Returns the model. What it has in `variables`, as Keras models do, is
            compared.
        make: Returns the function, not traced yet.
    """

    def __init__(self, model: Callable[[], Any], make: Callable[[], Any]) -> None:
        self._model, self._make = model, make
        self._function: Any = None
        self._variables: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        if self._function is None or not self._is_fresh():
            self._function = self._make()
        result = self._function(*args, **kwargs)
        # Only now: a model may make its variables in its first call.
        self._variables = [weakref.ref(x) for x in self._variables_now()]
        return result

    def _is_fresh(self):
        now = self._variables_now()
        if len(now) != len(self._variables):
            return False
        # By reference: a new variable may have the id of one that is gone.
        return all(old() is new for old, new in zip(self._variables, now, strict=True))

    def _variables_now(self):
        return list(getattr(self._model(), "variables", ()))


def retraced(*signature: tf.TensorSpec) -> Callable[[Method], Method]:
    """Decorates a method of objects with a `model`: each runs it in a graph of its own.

    Args:
        *signature: What its arguments are.
    """

    def decorate(method: Method) -> Method:
        name = f"_traced_{method.__name__}"

        @functools.wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            def make() -> Any:
                own = functools.partial(method, self)
                return tf.function(own, input_signature=signature, autograph=False)

            if name not in vars(self):
                vars(self)[name] = Retraced(lambda: self.model, make)
            return vars(self)[name](*args, **kwargs)

        return cast(Method, run)

    return decorate
