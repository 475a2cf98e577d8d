import keras
import numpy as np
import pytest
import reference_attention as reference
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from leave_slow import slow_but

from keras_luong.layers import (
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    LocalAttention,
    LuongAttention,
)
from keras_luong.layers.local_attention import scatter
from keras_luong.layers.scores import SCORES

MODES = [mode for mode in SCORES if mode != "location"]
UNITS = 4


def data(lengths, positions, queries, seed):
    rng = np.random.default_rng(seed)
    query = rng.uniform(-1, 1, (len(lengths), queries, UNITS)).astype("float32")
    value = rng.uniform(-1, 1, (len(lengths), positions, UNITS)).astype("float32")
    return query, value, np.arange(positions) < np.array(lengths)[:, None]


def randomised(attention, seed, shape=(None, None, UNITS)):
    attention.build(shape, shape)
    rng = np.random.default_rng(seed)
    for weight in attention.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    return attention


def arrays(layer):
    return {w.name: w.numpy().astype("float64") for w in layer.trainable_weights}


def expected(attention, query, value, mask, weights=None):
    """Context and weights by the reference, for the layer's weights or others."""
    mode, weights = attention.score_mode, weights or arrays(attention)
    a = np.zeros((*query.shape[:2], value.shape[1]))
    for b, t in np.ndindex(*query.shape[:2]):
        h, source = query[b, t].astype("float64"), value[b].astype("float64")
        if not isinstance(attention, LocalAttention):
            a[b, t] = reference.global_weights(mode, weights, h, source, mask[b])
            continue
        length = mask[b].sum()
        local_m = attention.alignment == "monotonic"
        p = reference.centre(attention.alignment, weights, h, t, length)
        a[b, t] = reference.local_weights(
            mode,
            weights,
            h,
            source,
            length,
            p,
            attention.window,
            not local_m if attention.gaussian is None else attention.gaussian,
            attention.renormalize,
        )
    return a @ value, a


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    padding=st.integers(0, 3),
    queries=st.integers(1, 6),
    window=st.integers(1, 5),
    kind=st.sampled_from(["global", "monotonic", "predictive"]),
    gaussian=st.sampled_from([None, True, False]),
    renormalize=st.booleans(),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("mode", slow_but(SCORES, "general", "concat", "location"))
def test_equals_the_reference(
    mode, lengths, padding, queries, window, kind, gaussian, renormalize, seed
):
    # The slope of a narrow Gaussian makes much of how float32, all that JAX has unless
    # it is asked, rounds p_t.
    atol = 1e-3 if keras.backend.backend() == "jax" else 1e-12
    if kind == "global" or mode == "location":
        attention = LuongAttention(mode, max_source_length=6, dtype="float64")
    else:
        options = {"gaussian": gaussian, "renormalize": renormalize}
        attention = LocalAttention(window, kind, mode, dtype="float64", **options)
    randomised(attention, seed)
    positions = max(1, max(lengths) + padding)
    query, value, mask = data(lengths, positions, queries, seed)
    query, value = query.astype("float64"), value.astype("float64")
    if kind == "global":  # whose padding may stand anywhere
        mask = np.random.default_rng(seed).permuted(mask, axis=1)
    context, weights = attention(
        query, value, value_mask=mask, return_attention_scores=True
    )
    wanted, a = expected(attention, query, value, mask)
    np.testing.assert_allclose(weights, a, atol=atol)
    np.testing.assert_allclose(context, wanted, atol=atol)


def test_local_m_by_hand():
    """D = 1 in a sentence of 4: the window moves along and stops at the end."""
    value = np.eye(5, dtype="float32")[None]
    query = np.zeros((1, 6, 5), "float32")  # equal scores
    mask = np.array([[True] * 4 + [False]])
    attention = LocalAttention(1, "monotonic", "dot")
    context = attention(query, value, value_mask=mask)
    third = 1 / 3
    rows = [
        [0.5, 0.5, 0, 0, 0],
        [third, third, third, 0, 0],
        [0, third, third, third, 0],
        [0, 0, 0.5, 0.5, 0],
        [0, 0, 0.5, 0.5, 0],  # beyond the sentence: its last word
        [0, 0, 0.5, 0.5, 0],
    ]
    np.testing.assert_allclose(context[0], rows, atol=1e-6)


