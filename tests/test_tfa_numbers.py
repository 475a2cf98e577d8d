"""The numbers that tensorflow-addons expects of its `AttentionWrapper`.

From the tests of tensorflow/addons 0.23 (`attention_wrapper_test.py`): the means of
outputs and final states of nine decoders over random inputs, of NumPy's old generator,
with weights of ones and a linear attention layer of TensorFlow's old generator.
"""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong import layers

UNITS, LAYER, DEPTH = 9, 6, 3
SOURCE_LENGTHS, STEPS = [3, 2, 3, 1, 1], 3
#: Case, score; means of outputs, h, c, what is fed, and the last weights.
TABLE = """
bahdanau concat -0.003204414 0.40868404 0.89017969 0.041453815 0.125
bahdanau_normalized normed_concat -0.008089137 0.49166861 1.01068615 0.042427111 0.125
luong general -0.06124732 0.52021580 1.0964939 -0.0318060 0.125
no_attention_layer concat 0.078317143 0.89382392 1.722382 0.026356646 0.125
bahdanau_monotonic concat -0.009921653 0.44612807 0.95786464 0.038682378 0.09778417
luong_monotonic general 0.003664831 0.54318606 1.12592840 0.059128221 0.05112994
normalized_monotonic normed_concat 0.00714068 0.470124 1.0249618 0.068432882 0.0615656
"""
CASES = {name: row for name, *row in map(str.split, TABLE.strip().splitlines())}
for name in ("luong", "luong_monotonic"):  # by a factor of 1
    CASES[f"{name}_scaled"] = ["scaled_general", *CASES[name][1:]]


def inputs():
    """The arrays that tfa's tests draw, after those that they draw and drop."""
    random = np.random.RandomState(87654321)
    random.randn(64, 10, 256)
    random.randint(1, high=10, size=(64,))
    random.randn(64, 12, 128)
    random.randint(12, size=(64,))
    target = random.randn(5, 4, 7).astype("float32")
    source = random.randn(5, 8, 10).astype("float32")
    return target, source


@functools.cache  # the generator would go on
def attention_layer():
    """What `GlorotUniform(seed=1337)` gave after `tf.random.set_seed(87654321)`."""
    options = {"dtype": tf.float32, "seed": 87654321, "seed2": 1337}
    uniform = tf.raw_ops.RandomUniform(shape=(UNITS + 10, LAYER), **options)
    kernel = (uniform.numpy() * 2 - 1) * np.sqrt(6 / (UNITS + 10 + LAYER))
    # tfa has the rows of h first, and we those of the context.
    return np.concatenate([kernel[UNITS:], kernel[:UNITS]])


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", CASES)
def test_the_means_are_tfas(name):
    score_mode, *expected = CASES[name]
    units = None if score_mode.endswith("general") else DEPTH
    kind, options = layers.LuongAttention, {"kernel_initializer": "ones"}
    if "monotonic" in name:
        kind, options = layers.MonotonicAttention, {**options, "mode": "parallel"}
    attention, has_layer = kind(score_mode, units, **options), "no_" not in name
    ones = dict.fromkeys(["kernel_initializer", "recurrent_initializer"], "ones")
    options = {"attentional_units": LAYER} if has_layer else {}
    options |= {"use_attentional_vector": has_layer, "attentional_activation": None}
    lstm = keras.layers.LSTMCell(UNITS, **ones)
    cell = layers.AttentionWrapper(lstm, attention, **options)
    target, source = inputs()
    # Up to the longest of the batch's lengths; tfa goes on with those that have ended.
    target = target[:, :STEPS]
    source_words = np.arange(source.shape[1]) < np.array(SOURCE_LENGTHS)[:, None]
    decoder = layers.InputFeedingDecoder(cell)
    decoder.build(target.shape, source.shape)
    if has_layer:
        cell.attentional_vector.kernel.assign(attention_layer())
    both = {"return_attention_scores": True, "return_state": True}
    outputs, weights, h, c, fed, *_ = decoder(target, source, source_words, **both)
    found = outputs, h, c, fed, weights[:, -1]
    means, expected = [np.mean(x) for x in found], [*map(float, expected)]
    np.testing.assert_allclose(means, expected, atol=2e-6)
