"""What all models of the papers have in common."""

import keras
import numpy as np
import pytest
import reference_models
import tensorflow as tf
from finite_differences import check_gradients
from leave_slow import slow_but

from keras_luong import BeamSearch, Seq2Seq, Seq2SeqConfig, SequenceCrossentropy
from keras_luong.layers.cells import CELL_TYPES
from keras_luong.models import PRESETS, Transformer, build
from keras_luong.models.translation_model import model_class

SMALL = {
    "small": {"units": 6},
    "sutskever2014": {"units": 6, "num_layers": 3},
    "cho2014": {"units": 6, "embedding_dim": 4, "num_layers": 2},
    "bahdanau2015": {"units": 6, "embedding_dim": 4, "encoder_units": 5},
    "gnmt": {"units": 6, "num_layers": 3},
}
#: What differs the most from `Seq2Seq`, whose tests are elsewhere; the others are slow.
DEEP = {**SMALL, "bahdanau2015": {**SMALL["bahdanau2015"], "num_layers": 2}}


def configure(name, *sizes):
    return model_class(name).config_class.preset(name, *sizes)


def small(name, **changes):
    keras.utils.set_random_seed(1)
    return build(name, 11, 12, **{**DEEP[name], **changes})


def batch(seed=0, target_length=5):
    rng = np.random.default_rng(seed)
    source = rng.integers(4, 11, (4, 6), dtype="int32")
    source[1, 4:] = source[2, 1:] = source[3] = 0  # the last is all padding
    target = rng.integers(4, 12, (4, target_length), dtype="int32")
    return {"source": source, "target": target}


def stepped(model, inputs):
    memory, state = model.encode(tf.constant(inputs["source"]))
    logits, weights = [], []
    for t in range(inputs["target"].shape[1]):
        tokens = tf.constant(inputs["target"][:, t : t + 1])
        step, state, a = model.step(tokens, state, memory)
        logits.append(step[:, 0])
        weights.append(a[:, 0])
    return np.stack(logits, 1), np.stack(weights, 1)


@pytest.mark.parametrize("cell_type", slow_but(["gru", "lstm"], "lstm"))
@pytest.mark.parametrize(
    "num_layers", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2)), 3]
)
@pytest.mark.parametrize(
    "name, reference",
    [
        ("bahdanau2015", reference_models.bahdanau),
        ("cho2014", reference_models.cho),
        ("gnmt", reference_models.gnmt),
    ],
)
def test_logits_are_the_papers(name, reference, num_layers, cell_type):
    sizes = {"num_layers": num_layers, "attention_units": 5}
    model, inputs = small(name, cell_type=cell_type, **sizes), batch(target_length=7)
    rng = np.random.default_rng(3)
    weights = {v.path: rng.normal(0, 0.7, v.shape) for v in model.trainable_variables}
    for variable in model.trainable_variables:
        variable.assign(weights[variable.path])
    logits = model(inputs)
    for i in range(3):  # the papers have no sources without words
        source = inputs["source"][i][inputs["source"][i] != 0]
        expected = reference(weights, source, inputs["target"][i])
        np.testing.assert_allclose(logits[i], expected, atol=1e-5)


@pytest.mark.parametrize("name", slow_but(SMALL, "cho2014", "bahdanau2015"))
def test_stepping_equals_teacher_forcing_and_training(name):
    model, inputs = small(name, dropout=0.0), batch()
    logits, weights = stepped(model, inputs)
    np.testing.assert_allclose(logits, model(inputs), atol=1e-5)
    trained = tf.function(model)(inputs, training=True)
    np.testing.assert_allclose(logits, trained, atol=1e-5)
    assert np.isfinite(logits).all()
    attends = name not in ("sutskever2014", "cho2014")
    sums = [attends, attends, attends, False]  # nothing to see in padding
    np.testing.assert_allclose(
        weights.sum(-1), np.array(sums)[:, None] * np.ones(5), atol=1e-6
    )


@pytest.mark.parametrize("name", slow_but(SMALL, "cho2014", "gnmt"))
def test_a_sentence_does_not_see_its_neighbours_or_padding(name):
    model, inputs = small(name), batch()
    logits = model(inputs)
    alone = {"source": inputs["source"][1:2, :4], "target": inputs["target"][1:2]}
    np.testing.assert_allclose(model(alone)[0], logits[1], atol=1e-5)