def test_local_p_by_hand():
    """p_t = S/2 = 2 with D = 2: weights 1/4 over 0..3, times exp(-(s-2)²/2)."""
    value = np.eye(6, dtype="float32")[None]
    query = np.zeros((1, 1, 6), "float32")  # sigmoid(0) = 1/2
    mask = np.array([[True] * 4 + [False] * 2])
    attention = LocalAttention(2, "predictive", "dot")
    context = attention(query, value, value_mask=mask)
    gauss = np.exp([-2.0, -0.5, 0.0, -0.5])
    np.testing.assert_allclose(context[0, 0], [*gauss / 4, 0, 0], atol=1e-6)


@pytest.mark.parametrize("edge", [-50.0, 50.0])
def test_windows_at_both_ends(edge):
    """A saturated sigmoid puts p_t at 0 or at S."""
    attention = LocalAttention(2, "predictive", "dot", gaussian=False)
    query, value, mask = data([7, 3], 8, 1, 0)
    attention.build(query.shape, value.shape)
    attention.position_kernel.assign(np.ones((UNITS, UNITS)))
    attention.position_scale.assign(np.full(UNITS, edge))
    query = np.abs(query)
    _, weights = attention(query, value, value_mask=mask, return_attention_scores=True)
    seen = np.asarray(weights[:, 0]) > 0
    ends = [[0, 1, 2], [0, 1, 2]] if edge < 0 else [[5, 6], [1, 2]]
    assert [list(np.flatnonzero(row)) for row in seen] == ends


def test_scatter_puts_each_weight_in_its_place():
    weights = np.array([[[1.0, 2, 3], [4, 5, 6]]])
    start = np.array([[[-1], [3]]], "int32")
    result = scatter(ops.array(weights), ops.array(start), 5)
    np.testing.assert_array_equal(result, [[[2, 3, 0, 0, 0], [0, 0, 0, 4, 5]]])


def test_positions_may_be_given():
    query, value, mask = data([9, 6], 9, 5, 1)
    attention = LocalAttention(2, "monotonic")
    together = attention(query, value, value_mask=mask)
    for t in range(5):
        alone = attention(
            query[:, t : t + 1], value, value_mask=mask, positions=np.array([[t]])
        )
        np.testing.assert_allclose(alone[:, 0], together[:, t], atol=1e-6)


