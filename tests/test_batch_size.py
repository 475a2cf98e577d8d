from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong.config.models import Seq2SeqConfig
from keras_luong.models.seq2seq import Seq2Seq
from keras_luong.training import batch_size
from keras_luong.training.batch_size import largest_batch_tokens
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.optimizers import make_optimizer


@pytest.fixture(scope="module")
def model():
    model = Seq2Seq(Seq2SeqConfig(20, 20, units=4))
    model.compile(make_optimizer("adam", 0.1), SequenceCrossentropy())
    return model


@pytest.mark.slow
def test_leaves_the_training_as_it_was(model):
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    before = [keras.ops.convert_to_numpy(variable) for variable in variables]
    assert largest_batch_tokens(model, max_length=9, most=1024) == 1024
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable, value, variable.path)


def test_stops_before_the_memory_is_full(model, monkeypatch):
    """A step takes 100 bytes and 1 a token; 2048 tokens would be too much."""
    tried = []
    monkeypatch.setattr(batch_size, "_train", lambda m, r, n: tried.append(r * n))
    monkeypatch.setattr(batch_size, "_memory_in_use", lambda: 50)
    monkeypatch.setattr(batch_size, "_peak_memory", lambda: 150 + tried[-1])
    assert largest_batch_tokens(model, max_length=7, memory=2200) == 1024
    assert tried == [512, 1024]


def test_a_step_that_fails_has_not_fitted():
    def try_step(tokens):
        if tokens > 1000:
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return 0

    assert batch_size._largest(try_step, 100, 10_000, None) == 800
    assert batch_size._largest(try_step, 100, 300, None) == 200
    assert batch_size._largest(try_step, 2000, 10_000, None) is None


def test_measures_the_memory():
    before = batch_size._memory_in_use()
    taken = np.ones(2**25, np.uint8)
    assert 0.9 * taken.size < batch_size._peak_memory() - before < 2 * taken.size
    assert batch_size._free_memory() > taken.size


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"memory": 1}, ValueError, "smaller model.*1 bytes"),
        ({"memory": 0}, ValueError, "memory.*0"),
        ({"most": 0.5}, TypeError, "most.*0.5"),
        ({"max_length": 0}, ValueError, "max_length.*0"),
    ],
)
def test_refuses(model, options, error, message, monkeypatch):
    # A step may take no more than what tests before it have given back to the process.
    monkeypatch.setattr(batch_size, "_memory_in_use", lambda: 0)
    monkeypatch.setattr(batch_size, "_train", lambda *_: None)
    with pytest.raises(error, match=message):
        largest_batch_tokens(model, **options)
