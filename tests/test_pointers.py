"""Pointers: words copied from the source, and its positions as words; coverage loss."""

import keras
import numpy as np
import pytest
from finite_differences import check_gradients
from keras import ops
from leave_slow import slow_but
from small_models import batch, stepped

import keras_luong as kl
from keras_luong.compat import get_keras_mask
from keras_luong.layers.pointer_generator import NOTHING, copied_weights, coverage_loss
from keras_luong.models import build

# The pointer-generator.

B, Q, S, V, H = 2, 3, 4, 5, 6
IDS = np.array([[1, 3, 1, 6], [4, 5, 0, 9]])  # 9 is no id at all


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def given():
    """Features, logits, weights with a zero, source ids."""
    rng = np.random.default_rng(0)
    features, logits = rng.normal(size=(B, Q, H)), rng.normal(size=(B, Q, V))
    weights = softmax(rng.normal(size=(B, Q, S)))
    weights[1, :, 2] = 0.0
    weights /= weights.sum(-1, keepdims=True)
    return *(x.astype("float32") for x in (features, logits, weights)), IDS


def reference(layer, features, logits, weights, ids, extra):
    """Eq. 8 and 9, word by word; -> probabilities, p_gen."""
    kernel, bias = (ops.convert_to_numpy(w) for w in layer.weights)
    p_gen = 1 / (1 + np.exp(-(features @ kernel + bias)))[..., 0]
    p = np.zeros((B, Q, V + extra))
    for b in range(B):
        for q in range(Q):
            p[b, q, :V] = p_gen[b, q] * softmax(logits[b, q])
            for i, w in enumerate(ids[b]):
                if 0 <= w < V + extra:
                    p[b, q, w] += (1 - p_gen[b, q]) * weights[b, q, i]
    return p / p.sum(-1, keepdims=True), p_gen


def test_attention_of_each_id_by_hand():
    found = copied_weights(np.array([[[0.5, 0.2, 0.3]]], "float32"), [[2, 0, 2]], 4)
    np.testing.assert_allclose(found, [[[0.2, 0.0, 0.8, 0.0]]], rtol=1e-6)


@pytest.mark.parametrize("extra", [0, 2])
def test_equations_8_and_9(extra):
    """Of whole targets and of single steps; of features together and in parts."""
    layer = kl.PointerGenerator(extra, bias_initializer="ones")
    features, logits, weights, ids = inputs = given()
    log_probs = ops.convert_to_numpy(layer(*inputs))
    expected, p_gen = reference(layer, *inputs, extra)
    np.testing.assert_allclose(np.exp(log_probs), expected, atol=1e-6)
    np.testing.assert_allclose(layer.p_gen(features), p_gen, atol=1e-6)
    for q in range(Q):
        step = layer(features[:, q], logits[:, q], weights[:, q], ids)
        np.testing.assert_allclose(step, log_probs[:, q], atol=1e-5)
    parts = [features[..., :2], features[..., 2:3], features[..., 3:]]
    several = kl.PointerGenerator(extra)
    several(parts, *inputs[1:])
    several.set_weights(layer.get_weights())
    np.testing.assert_allclose(several(parts, *inputs[1:]), log_probs, atol=1e-5)


def test_words_that_are_impossible_or_nearly_are_finite():
    features, logits, weights, ids = given()
    log_probs = ops.convert_to_numpy(kl.PointerGenerator(2)(*given()))
    absent = log_probs[[0, 1], :, [5, 6]]  # extra ids that are not there
    np.testing.assert_allclose(absent, np.log(NOTHING), atol=1.0)
    smoothed = kl.SequenceCrossentropy(0.1)(np.full((B, Q), 1), log_probs)
    assert np.isfinite(ops.convert_to_numpy(smoothed))
    # A source without words leaves the vocabulary.
    log_probs = kl.PointerGenerator()(features, logits, 0 * weights, 0 * ids)
    np.testing.assert_allclose(np.exp(log_probs), softmax(logits), atol=1e-6)
    logits[..., 2] = -300.0  # in no source
    found = kl.PointerGenerator()(features, logits, weights, ids)
    log_probs = ops.convert_to_numpy(found)
    assert (log_probs[..., 2] < -290).all() and np.isfinite(log_probs).all()


