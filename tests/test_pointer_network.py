import keras
import numpy as np
import pytest
from finite_differences import check_gradients
from keras import ops
from leave_slow import slow_but

import keras_luong as kl

IDS = {"bos_id": 0, "eos_id": 0, "pad_id": 0}
B, S, T, F, H = 3, 5, 4, 2, 6
TARGETS = np.array([[0, 2, 5, 1], [0, 3, 1, 0], [0, 1, 4, 2]])
MASK = np.arange(S) < np.array([5, 3, 4])[:, None]
tensorflow_only = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow's"
)


def loud(seed):
    """So that different sources have different answers."""
    return keras.initializers.RandomNormal(stddev=1.0, seed=seed)


def network(units=H, glimpse=None, dtype=None, **options):
    cell = kl.InputFeedingDecoderCell(
        units, glimpse, dtype=dtype, kernel_initializer=loud(1)
    )
    attention = kl.LuongAttention("concat", kernel_initializer=loud(2), dtype=dtype)
    return kl.PointerNetwork(cell, attention, dtype=dtype, **options)


class Pointer(keras.Model):
    """Reads features [B, S, F]; points at their positions."""

    def __init__(self, units=H, glimpse=None):
        super().__init__()
        self.encoder = kl.RecurrentEncoder(units, kernel_initializer=loud(3))
        self.pointer = network(units, glimpse)

    def call(self, inputs):
        memory, *state = self.encoder(inputs["source"])
        return self.pointer(
            inputs["target"], memory, inputs=inputs["source"], initial_state=state
        )

    def encode(self, source):
        memory, *state = self.encoder(source)
        return self.pointer.encode(memory, inputs=source, initial_state=state)

    def step(self, tokens, state, memory):
        return self.pointer.step(tokens, state, memory)


def features(count=B, length=S, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, length, F)).astype("float32")


def memory_and_state(seed=0):
    rng = np.random.default_rng(seed)
    memory = rng.normal(size=(B, S, H)).astype("float32")
    state = [rng.normal(size=(B, H)).astype("float32") for _ in range(2)]
    return memory, state


def test_equation_3():
    """Keras's own LSTM cell, and `vᵀ tanh(W_1 e_s + W_2 d_t)` in NumPy."""
    layer, (memory, state) = network(), memory_and_state()
    inputs = features()
    logits = layer(TARGETS, memory, MASK, inputs, state)
    begin, end = (np.asarray(x)[None].repeat(B, 0) for x in (layer.begin, layer.end))
    read = np.concatenate([begin, inputs], 1)
    read = np.stack([read[b][TARGETS[b]] for b in range(B)])
    decoder = kl.InputFeedingDecoder(layer.cell)
    d = np.asarray(decoder(read, memory, memory_mask=MASK, initial_state=state))
    e = np.concatenate([end, memory], 1)
    score = layer.attention.score
    W_1, W_2, v = (
        np.asarray(x) for x in (score.value_kernel, score.query_kernel, score.scale)
    )
    expected = np.tanh((e @ W_1)[:, None] + (d @ W_2)[:, :, None]) @ v
    there = np.concatenate([np.ones((B, 1), bool), MASK], 1)[:, None].repeat(T, 1)
    found = ops.convert_to_numpy(logits)
    np.testing.assert_allclose(found[there], expected[there], atol=1e-5)
    assert (found[~there] < -1e38).all() and np.isfinite(found).all()


@pytest.mark.parametrize("glimpse", [False, True])
@pytest.mark.parametrize("own_inputs", [False, True])
def test_steps_are_the_whole_sequence(glimpse, own_inputs):
    layer = network(glimpse=kl.LuongAttention("dot") if glimpse else None)
    memory, state = memory_and_state()
    inputs = features() if own_inputs else None
    whole = ops.convert_to_numpy(layer(TARGETS, memory, MASK, inputs, state))
    prepared, states = layer.encode(memory, MASK, inputs, state)
    for t in range(T):
        logits, states, weights = layer.step(TARGETS[:, t : t + 1], states, prepared)
        logits = ops.convert_to_numpy(logits)[:, 0]
        there = np.isfinite(logits)
        np.testing.assert_array_equal(there[:, 1:], MASK)
        np.testing.assert_allclose(logits[there], whole[:, t][there], atol=1e-5)
        p = np.where(there, np.exp(logits - logits.max(-1, keepdims=True)), 0)
        p = p / p.sum(-1, keepdims=True)
        np.testing.assert_allclose(weights[:, 0], p[:, 1:], atol=1e-5)


