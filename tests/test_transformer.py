"""The Transformer against its equations, and against itself a word at a time."""

import dataclasses
import inspect
import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from finite_differences import check_gradients
from leave_slow import slow_but

from keras_luong import (
    BeamSearch,
    SequenceCrossentropy,
    TokenizerPair,
    Translator,
    WordTokenizer,
    export_saved_model,
)
from keras_luong.config.presets import PRESETS
from keras_luong.models.transformer import (
    CachedMultiHeadAttention,
    SinusoidalPositions,
    Transformer,
    TransformerConfig,
)

VOCABULARY, UNITS = 11, 6
OPTIONS = {
    "one block": {},
    "two blocks": {"num_layers": 2},
    "one head": {"num_heads": 1, "feedforward_units": 5},
    "odd size": {"num_heads": 1, "units": 5},
    "attention dropout": {"attention_dropout": 0.3, "dropout": 0.0},
    "tied target": {"tie_embeddings": "target"},
    "tied all": {"tie_embeddings": "all", "num_layers": 2},
}


def make(dtype=None, **fields):
    """A model none of whose weights is 0 or 1, so that every one of them counts."""
    fields = {"units": UNITS, "num_layers": 1, "num_heads": 2, **fields}
    config = TransformerConfig(VOCABULARY, VOCABULARY, **{"cache_length": 9, **fields})
    model = Transformer(config, dtype=dtype)
    rng = np.random.default_rng(3)
    for weight in model.weights:
        if len(weight.shape) == 1:
            weight.assign(weight + rng.normal(0, 0.3, weight.shape))
    return model


def batch(target_length=5):
    rng = np.random.default_rng(0)
    source = rng.integers(4, VOCABULARY, (4, 6), dtype="int32")
    source[1, 4:] = source[2, 1:] = source[3] = 0  # the last is all padding
    target = rng.integers(4, VOCABULARY, (4, target_length), dtype="int32")
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


# The paper's equations for one sentence without padding, in float64.


def positions(length, size):
    table = np.zeros((length, size))
    for p in range(length):
        for i in range(0, size, 2):
            table[p, i] = np.sin(p / 10000 ** (i / size))
            if i + 1 < size:
                table[p, i + 1] = np.cos(p / 10000 ** (i / size))
    return table


def norm(x, layer):
    deviation = x - x.mean(-1, keepdims=True)
    scaled = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + 1e-6)
    return scaled * layer.gamma.numpy() + layer.beta.numpy()


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def heads(layer, query, value, mask):
    """MultiHead(Q, K, V) of section 3.2.2: the output, and each head's weights."""
    names = ("query_dense", "key_dense", "value_dense", "output_dense")
    W_q, W_k, W_v, W_o = (getattr(layer, name).kernel.numpy() for name in names)
    contexts, weights = [], []
    for h in range(W_q.shape[1]):
        Q, K, V = query @ W_q[:, h], value @ W_k[:, h], value @ W_v[:, h]
        scores = Q @ K.T / np.sqrt(Q.shape[-1])
        weights.append(softmax(np.where(mask, scores, -np.inf)))
        contexts.append(weights[-1] @ V)
    return np.concatenate(contexts, -1) @ W_o.reshape(-1, W_o.shape[-1]), weights


def feed_forward(block, x):
    W_1, b_1, W_2, b_2 = (
        w.numpy() for layer in (block.expand, block.contract) for w in layer.weights
    )
    return np.maximum(0, norm(x, block.feedforward_norm) @ W_1 + b_1) @ W_2 + b_2


def embed(layer, ids):
    table = layer.embeddings.numpy().astype("float64")
    size = table.shape[1]
    return np.sqrt(size) * table[ids] + positions(len(ids), size)