@pytest.mark.tensorflow
def test_gradients_are_slopes_also_where_a_weight_is_zero():
    layer, inputs = kl.PointerGenerator(2), given()
    layer(*inputs)
    values = *inputs[:2], np.log(inputs[2] + 1e-3)
    features, logits, scores = map(keras.Variable, values)
    labels = np.array([[1, 3, 2], [4, 0, 4]])

    def loss():
        weights = ops.softmax(scores, axis=-1) * (inputs[2] > 0)
        log_probs = layer(features, logits, weights, inputs[3])
        return kl.SequenceCrossentropy(0.1)(labels, log_probs)

    variables = [features, logits, scores, *layer.trainable_weights]
    check_gradients(loss, variables, 2e-3, 1e-2)


@pytest.mark.tensorflow
def test_gradients_where_both_ways_are_as_probable():
    layer = kl.PointerGenerator(kernel_initializer="zeros")
    features, logits = np.ones((1, 1, 2), "float32"), keras.Variable([[[0.0, 0.0]]])
    weights, ids = keras.Variable([[[0.5, 0.5]]]), np.array([[0, 1]])
    layer(features, logits, weights, ids)

    def loss():
        return layer(features, logits, weights, ids)[0, 0, 0]

    check_gradients(loss, [logits, weights, *layer.trainable_weights], 1e-3, 1e-2)


def test_the_config_of_a_pointer_generator():
    options = {
        **{"kernel_initializer": "he_normal", "bias_initializer": "ones"},
        **{"kernel_regularizer": "l2", "bias_constraint": "non_neg"},
        "num_extra_ids": 7,
    }
    config = kl.PointerGenerator(**options).get_config()
    assert kl.PointerGenerator.from_config(config).get_config() == config
    assert config["num_extra_ids"] == 7


def test_the_features_mask_goes_on():
    ids = keras.Input((None,), dtype="int32")
    features = keras.layers.Embedding(V, H, mask_zero=True)(ids)
    logits = keras.layers.Dense(V)(features)
    weights = kl.LuongAttention("dot")(features, features, return_attention_scores=True)
    log_probs = kl.PointerGenerator(2)(features, logits, weights[1], ids)
    assert log_probs.shape == (None, None, V + 2)
    assert get_keras_mask(log_probs) is not None


# Pointer networks.

SPECIAL = {"bos_id": 0, "eos_id": 0, "pad_id": 0}
ROWS, POSITIONS, STEPS, F = 3, 5, 4, 2
TARGETS = np.array([[0, 2, 5, 1], [0, 3, 1, 0], [0, 1, 4, 2]])
MASK = np.arange(POSITIONS) < np.array([5, 3, 4])[:, None]


def loud(seed):
    """So that different sources have different answers."""
    return keras.initializers.RandomNormal(stddev=1.0, seed=seed)


def network(units=H, glimpse=None, dtype=None, **options):
    of_cell = {"dtype": dtype, "kernel_initializer": loud(1)}
    cell = kl.InputFeedingDecoderCell(units, glimpse, **of_cell)
    attention = kl.LuongAttention("concat", kernel_initializer=loud(2), dtype=dtype)
    return kl.PointerNetwork(cell, attention, dtype=dtype, **options)