def test_steps_find_the_mask_of_the_memory():
    layer = network(glimpse=kl.LuongAttention("dot"))
    ids = np.arange(1, S + 1) * MASK
    memory = keras.layers.Embedding(S + 1, H, mask_zero=True)(ids)
    whole = layer(TARGETS[:, :1], memory)
    prepared, states = layer.encode(memory)
    logits, *_ = layer.step(TARGETS[:, :1], states, prepared)
    np.testing.assert_array_equal(np.isfinite(logits)[:, 0, 1:], MASK)
    there = np.isfinite(logits)
    np.testing.assert_allclose(
        np.asarray(logits)[there], np.asarray(whole)[there], atol=1e-5
    )


def test_padding_does_not_matter():
    layer, (memory, state) = network(), memory_and_state()
    whole = ops.convert_to_numpy(layer(TARGETS % 4, memory, MASK, None, state))
    alone = layer(
        TARGETS[1:2] % 4, memory[1:2, :3], initial_state=[x[1:2] for x in state]
    )
    np.testing.assert_allclose(whole[1:2, :, :4], alone, atol=1e-5)
    spoilt = np.where(MASK[..., None], memory, np.nan)
    again = layer(TARGETS % 4, spoilt, MASK, None, state)
    np.testing.assert_allclose(again[1], whole[1], atol=1e-5)


@tensorflow_only
@pytest.mark.slow
def test_gradients_are_slopes():
    layer, (memory, state) = network(), memory_and_state()
    memory = keras.Variable(memory)
    labels = np.array([[2, 5, 1, 0], [3, 1, 0, 0], [1, 4, 2, 0]])
    layer(TARGETS, memory, MASK, None, state)

    def loss():
        logits = layer(TARGETS, memory, MASK, None, state)
        return ops.sum(
            ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        )

    check_gradients(loss, [memory, *layer.trainable_weights], 5e-3, 2e-2)


