"""What benchmarks/decode.py counts: a model's products, and a search's operations."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import tensorflow as tf

from keras_luong.models import build

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)  # they import one another
    return importlib.import_module


def test_the_matrices_of_a_recurrent_model(script):
    model = build("small", 11, 12, units=8, embedding_dim=6, cell_type="gru")
    groups = script("bare_products").grouped(model)
    assert groups["memory"] == [(6, 12), (6, 12), (8, 8)]  # the last makes the keys
    assert groups["encoder"] == [(4, 12), (4, 12)]
    fed, read, recurrent = (8, 24), (6, 24), (8, 24)
    assert groups["step"] == [fed, read, recurrent, (16, 8), (8, 12)]


@pytest.mark.slow
def test_those_of_a_transformer(script):
    sizes = {"units": 8, "feedforward_units": 16, "num_heads": 2, "num_layers": 1}
    model = build("vaswani2017-base", 11, 12, **sizes)
    bare = script("bare_products")
    groups = bare.grouped(model)
    inside, outside = [(8, 16), (16, 8)], (8, 8)
    assert sorted(groups["memory"]) == sorted([*inside, *[outside] * 6])
    assert sorted(groups["step"]) == sorted([*inside, *[outside] * 6, (8, 12)])
    assert groups["encoder"] == []
    cross, own = [(3, 2, 5, 4), (3, 2, 4, 7)], [(15, 2, 1, 4), (15, 2, 4, 256)]
    found = bare.attention(model, sentences=3, beam_width=5, source=7)
    assert [list(x) for x in found[::2]] == [cross, own]
    assert 0 < bare.floor(model, 2, [(3, 2), (4, 5)], batch_size=2) < 60


def test_the_loop_is_that_of_the_signature(script, tmp_path):
    def loop(operations):
        def body(x):
            for _ in range(operations):
                x = tf.sin(x)
            return [x]

        @tf.function(input_signature=[tf.TensorSpec([])], autograph=False)
        def function(x):
            found = tf.while_loop(lambda x: x > 1, body, [x])
            return {"found": tf.cond(x > 2, lambda: found[0], lambda: x)}

        return function

    signatures = {"serving_default": loop(3), "n_best": loop(9)}
    tf.saved_model.save(tf.Module(), str(tmp_path), signatures=signatures)
    assert script("decode").nodes_in_the_loop(tmp_path) == 4  # it counts, too