def reference(model, source, target, window):
    """Source ids [S], target ids [T] -> logits [T, V], alignments [T, S]."""
    x = embed(model.source_embedding, source)
    for block in model.encoder:
        h = norm(x, block.self_norm)
        x = x + heads(block.self_attention, h, h, True)[0]
        x = x + feed_forward(block, x)
    memory = norm(x, model.encoder_norm)
    y = embed(model.target_embedding, target)
    back = np.subtract.outer(np.arange(len(target)), np.arange(len(target)))
    for block in model.decoder:
        h = norm(y, block.self_norm)
        y = y + heads(block.self_attention, h, h, (back >= 0) & (back < window))[0]
        h = norm(y, block.cross_norm)
        context, weights = heads(block.cross_attention, h, memory, True)
        y = y + context
        y = y + feed_forward(block, y)
    W = model.output_layer.kernel.numpy()
    return norm(y, model.decoder_norm) @ W, np.mean(weights, axis=0)


def check_against_reference(model, inputs, logits, weights, window):
    for i, length in enumerate([6, 4, 1]):
        expected, alignment = reference(
            model, inputs["source"][i, :length], inputs["target"][i], window
        )
        np.testing.assert_allclose(logits[i], expected, atol=1e-5)
        if weights is not None:
            np.testing.assert_allclose(weights[i, :, :length], alignment, atol=1e-5)


@pytest.mark.parametrize("fields", [{}, {"num_layers": 2}, {"units": 8}])
def test_the_model_is_the_papers_equations(fields):
    model, inputs = make(**fields), batch()
    check_against_reference(model, inputs, model(inputs), None, window=99)
    check_against_reference(model, inputs, *stepped(model, inputs), window=99)


@pytest.mark.slow
@pytest.mark.parametrize("cache_length", [3, 1, 7])
def test_each_layer_of_a_step_sees_the_last_cache_length_words(cache_length):
    model, inputs = (
        make(num_layers=2, cache_length=cache_length),
        batch(target_length=8),
    )
    check_against_reference(model, inputs, *stepped(model, inputs), window=cache_length)
    longest = inputs["target"][:, :cache_length]
    logits = stepped(model, {**inputs, "target": longest})[0]
    np.testing.assert_allclose(model(inputs)[:, :cache_length], logits, atol=1e-5)


def test_a_step_transposes_no_words_before():
    """Only what is new: nothing that has an axis of all that it remembers."""
    model = make(cache_length=7)  # no other size here
    ids = tf.constant(batch()["source"])
    memory, state = model.encode(ids)
    step = tf.function(model.step).get_concrete_function(ids[:, :1], state, memory)
    turned = [x for x in step.graph.get_operations() if x.type == "Transpose"]
    assert turned and not any(7 in x.outputs[0].shape for x in turned)


def test_positions_by_hand():
    embedded = tf.constant([[[0.0] * 4, [1.0] * 4]])
    expected = [[0, 1, 0, 1], [2.841471, 2.540302, 2.01, 2.99995]]
    np.testing.assert_allclose(SinusoidalPositions()(embedded)[0], expected, atol=1e-6)
    # In whatever order they are asked for.
    turned = SinusoidalPositions()(embedded, tf.constant([[1, 0]]))
    expected = [[0.841471, 0.540302, 0.01, 0.99995], [2, 3, 2, 3]]
    np.testing.assert_allclose(turned[0], expected, atol=1e-6)


