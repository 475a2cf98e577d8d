"""Forced decoding: how probable a model finds given targets.

Shapes: B batch, S source length, T target length, V vocabulary.

A traced function of a model, traced again when the model has other weights.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

from keras_luong.decoding.hoisting import cast_once, hoisted
from keras_luong.decoding.step_model import (
    Hypotheses,
    Source,
    SpecialTokens,
    StepModel,
    Written,
    check_source,
    check_target_ids,
    collect,
    count_of,
    known_count_of,
    split_log_softmax,
    take_step,
    vocab_size_of,
)

Method = TypeVar("Method", bound=Callable[..., Any])


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
        found = self._function(*args, **kwargs)
        # Only now: a model may make its variables in its first call.
        self._variables = [weakref.ref(x) for x in _variables(self._model())]
        return found

    def _is_fresh(self):
        now = _variables(self._model())
        if len(now) != len(self._variables):
            return False
        # By reference: a new variable may have the id of one that is gone.
        return all(old() is new for old, new in zip(self._variables, now, strict=True))


def retraced(*signature: tf.TensorSpec) -> Callable[[Method], Method]:
    """Decorates a method of objects with a `model`: each runs it in a graph of its own.

    Args:
        *signature: What its arguments are.
    """

    def decorate(method: Method) -> Method:
        name = f"_traced_{method.__name__}"

        @functools.wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if name not in vars(self):
                vars(self)[name] = Retraced(lambda: self.model, lambda: trace(self))
            return vars(self)[name](*args, **kwargs)

        def trace(self: Any) -> Any:
            own = functools.partial(method, self)
            return tf.function(own, input_signature=signature, autograph=False)

        return cast(Method, run)

    return decorate


def _variables(model: Any) -> list[Any]:
    return list(getattr(model, "variables", ()))


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
    special.check_begin(vocab_size_of(model, "target"))
    with cast_once(model):
        return _force(model, source, target_ids, special)


def _force(model, source, target_ids, special):
    memory, state = model.encode(source)
    length = tf.shape(target_ids)[1]
    is_token = special.is_token(target_ids)
    one = [count_of(source), 1]
    before = tf.fill(one, special.bos_id)
    step, (*_, weights) = hoisted(
        lambda tokens, state: take_step(model, tokens, state, memory), before, state
    )

    def read(time, before, state, total, written):
        logits, state, weights = step(before, state)
        now = target_ids[:, time][:, None]
        gain = _log_prob(logits, now)
        total += tf.where(is_token[:, time][:, None], gain, 0.0)
        written = written.write(time, Written(now, total, weights))
        return time + 1, now, state, total, written

    shape = [known_count_of(source), 1]
    written = Written.empty(shape, [x.shape[2:] for x in weights], length)
    first = tf.constant(0), before, state, tf.zeros(one), written
    *_, total, written = tf.while_loop(lambda time, *_: time < length, read, first)
    lengths = tf.reduce_sum(tf.cast(is_token, tf.int32), axis=1)[:, tf.newaxis]
    return collect(written.first(length), lengths, total, special.pad_id)


def _log_prob(logits: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """Returns the log-probability of tokens [B, 1] by logits [B, 1, V]."""
    normalisers, _ = split_log_softmax(logits)
    return tf.gather(logits, tokens, batch_dims=2) - tf.squeeze(normalisers, axis=-1)