class Pointer(keras.Model):
    """Reads features [B, S, F]; points at their positions."""

    def __init__(self, units=H):
        super().__init__()
        self.encoder = kl.RecurrentEncoder(units, kernel_initializer=loud(3))
        self.pointer = network(units)

    def call(self, inputs):
        memory, *state = self.encoder(inputs["source"])
        options = {"inputs": inputs["source"], "initial_state": state}
        return self.pointer(inputs["target"], memory, **options)

    def encode(self, source):
        memory, *state = self.encoder(source)
        return self.pointer.encode(memory, inputs=source, initial_state=state)

    def step(self, tokens, state, memory):
        return self.pointer.step(tokens, state, memory)


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def features(count=ROWS, length=POSITIONS):
    return normal(count, length, F)


MEMORY, STATE = normal(ROWS, POSITIONS, H), [*normal(2, ROWS, H)]


def test_equation_3():
    """The decoder's states, and `vᵀ tanh(W_1 e_s + W_2 d_t)` in NumPy."""
    layer, inputs = network(), features()
    found = ops.convert_to_numpy(layer(TARGETS, MEMORY, MASK, inputs, STATE))
    begin, end = (np.asarray(x)[None].repeat(3, 0) for x in (layer.begin, layer.end))
    read = np.concatenate([begin, inputs], 1)
    read = np.stack([read[b][TARGETS[b]] for b in range(ROWS)])
    decoder = kl.InputFeedingDecoder(layer.cell)
    d = np.asarray(decoder(read, MEMORY, memory_mask=MASK, initial_state=STATE))
    e = np.concatenate([end, MEMORY], 1)
    score = layer.attention.score
    weights = score.value_kernel, score.query_kernel, score.scale
    W_1, W_2, v = map(np.asarray, weights)
    expected = np.tanh((e @ W_1)[:, None] + (d @ W_2)[:, :, None]) @ v
    there = np.concatenate([np.ones((3, 1), bool), MASK], 1)[:, None].repeat(STEPS, 1)
    np.testing.assert_allclose(found[there], expected[there], atol=1e-5)
    assert (found[~there] < -1e38).all() and np.isfinite(found).all()


@pytest.mark.parametrize("glimpse", [False, True])
@pytest.mark.parametrize("own_inputs", [False, True])
def test_steps_are_the_whole_sequence(glimpse, own_inputs):
    layer = network(glimpse=kl.LuongAttention("dot") if glimpse else None)
    inputs = features() if own_inputs else None
    whole = ops.convert_to_numpy(layer(TARGETS, MEMORY, MASK, inputs, STATE))
    # What padding holds does not matter.
    spoilt = np.where(MASK[..., None], MEMORY, np.nan)
    prepared, states = layer.encode(spoilt, MASK, inputs, STATE)
    for t in range(STEPS):
        logits, states, weights = layer.step(TARGETS[:, t : t + 1], states, prepared)
        logits = ops.convert_to_numpy(logits)[:, 0]
        there = np.isfinite(logits)
        np.testing.assert_array_equal(there[:, 1:], MASK)
        np.testing.assert_allclose(logits[there], whole[:, t][there], atol=1e-5)
        np.testing.assert_allclose(weights[:, 0], softmax(logits)[:, 1:], atol=1e-5)
    if not own_inputs:  # a sentence alone, which knows no padding
        state = [x[1:2] for x in STATE]
        alone = layer(TARGETS[1:2], MEMORY[1:2, :3], initial_state=state)
        np.testing.assert_allclose(whole[1:2, :, :4], alone, atol=1e-5)


def test_steps_find_the_mask_of_the_memory():
    layer = network(glimpse=kl.LuongAttention("dot"))
    ids = np.arange(1, POSITIONS + 1) * MASK
    memory = keras.layers.Embedding(POSITIONS + 1, H, mask_zero=True)(ids)
    whole = layer(TARGETS[:, :1], memory)
    prepared, states = layer.encode(memory)
    logits = ops.convert_to_numpy(layer.step(TARGETS[:, :1], states, prepared)[0])
    np.testing.assert_array_equal(np.isfinite(logits)[:, 0, 1:], MASK)
    there = np.isfinite(logits)
    np.testing.assert_allclose(logits[there], np.asarray(whole)[there], atol=1e-5)


