"""Each private name of Keras and TensorFlow does what it is there for."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong import compat


def dtype_of(x):
    return keras.backend.standardize_dtype(keras.ops.convert_to_tensor(x).dtype)


def test_a_tensors_mask():
    embedded = keras.layers.Embedding(5, 2, mask_zero=True)(np.array([[3, 0]]))
    np.testing.assert_array_equal(compat.get_keras_mask(embedded), [[True, False]])
    plain = keras.ops.zeros([1, 2])
    assert compat.get_keras_mask(plain) is None
    compat.set_keras_mask(plain, np.array([True]))
    np.testing.assert_array_equal(compat.get_keras_mask(plain), [True])


@pytest.mark.parametrize(
    "policy", ["mixed_float16", "mixed_bfloat16", "float32", "float64"]
)
def test_weights_read_as_in_a_call_also_within_another_layers(policy):
    outer = keras.layers.Dense(2, dtype="mixed_float16")
    layer = keras.layers.Dense(2, dtype=policy)
    layer.build((None, 3))
    with compat.autocasting(layer):
        assert dtype_of(layer.kernel) == layer.compute_dtype
    with compat.autocasting(outer), compat.autocasting(layer):
        assert dtype_of(layer.kernel) == layer.compute_dtype


@pytest.mark.tensorflow
def test_variables_are_cast_as_they_were():
    """Also when the call that read them so is over."""
    kept = []

    class Reads(keras.layers.Layer):
        def build(self, _):
            self.gain = self.add_weight(shape=(2,))

        def call(self, x):
            read = lambda: self.gain.value  # noqa: E731
            kept.extend([read, compat.autocast_as_now(read)])
            return x

    Reads(dtype="mixed_bfloat16")(np.zeros((1, 2)))
    assert [read().dtype for read in kept] == ["float32", "bfloat16"]


def test_a_call_gets_arguments_in_their_own_dtypes():
    layer = keras.layers.Lambda(lambda x: x, dtype="float16")
    x = keras.ops.ones([1], "float32")
    assert dtype_of(layer(x)) == "float16"
    compat.keep_dtypes(layer)
    assert dtype_of(layer(x)) == "float32"


def test_symbolic_outputs_of_layers_and_functions():
    layer = keras.layers.Dense(2)
    assert compat.outputs_of_calls(layer) == []
    first, second = layer(keras.Input((3,))), layer(keras.Input((3,)))
    (one,), (other,) = compat.outputs_of_calls(layer)
    assert one is first and other is second
    assert compat.made_by(first) is layer
    x = keras.KerasTensor((None, 3))
    double, turned = compat.output_spec(lambda x: [2 * x, keras.ops.transpose(x)], x)
    assert (double.shape, turned.shape) == ((None, 3), (3, None))


def test_which_layers_know_of_training():
    assert compat.takes_training(keras.layers.LSTMCell(2))
    assert not compat.takes_training(keras.layers.Embedding(2, 2))
    assert not compat.takes_training(object())


@pytest.mark.tensorflow
def test_variables_become_tensors():
    for kind in (tf.Variable, keras.Variable, np.asarray):
        assert compat.as_tensor(kind([1.0])).ndim == 1


def test_all_layers_each_before_its_parts():
    inner = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="deep")])
    inputs = keras.Input((2,))
    wrapped = keras.layers.TimeDistributed(keras.layers.Dense(1, name="wrapped"))
    outputs = wrapped(keras.layers.Reshape((1, 3))(inner(inputs)))
    model = keras.Model(inputs, outputs)
    names = [layer.name for layer in compat.flat_layers(model)]
    assert names.index(inner.name) < names.index("deep")
    assert names.index(wrapped.name) < names.index("wrapped")
    assert "deep" not in [layer.name for layer in model.layers]


@pytest.mark.tensorflow
def test_a_branch_is_known():
    """The fast recurrence needs it: a branch's gradient reads no variables."""

    @tf.function
    def where(x):
        traced.append(compat.in_a_branch())
        return tf.cond(x > 0, lambda: inside(x), lambda: x)

    def inside(x):
        traced.append(compat.in_a_branch())
        return x

    traced = []
    where(tf.constant(1.0))
    assert traced == [False, True]


@pytest.mark.tensorflow
def test_frozen_functions_keep_their_loops():
    weight = tf.Variable([2.0, 3.0])

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def power(n):
        start = (0, tf.ones_like(weight))
        return tf.while_loop(
            lambda i, _: i < n, lambda i, y: (i + 1, y * weight), start
        )

    constant = compat.frozen(power.get_concrete_function())
    assert not constant.variables and len(constant.inputs) == 1
    nodes = {node.op for node in constant.graph.as_graph_def().node}
    assert nodes & {"While", "StatelessWhile"} and "Switch" not in nodes
    weight.assign([0.0, 0.0])  # which it does not notice
    np.testing.assert_allclose(constant(tf.constant(3))[-1], [8, 27])


@pytest.mark.tensorflow
def test_a_sentencepiece_model_of_ones_own():
    """A named one outlives what drops the resources of eager kernels."""
    text = pytest.importorskip("tensorflow_text")
    from keras_luong import SentencePieceTokenizer

    model = SentencePieceTokenizer.train(["the red dog", "a cat"], vocab_size=20).model
    tokenizer = text.SentencepieceTokenizer(model)
    expected = tokenizer.tokenize("the dog").numpy()

    class Named:
        resource_handle = compat.sentencepiece_op()(model=model, shared_name="test")

    compat.set_sentencepiece_model(tokenizer, Named)
    tf.random.set_seed(1)
    np.testing.assert_array_equal(tokenizer.tokenize("the dog"), expected)


def test_the_objects_of_a_checkpoint(tmp_path):
    """One of TensorFlow 1 has none."""
    words = tf.Variable([1.0, 2.0])
    path = tf.train.Checkpoint(words=words).write(str(tmp_path / "model"))
    reader = tf.train.load_checkpoint(path)
    root, *others = compat.trackable_objects(reader)
    assert list(root.children) == ["words"] and root.key is None
    words = others[root.children["words"] - 1]
    np.testing.assert_array_equal(reader.get_tensor(words.key), [1, 2])
    path = str(tmp_path / "old")
    tf.raw_ops.SaveV2(
        prefix=path, tensor_names=["w"], shape_and_slices=[""], tensors=[tf.ones(2)]
    )
    assert compat.trackable_objects(tf.train.load_checkpoint(path)) is None


@pytest.mark.tensorflow
def test_replicas_update_alone():
    found = []
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    strategy.run(lambda: found.append(compat.replicas_update_alone()))
    assert found == [False]  # without XLA they meet