@tensorflow_only
@pytest.mark.slow
def test_xla():
    import tensorflow as tf

    layer, (memory, state) = network(), memory_and_state()
    expected = layer(TARGETS, memory, MASK, None, state)
    compiled = tf.function(
        lambda *x: layer(x[0], x[1], MASK, None, list(x[2:])),
        jit_compile=True,
        autograph=False,
    )
    found = compiled(*map(tf.constant, (TARGETS, memory, *state)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "dtype",
    # JAX has no float64 unless it is told to.
    ["mixed_bfloat16", pytest.param("float64", marks=pytest.mark.tensorflow)],
)
def test_precisions(dtype):
    exact, other = network(), network(dtype=dtype)
    memory, state = memory_and_state()
    expected = exact(TARGETS, memory, MASK, None, state)
    other(TARGETS, memory, MASK, None, state)
    other.set_weights(exact.get_weights())
    found = other(TARGETS, memory, MASK, None, state)
    wanted = "float64" if dtype == "float64" else "float32"
    assert keras.backend.standardize_dtype(found.dtype) == wanted
    np.testing.assert_allclose(
        ops.softmax(found),
        ops.softmax(expected),
        atol=0.1 if wanted[-2:] == "32" else 1e-5,
    )


def functional(glimpse=None):
    source = keras.Input((None, F))
    target = keras.Input((None,), dtype="int32")
    memory, *state = kl.RecurrentEncoder(H)(source)
    logits = network(glimpse=glimpse)(
        target, memory, inputs=source, initial_state=state
    )
    return keras.Model([source, target], logits)


@pytest.mark.parametrize("glimpse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_in_a_functional_model_that_is_saved(glimpse, tmp_path):
    model = functional(kl.LuongAttention("dot") if glimpse else None)
    assert model.output_shape == (None, None, None)
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    given = [features(), TARGETS]
    np.testing.assert_allclose(again(given), model(given), atol=1e-6)


def test_config():
    config = network(name="here").get_config()
    again = kl.PointerNetwork.from_config(config)
    assert again.get_config() == config and again.name == "here"
    assert again.attention.score_mode == "concat"


def exhaustive(model, source, limit):
    """Every sequence of one source with its log-probability, the best first."""
    memory, state = model.encode(source)
    found = []

    def extend(ids, total, before, state):
        logits, state, _ = model.step(np.array([[before]]), state, memory)
        log_probs = ops.convert_to_numpy(ops.log_softmax(logits))[0, 0]
        for position, log_prob in enumerate(log_probs):
            longer, now = [*ids, position], total + float(log_prob)
            if position == 0:
                found.append((-now, longer))
            elif len(longer) < limit:
                extend(longer, now, position, state)

    extend([], 0.0, 0, state)
    return [(ids, -total) for total, ids in sorted(found)]


@tensorflow_only
def test_beam_search_as_wide_as_the_space_is_exhaustive():
    model, source = Pointer(), features(1, 3)
    best = exhaustive(model, source, 4)[:5]
    found = kl.generate(model, source, beam_width=64, n_best=5, max_length=4, **IDS)
    for n, (ids, log_prob) in enumerate(best):
        length = int(found.lengths[0, n])
        assert found.ids[0, n, :length].numpy().tolist() == ids
        np.testing.assert_allclose(found.log_probs[0, n], log_prob, atol=1e-4)


SEARCHES = {
    "beam": kl.BeamSearch(4, max_length=7, **IDS),
    "no repetition": kl.BeamSearch(4, max_length=7, no_repeat_ngram=1, **IDS),
    "many forbidden": kl.BeamSearch(
        3, max_length=7, forbidden=tuple(range(3, 30)), **IDS
    ),
    "greedy": kl.GreedySearch(7, **IDS),
    "top k": kl.RandomSampling(top_k=3, max_length=7, seed=1, **IDS),
    "top p": kl.RandomSampling(top_p=0.8, max_length=7, seed=1, **IDS),
}


@tensorflow_only
@pytest.mark.parametrize("name", slow_but(SEARCHES, "top p"))
def test_searches_where_the_graph_does_not_know_how_many_ids_there_are(name):
    import tensorflow as tf

    model, search = Pointer(), SEARCHES[name]
    find = tf.function(
        lambda x: search(model, x),
        input_signature=[tf.TensorSpec([None, None, F])],
        autograph=False,
    )
    for length in (6, 1, 3):
        source = features(2, length)
        expected, found = search(model, source), find(source)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.log_probs, expected.log_probs, atol=1e-4)
        assert found.ids.numpy().max() <= length
        if name == "no repetition":
            for row in found.ids[:, 0].numpy():
                pointed = row[row > 0].tolist()
                assert len(pointed) == len(set(pointed))
        if name == "many forbidden":
            assert found.ids.numpy().max() <= 2


@tensorflow_only
@pytest.mark.slow
def test_a_prefix_where_the_graph_does_not_know_how_many_ids_there_are():
    import tensorflow as tf

    model, search = Pointer(), SEARCHES["beam"]
    spec = [tf.TensorSpec([None, None, F]), tf.TensorSpec([None, 2], tf.int32)]
    find = tf.function(
        lambda x, p: search(model, x, p), input_signature=spec, autograph=False
    )
    found = find(features(2, 4), np.array([[3, 2], [4, 0]], "int32"))
    np.testing.assert_array_equal(found.ids[0, 0, :2], [3, 2])
    assert found.ids[1, 0, 0] == 4


@tensorflow_only
@pytest.mark.slow
def test_exports_say_what_keras_says(tmp_path):
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    source = features(1)
    search = kl.BeamSearch(3, max_length=6, no_repeat_ngram=1, **IDS)
    generator = kl.SequenceGenerator(Pointer(), tf.TensorSpec([None, S, F]), search)
    expected = generator(source)
    kl.export_saved_model(generator, tmp_path / "saved", version=1)
    loaded = tf.saved_model.load(tmp_path / "saved" / "1")
    served = loaded.signatures["serving_default"](source=tf.constant(source))
    np.testing.assert_array_equal(served["ids"], expected.ids)
    kl.export_tflite(generator, tmp_path / "m.tflite")
    interpreter = Interpreter(str(tmp_path / "m.tflite"))
    runner = interpreter.get_signature_runner()
    said = runner(source=source)
    np.testing.assert_array_equal(
        said["ids"][..., : expected.ids.shape[2]], expected.ids
    )


@tensorflow_only
@pytest.mark.slow
def test_it_learns_to_sort():
    keras.utils.set_random_seed(1)
    numbers = np.random.default_rng(0).random((4000, 5, 1)).astype("float32")
    order = np.argsort(numbers[..., 0], 1) + 1
    labels = np.pad(order, [[0, 0], [0, 1]])
    targets = np.pad(order, [[0, 0], [1, 0]])
    model = Pointer(32)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    model.fit({"source": numbers, "target": targets}, labels, 100, epochs=12, verbose=0)
    held_out = np.random.default_rng(1).random((100, 5, 1)).astype("float32")
    search = kl.BeamSearch(4, max_length=6, no_repeat_ngram=1, **IDS)
    found = kl.generate(model, held_out, search).ids[:, 0, :5] - 1
    right = np.mean(found == np.argsort(held_out[..., 0], 1))
    assert right > 0.9, right


def test_errors():
    cell = kl.InputFeedingDecoderCell(4, attention=None)
    with pytest.raises(TypeError, match="without coverage.*Received: <LuongAttention"):
        kl.PointerNetwork(cell, kl.LuongAttention(coverage=True))
    with pytest.raises(TypeError, match="Received: <LocalAttention"):
        kl.PointerNetwork(cell, kl.LocalAttention())
    with pytest.raises(TypeError, match="cell must be a DecoderCell"):
        kl.PointerNetwork(keras.layers.LSTMCell(4))
    with pytest.raises(TypeError, match="targets must be ids.*targets.dtype=float32"):
        network()(TARGETS.astype("float32"), memory_and_state()[0])
    with pytest.raises(ValueError, match="Source length.*inputs"):
        network()(TARGETS, memory_and_state()[0], inputs=features(length=S + 1))