@pytest.mark.parametrize("kind", ["generator", "network"])
def test_half_precision_gives_float32(kind):
    makes = {"generator": kl.PointerGenerator, "network": network}
    inputs = given() if kind == "generator" else (TARGETS, MEMORY, MASK, None, STATE)
    exact, other = (makes[kind](dtype=x) for x in ("float32", "mixed_bfloat16"))
    expected, _ = exact(*inputs), other(*inputs)
    other.set_weights(exact.get_weights())
    found = other(*inputs)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(ops.softmax(found), ops.softmax(expected), atol=0.1)


@pytest.mark.tensorflow
def test_beam_search_as_wide_as_the_space_is_exhaustive():
    from own_models import exhaustive

    model, source = Pointer(), features(1, 2)
    best = exhaustive(model, source, 3, words=3, **SPECIAL)[:5]
    found = kl.BeamSearch(16, 5, max_length=3, **SPECIAL)(model, source)
    for n, (ids, log_prob) in enumerate(best):
        length = int(found.lengths[0, n])
        assert found.ids[0, n, :length].numpy().tolist() == ids
        np.testing.assert_allclose(found.log_probs[0, n], log_prob, atol=1e-4)


SEARCHES = {
    "beam": kl.BeamSearch(4, max_length=7, **SPECIAL),
    "no repetition": kl.BeamSearch(4, max_length=7, no_repeat_ngram=1, **SPECIAL),
    "many forbidden": kl.BeamSearch(
        3, max_length=7, forbidden=tuple(range(3, 30)), **SPECIAL
    ),
    "greedy": kl.GreedySearch(7, **SPECIAL),
    "top k": kl.RandomSampling(top_k=3, max_length=7, seed=1, **SPECIAL),
    "top p": kl.RandomSampling(top_p=0.8, max_length=7, seed=1, **SPECIAL),
}


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", slow_but(SEARCHES, "top p"))
def test_searches_where_the_graph_does_not_know_how_many_ids_there_are(name):
    import tensorflow as tf

    model, search = Pointer(), SEARCHES[name]
    spec = [tf.TensorSpec([None, None, F]), tf.TensorSpec([None, 2], tf.int32)]

    def graph(count):
        options = {"input_signature": spec[:count], "autograph": False}
        return tf.function(lambda *x: search(model, *x), **options)

    find = graph(1)
    for length in (4, 1):
        source = features(2, length)
        expected, found = search(model, source), find(source)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.log_probs, expected.log_probs, atol=1e-4)
        assert found.ids.numpy().max() <= (2 if "forbidden" in name else length)
        for row in found.ids[:, 0].numpy() if name == "no repetition" else ():
            pointed = row[row > 0].tolist()
            assert len(pointed) == len(set(pointed))
    if name == "beam":
        found = graph(2)(features(2, 4), np.array([[3, 2], [4, 0]], "int32"))
        np.testing.assert_array_equal(found.ids[0, 0, :2], [3, 2])
        assert found.ids[1, 0, 0] == 4


# The loss that keeps attention from coming back.

WEIGHTS = np.array([[[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.25, 0.75, 0.0]]], "float32")


COVERAGE = [(None, 1.25 / 3), (np.array([[1, 1, 0]]), 0.25)]


@pytest.mark.parametrize("mask, mean", COVERAGE)
def test_a_coverage_loss_adds_the_mean_over_words(mask, mean):
    np.testing.assert_allclose(coverage_loss(WEIGHTS), [[0.0, 0.5, 0.75]])
    layer = kl.CoverageLoss(2.0)
    np.testing.assert_array_equal(layer(WEIGHTS, WEIGHTS, mask), WEIGHTS)
    np.testing.assert_allclose(layer.losses, [2.0 * mean], rtol=1e-6)
    assert kl.CoverageLoss.from_config(layer.get_config()).factor == 2.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["eager", "functional"])