@pytest.mark.parametrize(
    "input_feeding", [True, pytest.param(False, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("alignment", ["monotonic", "predictive"])
@pytest.mark.parametrize(
    "training", [True, pytest.param(False, marks=pytest.mark.slow)]
)
def test_stepping_equals_teacher_forcing(alignment, input_feeding, training):
    attention = LocalAttention(2, alignment, "concat")
    cell = InputFeedingDecoderCell(UNITS, attention, input_feeding=input_feeding)
    decoder = InputFeedingDecoder(cell)
    inputs, memory, mask = data([7, 3], 8, 6, 2)
    outputs, weights = decoder(
        inputs, memory, mask, return_attention_scores=True, training=training
    )
    prepared = cell.prepare(ops.array(memory), mask)
    beams = np.stack([inputs, inputs[:, ::-1]], 2)  # two unlike hypotheses
    states = cell.initial_states((2, 2))
    for t in range(6):
        h_tilde, states, a = cell(beams[:, t], states, prepared)
        np.testing.assert_allclose(h_tilde[:, 0], outputs[:, t], atol=1e-5)
        np.testing.assert_allclose(a[:, 0], weights[:, t], atol=1e-5)


KINDS = [
    *(("global", mode) for mode in SCORES),
    *((kind, mode) for kind in ("monotonic", "predictive") for mode in MODES),
]


@pytest.mark.parametrize("kind, mode", KINDS)
@pytest.mark.tensorflow
def test_gradients_equal_finite_differences_of_the_reference(kind, mode):
    """The slope of the reference, in float64, along random directions."""
    if kind == "global":
        attention = LuongAttention(mode, max_source_length=6)
    else:
        attention = LocalAttention(2, kind, mode)
    randomised(attention, 3)
    lengths = [7, 3]
    query, value, mask = data(lengths, 8, 3, 4)
    target = np.random.default_rng(5).normal(size=(2, 3, UNITS))
    inputs = [tf.Variable(query), tf.Variable(value)]
    with tf.GradientTape() as tape:
        context = attention(*inputs, value_mask=mask)
        loss = tf.reduce_sum(context * tf.constant(target, "float32"))
    variables = [w.value for w in attention.trainable_weights]
    gradients = tape.gradient(loss, [*inputs, *variables])

    def slope(change, epsilon=1e-6):
        plus, minus = (np.sum(change(s) * target) for s in (epsilon, -epsilon))
        return (plus - minus) / (2 * epsilon)

    rng = np.random.default_rng(6)
    for i, (variable, gradient) in enumerate(
        zip([*inputs, *variables], gradients, strict=True)
    ):
        direction = rng.normal(size=variable.shape)

        def moved(step, i=i, direction=direction):
            tensors = [query.astype("float64"), value.astype("float64")]
            weights = arrays(attention)
            if i < 2:
                tensors[i] = tensors[i] + step * direction
            else:
                weights[attention.trainable_weights[i - 2].name] += step * direction
            return expected(attention, *tensors, mask, weights)[0]

        along = float(np.sum(tf.convert_to_tensor(gradient).numpy() * direction))
        wanted = slope(moved)
        assert abs(along - wanted) < 1e-4 * max(1, abs(wanted)), variable


def test_saved_models_compute_the_same(tmp_path):
    query, value = keras.Input((None, UNITS)), keras.Input((None, UNITS))
    attention = LocalAttention(3, "predictive", gaussian=True, renormalize=True)
    model = keras.Model([query, value], attention(query, value))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x = data([7, 3], 8, 4, 0)[:2]
    np.testing.assert_array_equal(model.predict(x), again.predict(x))


def test_dropout_is_one_row_for_all_queries():
    attention = LocalAttention(4, "monotonic", "dot", dropout=0.5, seed=0)
    query, value, _ = data([9], 9, 5, 0)
    query[:] = 0
    value = np.eye(9, dtype="float32")[None, :, :]
    query = np.zeros((1, 5, 9), "float32")
    kept = np.asarray(attention(query, value, training=True)) > 0
    inside = np.abs(np.arange(9) - np.arange(5)[:, None]) <= 4
    row = kept.any(axis=1)[0]
    np.testing.assert_array_equal(kept[0], inside & row)
    assert 0 < row.sum() < 9


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"window": 0}, ValueError, "window.*0"),
        ({"window": 2.5}, TypeError, "window.*2.5"),
        ({"alignment": "local-p"}, ValueError, "alignment.*predictive.*'local-p'"),
        ({"score_mode": "location"}, ValueError, "location"),
        ({"gaussian": "yes"}, TypeError, "gaussian.*'yes'"),
        ({"renormalize": 1}, TypeError, "renormalize.*1"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        LocalAttention(**arguments)


def test_a_source_without_positions_is_refused():
    with pytest.raises(ValueError, match=r"at least one position.*\(2, 0, 4\)"):
        LocalAttention(3)(np.ones((2, 3, UNITS)), np.ones((2, 0, UNITS)))


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "alignment", slow_but(["monotonic", "predictive"], "monotonic")
)
def test_l13_keras_exports_it_to_litert_without_flex(alignment, tmp_path):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    inputs = keras.Input((3, UNITS)), keras.Input((5, UNITS))
    attention = LocalAttention(2, alignment, normalizer="sparsemax")
    model = keras.Model(inputs, attention(*inputs, use_causal_mask=True))
    path = tmp_path / "model.tflite"
    model.export(path, format="litert", verbose=False)
    assert b"Flex" not in path.read_bytes()
    lite = interpreter.Interpreter(str(path))
    lite.allocate_tensors()
    arrays = {3: data([5], 5, 3, 0)[0], 5: data([5], 5, 3, 0)[1]}
    for detail in lite.get_input_details():
        lite.set_tensor(detail["index"], arrays[detail["shape"][1]])
    lite.invoke()
    result = lite.get_tensor(lite.get_output_details()[0]["index"])
    np.testing.assert_allclose(result, model([arrays[3], arrays[5]]), atol=1e-6)


def test_a_query_sees_of_its_window_what_its_mask_says():
    query, value, _ = data([9, 9], 9, 4, 0)
    allowed = np.random.default_rng(0).random((2, 4, 9)) < 0.6
    attention = randomised(LocalAttention(2, "predictive", "concat"), 0)
    _, weights = attention(
        query, value, attention_mask=allowed, return_attention_scores=True
    )
    for b, t in np.ndindex(2, 4):
        h, source = query[b, t].astype("float64"), value[b].astype("float64")
        p = reference.centre("predictive", arrays(attention), h, t, 9)
        a = reference.local_weights(
            "concat", arrays(attention), h, source, 9, p, 2, True, False, allowed[b, t]
        )
        np.testing.assert_allclose(weights[b, t], a, atol=1e-6)