@pytest.mark.parametrize("name", slow_but(OPTIONS, "odd size", "tied all"))
def test_stepping_equals_teacher_forcing(name):
    model, inputs = make(**OPTIONS[name]), batch()
    logits, weights = stepped(model, inputs)
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(model(inputs), logits, atol=1e-5)
    padding = np.broadcast_to(inputs["source"][:, None] == 0, weights.shape)
    np.testing.assert_array_equal(weights[padding], 0)
    np.testing.assert_allclose(weights[:3].sum(-1), 1, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_a_sentence_does_not_see_its_neighbours_or_padding(name):
    model, inputs = make(**OPTIONS[name]), batch()
    together = np.asarray(model(inputs))
    for i, length in enumerate([6, 4, 1, 2]):  # of the last all are padding
        alone = {
            "source": inputs["source"][i : i + 1, :length],
            "target": inputs["target"][i : i + 1],
        }
        np.testing.assert_allclose(model(alone), together[i : i + 1], atol=1e-5)
        np.testing.assert_allclose(
            stepped(model, alone)[0], together[i : i + 1], atol=1e-5
        )


def test_later_targets_do_not_change_earlier_logits():
    model, inputs = make(num_layers=2), batch()
    changed = {**inputs, "target": np.where(np.arange(5) < 3, inputs["target"], 7)}
    before, after = model(inputs), model(changed)
    np.testing.assert_allclose(after[:, :3], before[:, :3], atol=1e-6)
    assert np.abs(after[:, 3:] - before[:, 3:]).max() > 0.1


@pytest.mark.slow
def test_beams_share_one_memory_and_are_stepped_independently():
    model, inputs = make(num_layers=2), batch()
    memory, state = model.encode(tf.constant(inputs["source"]))
    assert {leaf.shape[0] for leaf in tf.nest.flatten([memory, state])} == {4}
    assert {tuple(keys.shape) for keys in memory.keys} == {(4, 2, UNITS // 2, 6)}
    assert {tuple(values.shape) for values in memory.values} == {(4, 2, 6, UNITS // 2)}
    state = [tf.repeat(s, 3, axis=1) for s in state]
    rng = np.random.default_rng(1)
    for _ in range(3):  # the hypotheses' pasts differ too
        tokens = tf.constant(rng.integers(4, VOCABULARY, (4, 3)))
        alone = [
            model.step(tokens[:, k : k + 1], [s[:, k : k + 1] for s in state], memory)
            for k in range(3)
        ]
        logits, new_state, weights = model.step(tokens, state, memory)
        assert logits.shape == (4, 3, VOCABULARY) and weights.shape == (4, 3, 6)
        assert [s.shape for s in new_state] == [s.shape for s in state]
        assert [s.dtype for s in new_state] == [s.dtype for s in state]
        together = tf.nest.flatten([logits, new_state, weights])
        for k in range(3):
            for x, y in zip(together, tf.nest.flatten(alone[k]), strict=True):
                np.testing.assert_allclose(x[:, k], y[:, 0], atol=1e-6)
        state = new_state
    assert np.abs(logits[:, 0] - logits[:, 1]).max() > 0.1


def test_an_empty_batch_has_no_logits():
    model = make()
    memory, state = model.encode(tf.zeros((0, 3), tf.int32))
    logits, _, weights = model.step(tf.zeros((0, 1), tf.int32), state, memory)
    assert logits.shape == (0, 1, VOCABULARY) and weights.shape == (0, 1, 3)


@pytest.mark.parametrize(
    "rate", slow_but(["dropout", "attention_dropout"], "attention_dropout")
)
def test_dropout_is_for_training_alone(rate):
    model = make(**{"dropout": 0.0, "attention_dropout": 0.0, rate: 0.5})
    inputs = batch()
    first, second = (np.asarray(model(inputs, training=True)) for _ in range(2))
    assert np.abs(first - second).max() > 0.1
    np.testing.assert_array_equal(model(inputs), model(inputs))
    np.testing.assert_array_equal(stepped(model, inputs)[0], stepped(model, inputs)[0])


def test_dropout_is_on_embeddings_and_on_every_sub_layers_output(monkeypatch):
    model = make(num_layers=2)
    drop, seen = model.dropout.call, []
    monkeypatch.setattr(
        model.dropout, "call", lambda x, **kwargs: seen.append(x) or drop(x, **kwargs)
    )
    model(batch(), training=True)
    assert len(seen) == 2 + 2 * (2 + 3)


def test_tied_embeddings_are_one_weight():
    def count(**options):
        return make(**options).count_params()

    table = VOCABULARY * UNITS
    assert count() - count(tie_embeddings="target") == table
    assert count() - count(tie_embeddings="all") == 2 * table


def test_initial_weights_keep_the_size_of_what_they_multiply():
    config = TransformerConfig(1000, 1000, units=64, num_layers=1, num_heads=8)
    model = Transformer(config)
    attention = model.encoder[0].self_attention
    kernels = [w.numpy() for w in attention.trainable_weights]
    for kernel in kernels:  # uniform within Glorot's limit for 64 x 64
        np.testing.assert_allclose(np.abs(kernel).max(), (3 / 64) ** 0.5, rtol=0.01)
    assert np.abs(kernels[0] - kernels[1]).max() > 0.1
    for layer in (model.source_embedding, model.target_embedding):
        np.testing.assert_allclose(np.std(layer.embeddings), 1 / 8, rtol=0.05)


@pytest.mark.slow
def test_fit_learns_to_reverse():
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    words = rng.integers(4, VOCABULARY, (256, 4), dtype="int32")
    source = np.pad(words, ((0, 0), (0, 1)), constant_values=3)
    labels = np.pad(words[:, ::-1], ((0, 0), (0, 1)), constant_values=3)
    target = np.pad(words[:, ::-1], ((0, 0), (1, 0)), constant_values=2)
    fields = {"units": 32, "num_layers": 1, "dropout": 0.0, "tie_embeddings": "all"}
    model = Transformer(TransformerConfig(VOCABULARY, VOCABULARY, **fields))
    model.compile(
        keras.optimizers.Adam(0.005),
        SequenceCrossentropy(),
        weighted_metrics=["accuracy"],
        jit_compile=False,
    )
    weights = np.full(source.shape, 1 / source.size * len(source) / 32)
    history = model.fit(
        {"source": source, "target": target},
        labels,
        sample_weight=weights,
        epochs=20,
        verbose=0,
    )
    assert history.history["accuracy"][-1] > 0.95
    found = BeamSearch(3, max_length=7)(model, source[:50])
    assert np.mean(np.all(found.ids[:, 0, :5] == labels[:50], axis=1)) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two blocks", "odd size", "tied target", "tied all"])
def test_saved_and_cloned_models_compute_the_same(name, tmp_path):
    model, inputs = make(**OPTIONS[name]), batch()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, Transformer) and loaded.config == model.config
    cloned = keras.models.clone_model(model)
    described = json.loads(json.dumps(model.get_config()))
    copied = Transformer.from_config(described)
    for other in (cloned, copied):
        other.set_weights(model.get_weights())
    for other in (loaded, cloned, copied):
        np.testing.assert_allclose(other(inputs), model(inputs), atol=1e-6)
    for other in (loaded, copied):
        np.testing.assert_allclose(
            stepped(other, inputs)[0], stepped(model, inputs)[0], atol=1e-6
        )


@pytest.mark.slow
def test_another_cache_length_takes_the_same_weights(tmp_path):
    model, inputs = make(cache_length=5), batch()
    model.save_weights(tmp_path / "model.weights.h5")
    longer = make(cache_length=30)
    longer.set_weights([0 * w for w in longer.get_weights()])
    longer.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(
        stepped(longer, inputs)[0], stepped(model, inputs)[0], atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_trains_and_steps(policy, tmp_path):
    model, inputs = make(policy, attention_dropout=0.1), batch()
    logits, weights = stepped(model, inputs)
    assert logits.dtype == weights.dtype == "float32"
    exact = make(attention_dropout=0.1)
    exact.set_weights(model.get_weights())
    for other in (logits, np.asarray(model(inputs), "float32")):
        np.testing.assert_allclose(other, exact(inputs), atol=0.1)
    model.compile("adam", SequenceCrossentropy(), run_eagerly=True)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) == (
        policy == "mixed_float16"
    )
    assert np.isfinite(model.train_on_batch(inputs, inputs["target"]))
    model.save(tmp_path / "half.keras")
    loaded = keras.models.load_model(tmp_path / "half.keras")
    assert loaded.decoder[0].expand.dtype_policy.name == policy
    assert BeamSearch(2, max_length=4)(model, inputs["source"]).ids.shape[0] == 4


def test_attention_survives_scores_that_half_precision_cannot_hold():
    attention = CachedMultiHeadAttention(1, 2, dtype="mixed_float16", use_bias=False)
    x = tf.constant([[[300.0, 300.0], [250.0, 300.0], [-300.0, -300.0]]])
    attention.build(x.shape, x.shape)
    for layer in (attention.query_dense, attention.key_dense, attention.value_dense):
        layer.kernel.assign(tf.eye(2)[:, None])
    attention.output_dense.kernel.assign(tf.eye(2)[None])
    mask = tf.constant([[[True, False, True]]])
    output, weights = attention.attend(x, *attention.keys_and_values(x), mask)
    expected = [[1, 0, 0], [1, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(weights[0, 0], expected)
    np.testing.assert_array_equal(output[0], expected @ x[0].numpy())


@pytest.mark.parametrize("mask", [None, [[[True, True, False, False]]]])
def test_attending_in_two_parts_is_calling(mask):
    attention = CachedMultiHeadAttention(2, 3)
    rng = np.random.default_rng(0)
    query, value = (rng.normal(size=(2, n, 6)).astype("float32") for n in (3, 4))
    called = attention(query, value, attention_mask=mask, return_attention_scores=True)
    mask = None if mask is None else tf.constant(mask)
    parts = attention.attend(query, *attention.keys_and_values(value), mask)
    plain = keras.layers.MultiHeadAttention(2, 3)
    plain.build(query.shape, value.shape)
    plain.set_weights(attention.get_weights())
    expected = plain(query, value, attention_mask=mask, return_attention_scores=True)
    for x, y, z in zip(called, parts, expected, strict=True):
        np.testing.assert_allclose(x, z, atol=1e-6)
        np.testing.assert_allclose(y, z, atol=1e-6)


def test_gradients_equal_finite_differences():
    model, inputs = make(dropout=0.0), batch()
    labels = tf.constant(inputs["target"])

    @tf.function  # for speed
    def loss():
        logits = model(inputs, training=True)
        return SequenceCrossentropy(label_smoothing=0.1)(labels, logits)

    check_gradients(
        loss, model.trainable_variables, absolute=2e-2, relative=2e-2, epsilon=3e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "cache_length": 3}])
def test_beam_search_is_the_same_in_a_graph(options):
    model, source = make(**options), batch()["source"]
    search = BeamSearch(3, n_best=2, max_length=8)
    eager = search(model, source)
    spec = tf.TensorSpec([None, None], tf.int32)
    graph = tf.function(lambda x: search(model, x), input_signature=[spec])(source)
    np.testing.assert_array_equal(eager.ids, graph.ids)
    np.testing.assert_allclose(eager.scores, graph.scores, atol=1e-5)
    np.testing.assert_allclose(eager.weights, graph.weights, atol=1e-5)


def test_beam_searchs_probabilities_are_the_models():
    model, source = make(), batch()["source"]
    found = BeamSearch(4, n_best=4, max_length=6)(model, source)
    for n in range(4):
        ids = found.ids[:, n].numpy()
        target = np.pad(ids[:, :-1], ((0, 0), (1, 0)), constant_values=2)
        log_probs = tf.nn.log_softmax(model({"source": source, "target": target}))
        taken = tf.gather(log_probs, ids, batch_dims=2)
        inside = np.arange(ids.shape[1]) < found.lengths[:, n : n + 1]
        total = np.sum(np.where(inside, taken, 0), axis=1)
        np.testing.assert_allclose(found.log_probs[:, n], total, atol=1e-4)


@pytest.mark.slow
def test_the_export_says_the_same(tmp_path):
    keras.utils.set_random_seed(6)  # of a model that has something to say
    source = WordTokenizer(["the", "red", "dog", "cat", "is"])
    pair = TokenizerPair(source, WordTokenizer(["der", "Hund", "ist"]))
    config = TransformerConfig(9, 7, units=8, num_layers=1, num_heads=2, cache_length=5)
    model = Transformer(config)
    for weight in model.trainable_variables:
        weight.assign(3.0 * weight)
    translator = Translator(model, pair, BeamSearch(3, 1, 8, 1.0), 10)
    sentences = ["the red dog", "", "cat", "the the cat is blue", "is the dog red"]
    path = export_saved_model(translator, tmp_path)
    serve = tf.saved_model.load(path).signatures["serving_default"]
    said = serve(text=tf.constant(sentences))
    translations = translator.translate(sentences, batch_size=2)
    expected = [x.text for x in translations]
    assert [x.decode() for x in said["translation"].numpy()] == expected
    scores = [x.score for x in translations]
    np.testing.assert_allclose(said["score"], scores, atol=1e-4)
    assert len(set(expected)) > 2


@pytest.mark.parametrize("part", [None, "output", "decoder_0_cross_attention"])
def test_frozen_layers_stay_frozen(part, tmp_path):
    model = make()
    layer = model.get_layer(part) if part else model
    layer.trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    expected = [weight.trainable for weight in model.weights]
    assert [weight.trainable for weight in loaded.weights] == expected
    assert len(loaded.trainable_weights) == sum(expected) < len(expected)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"units": 0}, ValueError, "units must be at least 1. Received: 0"),
        ({"units": 2.5}, TypeError, "units must be an integer. Received: 2.5"),
        ({"units": 6}, ValueError, "of num_heads. Received: units=6, num_heads=4"),
        ({"num_layers": 0}, ValueError, "num_layers must be at least 1. Received: 0"),
        ({"num_heads": None}, TypeError, "num_heads must be an integer. Received: N"),
        ({"feedforward_units": 0}, ValueError, "feedforward_units must be at least 1"),
        (
            {"cache_length": 0},
            ValueError,
            "cache_length must be at least 1",
        ),
        ({"dropout": 1}, ValueError, r"dropout must be in \[0, 1\). Received: 1"),
        ({"attention_dropout": "a"}, TypeError, "attention_dropout must be a number"),
        ({"tie_embeddings": "both"}, ValueError, "one of .*'all'.*Received: 'both'"),
        ({"target_vocab_size": 4}, ValueError, "target_vocab_size must be above 4"),
        (
            {"tie_embeddings": "all", "source_vocab_size": 12},
            ValueError,
            "one vocabulary.*source_vocab_size=12, target_vocab_size=11",
        ),
    ],
)
def test_wrong_configurations(fields, error, message):
    sizes = {"source_vocab_size": VOCABULARY, "target_vocab_size": VOCABULARY}
    with pytest.raises(error, match=message):
        TransformerConfig(**{**sizes, **fields})


def test_other_configurations_are_refused():
    with pytest.raises(TypeError, match="TransformerConfig.*'units': 3"):
        Transformer({"units": 3})


@pytest.mark.slow
@pytest.mark.parametrize(("size", "millions"), [("base", 65), ("big", 213)])
def test_presets_have_the_papers_sizes(size, millions):
    """Table 3, trained with about 37,000 sub-words for both languages."""
    fields = {**PRESETS[f"vaswani2017-{size}"].fields, "tie_embeddings": "all"}
    assert Transformer.config_class is TransformerConfig
    config = TransformerConfig(37_000, 37_000, **fields)
    with keras.StatelessScope():  # counts the weights without making them
        count = Transformer(config).count_params()
    assert abs(count / 1e6 - millions) < 0.04 * millions


def test_every_field_is_documented():
    doc = inspect.getdoc(TransformerConfig)
    documented = re.findall(r"^ {4}(\w+): ", doc, re.M)
    assert documented == [x.name for x in dataclasses.fields(TransformerConfig)]
