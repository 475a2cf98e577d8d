"""The best extensions against sorting all of them, ties and infinities included."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_luong.decoding.constraints import GROUP, LONG, best_extensions

INF = float("inf")


def sorted_sums(logits, offsets, banned):
    """The same by sorting; a beam whose offset is -inf has nothing to offer."""
    sums = np.where(offsets > -INF, logits + offsets, -INF)
    sums = np.where(banned, -INF, sums)
    width, vocab_size = sums.shape[1:]
    flat = sums.reshape(-1, width * vocab_size)
    order = np.argsort(-flat, axis=1, kind="stable")[:, :width]
    best = np.take_along_axis(flat, order, axis=1)
    return best, order // vocab_size, order % vocab_size


def assert_equal(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    there = expected[0] > -INF  # which tokens are impossible does not matter
    for got, right in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(got.numpy()[there], right[there])


@settings(max_examples=40, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.integers(1, 6),
    extra=st.integers(-2, 2 * GROUP),
    values=st.sampled_from([2, 10, 10**6]),
    impossible=st.sampled_from([0.0, 0.5, 0.999]),
    banned=st.integers(0, 3),
)
def test_equals_sorting(seed, width, extra, values, impossible, banned):
    random = np.random.default_rng(seed)
    shape = 2, width, LONG * (1 + banned) * GROUP + extra
    logits = random.integers(values, size=shape).astype("float32")  # few values: ties
    logits[random.random(shape) < impossible] = -np.inf
    offsets = random.integers(3, size=(2, width, 1)).astype("float32")
    offsets[random.random(offsets.shape) < 0.2] = -np.inf
    mask = np.zeros(shape[2], bool)
    mask[random.integers(shape[2], size=banned)] = True
    expected = sorted_sums(logits, offsets, mask)
    assert_equal(best_extensions(logits, offsets, mask), expected)
    assert_equal(best_extensions(logits, offsets, tf.constant(mask)), expected)


def test_the_highest_are_all_banned():
    logits = np.zeros([1, 2, 1000], "float32")
    logits[..., :3], logits[0, 1, 700], logits[0, 0, 2] = 9, 5, 8
    offsets = np.zeros([1, 2, 1], "float32")
    banned = np.arange(1000) < 3
    best, beams, tokens = best_extensions(logits, offsets, banned)
    assert best.numpy().tolist() == [[5, 0]]
    assert beams.numpy().tolist() == [[1, 0]] and tokens.numpy().tolist() == [[700, 3]]


@pytest.mark.parametrize("rows", [0, 2])
def test_in_a_graph_of_unknown_sizes(rows):
    logits = np.random.default_rng(0).normal(size=(rows, 3, 1000)).astype("float32")
    offsets, banned = np.zeros([rows, 3, 1], "float32"), np.arange(1000) < 4
    expected = sorted_sums(logits, offsets, banned)
    for size, mask in ((1000, banned), (None, tf.constant(banned))):
        signature = [tf.TensorSpec([None, 3, size]), tf.TensorSpec([None, 3, 1])]
        find = tf.function(
            lambda x, y: best_extensions(x, y, mask),  # noqa: B023
            input_signature=signature,
        )
        assert_equal(find(logits, offsets), expected)


def test_a_beam_of_nan_offers_nothing():
    logits = np.zeros([1, 2, 1001], "float32")
    logits[0, 0] = np.nan
    offsets = np.float32([[[-INF], [-1.0]]])
    best, beams, tokens = best_extensions(logits, offsets, np.arange(1001) < 1)
    assert best.numpy().tolist() == [[-1, -1]] and beams.numpy().tolist() == [[1, 1]]
    assert tokens.numpy().tolist() == [[1, 2]]


def test_converts_to_int8():
    logits = np.random.default_rng(0).normal(size=(1, 2, 2000)).astype("float32")
    offsets, banned = np.zeros([1, 2, 1], "float32"), np.arange(2000) < 4

    @tf.function(input_signature=[tf.TensorSpec([1, 2, 2000])])
    def find(logits):
        return best_extensions(logits, tf.constant(offsets), banned)

    function = find.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], find)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    runtime = Interpreter(model_content=converter.convert())
    runtime.allocate_tensors()
    runtime.set_tensor(runtime.get_input_details()[0]["index"], logits)
    runtime.invoke()
    found = {
        x["dtype"]: runtime.get_tensor(x["index"]) for x in runtime.get_output_details()
    }
    best, *_ = sorted_sums(logits, offsets, banned)
    np.testing.assert_array_equal(found[np.float32], best)