@pytest.mark.parametrize("name", slow_but(SMALL, "bahdanau2015", "gnmt"))
def test_beams_share_one_memory(name):
    model, inputs = small(name), batch()
    memory, state = model.encode(tf.constant(inputs["source"]))
    tokens = tf.constant([[4, 5, 6]] * 4)
    beams = tf.nest.map_structure(lambda x: tf.repeat(x, 3, axis=1), state)
    _, beams, _ = model.step(tokens, beams, memory)
    together, _, _ = model.step(tokens[:, ::-1], beams, memory)
    for k in range(3):
        _, own, _ = model.step(tokens[:, k : k + 1], state, memory)
        alone, _, _ = model.step(tokens[:, ::-1][:, k : k + 1], own, memory)
        np.testing.assert_allclose(together[:, k], alone[:, 0], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_search_in_a_graph_equals_search_outside(name):
    model, source = small(name), tf.constant(batch()["source"])
    search = BeamSearch(3, n_best=2, max_length=6)
    eager = search(model, source)
    graph = tf.function(lambda ids: search(model, ids))(source)
    np.testing.assert_array_equal(eager.ids, graph.ids)
    np.testing.assert_allclose(eager.scores, graph.scores, atol=1e-5)


@pytest.mark.parametrize("name", slow_but(SMALL, "gnmt"))
def test_saved_models_compute_the_same(name, tmp_path):
    model, inputs = small(name), batch()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again) is model_class(name)
    np.testing.assert_array_equal(model(inputs), again(inputs))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_gradients_equal_finite_differences(name):
    model = small(name, dropout=0.0, init_scale=0.5)
    inputs = batch(seed=2)  # no maxout changes sides within a difference
    rng = np.random.default_rng(2)
    labels = tf.constant(rng.integers(4, 12, (4, 5), dtype="int32"))
    loss = SequenceCrossentropy()
    check_gradients(
        lambda: loss(labels, model(inputs, training=True)),
        model.trainable_variables,
        absolute=5e-3,
        relative=2e-2,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_tied_embeddings(name):
    changes = {"tie_embeddings": "target", "units": 6, "embedding_dim": 6}
    model, inputs = small(name, **changes), batch()
    logits, _ = stepped(model, inputs)
    np.testing.assert_allclose(logits, model(inputs), atol=1e-5)
    assert model.output_layer is None


@pytest.mark.parametrize("name", slow_but(SMALL, "sutskever2014", "gnmt"))
@pytest.mark.parametrize("cell_type", slow_but(CELL_TYPES, "gru"))
def test_every_cell_type(name, cell_type):
    model, inputs = small(name, cell_type=cell_type), batch()
    logits, _ = stepped(model, inputs)
    np.testing.assert_allclose(logits, model(inputs), atol=1e-5)


@pytest.mark.parametrize(
    "name",
    slow_but(
        PRESETS,
        "auto",
        "luong2015-base",
        "luong2015-global-location",
        "luong2015-local-p-general",
        "cho2014",
        "bahdanau2015",
        "gnmt",
        "wu2021-tiny",
    ),
)
def test_every_preset_makes_a_model(name):
    one = configure(name, 12, 12).tie_embeddings == "all"
    vocabularies = (12, 12) if one else (10, 12)
    assert configure(name, *vocabularies).target_vocab_size == 12
    sizes = {"units": 16}  # the papers' would only be slow
    if name == "bahdanau2015":
        sizes["encoder_units"] = 16
    assert build(name, *vocabularies, **sizes).output_shape == (None, None, 12)


def test_the_sizes_are_the_papers():
    bahdanau = configure("bahdanau2015", 30_000, 30_000)
    assert (bahdanau.units, bahdanau.embedding_dim) == (1000, 620)
    sutskever = Seq2SeqConfig.preset("sutskever2014", 160_000, 80_000)
    assert (sutskever.num_layers, sutskever.init_scale) == (4, 0.08)
    assert sutskever.reverse_source and sutskever.attention is None


@pytest.mark.parametrize(
    "name, changes, message",
    [
        ("bahdanau2015", {"input_feeding": True}, "input_feeding=False.*True"),
        ("cho2014", {"attention": "global"}, "attention=None.*'global'"),
        ("bahdanau2015", {"attention": None}, "needs attention.*None"),
        ("gnmt", {"attention": None}, "needs attention.*None"),
        ("gnmt", {"reverse_source": True}, "reverse_source=False.*True"),
        ("gpt", {}, "preset.*bahdanau2015.*'gpt'"),
    ],
)
def test_what_a_model_cannot_have_is_named(name, changes, message):
    with pytest.raises(ValueError, match=message):
        build(name, 11, 12, **{**DEEP.get(name, {}), **changes})


def test_a_class_makes_its_own_presets_alone():
    with pytest.raises(ValueError, match="gnmt is a GNMT, and no Transformer"):
        Transformer.from_preset("gnmt", 11, 12)
    with pytest.raises(ValueError, match="vaswani2017-base is a Transformer"):
        Seq2Seq.from_preset("vaswani2017-base", 11, 12)
    with pytest.raises(ValueError, match="vaswani2017-base is no Seq2SeqConfig"):
        Seq2SeqConfig.preset("vaswani2017-base", 11, 12)
    assert type(Seq2Seq.from_preset("gnmt", 11, 12, **SMALL["gnmt"])).__name__ == "GNMT"


def test_a_subclass_of_ones_own_has_its_presets():
    class Mine(Seq2Seq):
        pass

    assert type(Mine.from_preset("small", 8, 8, units=4)) is Mine
