"""Parts of models, which can be frozen."""

from __future__ import annotations

import typing

import numpy as np
import pytest
from leave_slow import slow_but

import keras_luong as kl
from keras_luong.compat import flat_layers
from keras_luong.config.presets import PRESETS
from keras_luong.config.training import Part
from keras_luong.models.growing import PARTS, freeze
from keras_luong.models.translation_model import model_class
from keras_luong.training.optimizers import make_optimizer

SMALL = {"units": 8, "num_layers": 1}
MODELS = {
    preset.model: name for name, preset in reversed(PRESETS.items()) if preset.model
}


def made(name):
    changes = dict(SMALL)
    if PRESETS[name].model == "Transformer":
        changes |= {"num_heads": 2, "feedforward_units": 8, "tie_embeddings": None}
    return model_class(name).from_preset(name, 9, 9, **changes)


def test_k2_what_can_be_frozen_is_what_there_is():
    assert set(typing.get_args(Part)) == set(PARTS)


@pytest.mark.parametrize("name", MODELS.values())
def test_k2_every_model_has_its_parts_or_says_that_it_has_not(name):
    model = made(name)
    for part in PARTS:
        for layer in flat_layers(model):
            layer.trainable = True
        try:
            freeze(model, [part])
        except ValueError as error:
            assert f"Received: '{part}'" in str(error)
            tied = model.output_layer is None
            assert part in ("attention", "bridge", *["output"] * tied)
        else:
            assert 0 < len(model.trainable_weights) < len(model.weights)


@pytest.mark.parametrize(
    "part", slow_but(["embeddings", "decoder", "encoder"], "encoder")
)
def test_k2_what_is_frozen_stays_and_the_rest_moves(part):
    """With the fused loss, the hoisted gradients and a moving average."""
    config = kl.Seq2SeqConfig(9, 9, units=8, tie_embeddings="all", dropout=0.2)
    model = kl.Seq2Seq(config)
    freeze(model, [part])
    optimizer = make_optimizer("adam", 0.1, ema_momentum=0.9, weight_decay=0.1)
    model.compile(optimizer, kl.SequenceCrossentropy(label_smoothing=0.1))
    frozen = {id(weight) for weight in model.non_trainable_weights}
    before = [weight.numpy() for weight in model.weights]
    x = {"source": np.array([[4, 5, 6, 7, 3]]), "target": np.array([[2, 4, 8, 5]])}
    model.fit(x, np.array([[4, 8, 5, 3]]), epochs=2, verbose=0)
    optimizer.finalize_variable_values(model.trainable_variables)
    for weight, value in zip(model.weights, before, strict=True):
        moved = not np.array_equal(weight.numpy(), value)
        assert moved == (id(weight) not in frozen), weight.path


def test_k2_something_must_be_left_and_be_there():
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=8, tie_embeddings="all"))
    with pytest.raises(ValueError, match="freeze must leave something to train"):
        freeze(model, ["embeddings", "encoder", "decoder"])
    with pytest.raises(
        ValueError, match="its output is its target_embedding.*'output'"
    ):
        freeze(model, ["output"])
    with pytest.raises(ValueError, match="freeze"):
        freeze(model, ["legs"])
