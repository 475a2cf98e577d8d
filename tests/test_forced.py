import numpy as np
import pytest
import tensorflow as tf

from keras_luong import BeamSearch, Seq2Seq, Seq2SeqConfig
from keras_luong.decoding.generate import force

SOURCE = np.array([[4, 5, 6, 3], [7, 3, 0, 0], [0, 0, 0, 0]], "int32")


def model():
    return Seq2Seq(Seq2SeqConfig(9, 9, units=6, init_scale=0.8))


def test_equals_the_teacher_forced_model():
    target = np.array([[5, 6, 3], [4, 3, 0], [3, 0, 0]], "int32")
    seq2seq = model()
    hypotheses = force(seq2seq, SOURCE, target)
    read = np.concatenate([[[2]] * 3, target[:, :-1]], 1)
    logits = np.asarray(seq2seq({"source": SOURCE, "target": read}))
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probs, target[..., None], -1)[..., 0]
    expected = (chosen * (target != 0)).sum(1)
    np.testing.assert_allclose(hypotheses.log_probs[:, 0], expected, atol=1e-5)
    np.testing.assert_array_equal(hypotheses.ids[:, 0], target)
    np.testing.assert_array_equal(hypotheses.lengths[:, 0], [3, 2, 1])


@pytest.mark.parametrize("graph", [False, True])
def test_agrees_with_the_search_that_found_them(graph):
    seq2seq = model()
    found = BeamSearch(3, n_best=1, max_length=8)(seq2seq, SOURCE)
    run = tf.function(force) if graph else force
    forced = run(seq2seq, SOURCE, found.ids[:, 0])
    np.testing.assert_allclose(forced.log_probs, found.log_probs, atol=1e-5)
    np.testing.assert_allclose(forced.weights, found.weights, atol=1e-5)


@pytest.mark.parametrize("shape", [[2], [3, 4]])
def test_targets_of_a_wrong_shape(shape):
    with pytest.raises(ValueError, match="target_ids must have a row for each"):
        force(None, tf.ones([2, 3], tf.int32), tf.ones(shape, tf.int32))