def test_l4_an_implicit_mask_counts(kind):
    """And goes on: the loss is that of words alone, without a warning."""
    ids = np.array([[3, 4, 5, 6], [7, 8, 0, 0]])
    embed = keras.layers.Embedding(9, 3, mask_zero=True)
    attention, coverage = kl.LuongAttention("dot"), kl.CoverageLoss(2.0)

    def call(ids):
        query = embed(ids)
        return coverage(*attention(query, query, return_attention_scores=True))

    inputs = keras.Input((None,), dtype="int32")
    made = call if kind == "eager" else keras.Model(inputs, call(inputs))
    np.testing.assert_array_equal(get_keras_mask(made(ids)), ids != 0)
    (loss,) = coverage.losses if kind == "eager" else made.losses
    _, weights = attention(embed(ids), embed(ids), return_attention_scores=True)
    words = np.asarray(coverage_loss(weights))[ids != 0]
    assert not np.isclose(words.mean(), np.mean(coverage_loss(weights)))
    np.testing.assert_allclose(loss, 2.0 * words.mean(), rtol=1e-6)


def test_l4_whose_mask_counts_and_whose_goes_on():
    layer, words = kl.CoverageLoss(), [[True, True, False]]
    masked = keras.layers.Lambda(lambda x: x + 0, mask=ops.array(words))
    outputs, weights = ops.ones((1, 3, 2)), ops.array(WEIGHTS)
    for given, mean, goes_on in (
        ((outputs, masked(weights)), 0.25, None),  # as the outputs have none
        ((outputs, weights, np.array(words)), 0.25, None),
        ((masked(outputs), weights), 0.25, words),
        ((masked(outputs), weights, np.ones((1, 3), bool)), 1.25 / 3, words),
    ):
        mask = get_keras_mask(layer(*given))
        assert goes_on == (None if mask is None else np.asarray(mask).tolist())
        np.testing.assert_allclose(layer.losses[-1], mean, rtol=1e-6)


def test_weights_keep_their_precision_in_half():
    layer = kl.CoverageLoss(dtype="mixed_bfloat16")
    layer(ops.ones((1, 300, 2), "bfloat16"), np.full((1, 300, 3), 1 / 3, "float32"))
    np.testing.assert_allclose(layer.losses, [299 / 300], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("input_feeding", [True, False])
def test_a_models_loss_has_it(input_feeding):
    changes = {"units": 6, "dropout": 0.0, "coverage": True}
    changes["input_feeding"] = input_feeding
    models = [build("small", 11, 11, **changes, coverage_loss=x) for x in (0.5, 0.0)]
    models[1].set_weights(models[0].get_weights())
    inputs, labels = batch(), np.array([[4, 5, 6, 3], [6, 3, 0, 0]] * 2)
    inputs["target"][labels == 0] = 0  # padding has no coverage
    weights, logs = (labels != 0) / 12, []
    for model in models:
        model.compile("sgd", kl.SequenceCrossentropy(), metrics=[kl.Perplexity()])
        options = {"sample_weight": weights, "verbose": 0, "return_dict": True}
        logs.append(model.evaluate(inputs, labels, **options))
    words = np.asarray(coverage_loss(stepped(models[0], inputs)[1]))[labels != 0]
    assert words.mean() > 0.01
    found = logs[0]["loss"] - logs[1]["loss"]
    np.testing.assert_allclose(found, words.mean() / 2, rtol=1e-4)
    np.testing.assert_allclose(logs[0]["perplexity"], logs[1]["perplexity"], rtol=1e-5)
    again = kl.Seq2Seq.from_config(models[0].get_config())
    assert again.get_config() == models[0].get_config()
    with pytest.raises(ValueError, match="coverage_loss needs an attention"):
        build("small", 9, 9, coverage_loss=1.0, attention=None)
