"""Several sources: each attention's own answer, side by side."""

import decoding_attentions as checks
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_luong.layers import (
    AttentionWrapper,
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    LocalAttention,
    LuongAttention,
    MonotonicAttention,
    MultiSourceAttention,
)
from keras_luong.layers.scores import SCORES

UNITS, WIDTH = 4, 3
rng = np.random.default_rng(0)
INPUTS = rng.normal(size=(2, 5, WIDTH)).astype("float32")
SOURCES = [
    rng.normal(size=(2, 6, UNITS)).astype("float32"),
    rng.normal(size=(2, 7, 2)).astype("float32"),
]
MASKS = [np.arange(6) < np.array([[6], [3]]), np.arange(7) < np.array([[2], [7]])]


def make():
    """Two kinds; the second remembers, the first does not."""
    return MultiSourceAttention([LuongAttention("dot"), MonotonicAttention("general")])


CELLS = {
    "fed": lambda: InputFeedingDecoderCell(UNITS, make()),
    "wrapped": lambda: AttentionWrapper(keras.layers.GRUCell(UNITS), make()),
    "not fed": lambda: InputFeedingDecoderCell(
        UNITS,
        MultiSourceAttention([LuongAttention("dot"), LuongAttention("general")]),
        input_feeding=False,
    ),
}


def test_it_is_each_attention_side_by_side():
    query = rng.normal(size=(2, 3, UNITS)).astype("float32")
    seen = np.array([[True, True, False], [True, True, True]])
    attention = make()
    context, weights = attention(
        query,
        SOURCES,
        query_mask=seen,
        value_mask=MASKS,
        return_attention_scores=True,
    )
    each = [
        one(query, x, query_mask=seen, value_mask=m, return_attention_scores=True)
        for one, x, m in zip(attention.attentions, SOURCES, MASKS, strict=True)
    ]
    contexts, alignments = zip(*each, strict=True)
    np.testing.assert_allclose(context, np.concatenate(contexts, -1), atol=1e-6)
    np.testing.assert_allclose(weights, np.concatenate(alignments, -1), atol=1e-6)


@pytest.mark.parametrize("cell", CELLS)
def test_decoders_read_several_sources_as_they_step(cell):
    decoder = InputFeedingDecoder(CELLS[cell]())
    outputs, weights, *states = decoder(
        INPUTS, SOURCES, MASKS, return_attention_scores=True, return_state=True
    )
    assert weights.shape == (2, 5, 13)
    assert cell == "not fed" or states[-2].shape == (2, 7)
    cell = decoder.cell
    prepared = cell.prepare([ops.array(x) for x in SOURCES], MASKS)
    states = cell.initial_states((2, 1), memory=prepared)
    for t in range(5):
        output, states, a = cell(INPUTS[:, t : t + 1], states, prepared)
        np.testing.assert_allclose(output[:, 0], outputs[:, t], atol=1e-5)
        np.testing.assert_allclose(a[:, 0], weights[:, t], atol=1e-5)
    words = np.concatenate(MASKS, axis=1)
    assert np.all(np.where(words[:, None], 0, weights) == 0)


@pytest.mark.tensorflow
def test_training_in_a_graph_computes_what_inference_does():
    decoder = InputFeedingDecoder(CELLS["fed"]())
    sources = [tf.constant(x) for x in SOURCES]
    expected = decoder(INPUTS, sources, MASKS)

    @tf.function
    def run(sources):
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs = decoder(INPUTS, sources, MASKS, training=True)
        return outputs, tape.gradient(outputs, [*decoder.trainable_weights, *sources])

    outputs, gradients = run(sources)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    assert all(np.abs(g).max() > 0 for g in gradients)


def test_each_attention_drops_in_its_own_source():
    attention = MultiSourceAttention(
        [LuongAttention("dot", dropout=0.5), LocalAttention(2, dropout=0.0)]
    )
    cell = InputFeedingDecoderCell(
        UNITS, attention, input_feeding=False, use_attentional_vector=False
    )
    decoder = InputFeedingDecoder(cell)
    calm = ops.convert_to_numpy(decoder(INPUTS, SOURCES, MASKS))
    dropped = ops.convert_to_numpy(decoder(INPUTS, SOURCES, MASKS, training=True))
    changes = np.abs(calm - dropped).max((0, 1))
    assert changes[:UNITS].max() > 1e-3
    np.testing.assert_allclose(changes[UNITS:], 0, atol=1e-6)


def test_saved_models_compute_the_same(tmp_path):
    inputs = keras.Input((None, WIDTH))
    sources = [keras.Input((None, UNITS)), keras.Input((None, 2))]
    decoder = InputFeedingDecoder(CELLS["fed"]())
    results = decoder(inputs, sources, return_state=True, return_attention_scores=True)
    model = keras.Model([inputs, *sources], list(results))
    model.save(tmp_path / "multi.keras")
    loaded = keras.models.load_model(tmp_path / "multi.keras")
    batch = [INPUTS, *SOURCES]
    for x, y, like in zip(model(batch), loaded(batch), results, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
        assert len(x.shape) == len(like.shape)
    attention = make()
    again = MultiSourceAttention.from_config(attention.get_config())
    assert again.get_config() == attention.get_config()


@pytest.mark.parametrize(
    "memory, mask, message",
    [
        (SOURCES[0], None, "memory must be a list of 2.*Received: one tensor"),
        (SOURCES[:1], None, "memory must be a list of 2.*Received: a list of 1"),
        (SOURCES, MASKS[0], "memory_mask must be a list of 2"),
        (SOURCES, MASKS[::-1], "Length of source 0 must be the same"),
        ([SOURCES[0], SOURCES[1][:1]], None, "Batch size"),
        ([SOURCES[0], SOURCES[1][0]], None, r"memory\[1\] must have 3 axes"),
    ],
)
def test_sources_that_do_not_fit_are_named(memory, mask, message):
    decoder = InputFeedingDecoder(CELLS["fed"]())
    decoder(INPUTS, SOURCES)
    with pytest.raises(ValueError, match=message):
        decoder(INPUTS, memory, memory_mask=mask)


def test_query_and_sources_in_one_list_say_how_to_call_it():
    attention = MultiSourceAttention([LuongAttention()])
    for _ in "unbuilt", "built":
        with pytest.raises(ValueError, match=r"attention\(query, \[source_1"):
            attention([INPUTS, SOURCES[0]])
        attention(INPUTS, SOURCES[:1])
    decoder = InputFeedingDecoder(InputFeedingDecoderCell(UNITS, LuongAttention()))
    with pytest.raises(ValueError, match="memory must be one tensor.*a list of 2"):
        decoder(INPUTS, SOURCES)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("first", sorted(checks.KINDS.keys() - SCORES.keys()))
@settings(max_examples=3)
@given(
    second=st.sampled_from(sorted(checks.KINDS)),
    feeding=st.booleans(),
    masked=st.sets(st.sampled_from(["source", "target"])),
    dtype=st.sampled_from(list(checks.NEAR)),
)
def test_any_two_attentions_under_xla(first, second, feeding, masked, dtype):
    def make():
        attention = MultiSourceAttention(
            [checks.KINDS[kind]() for kind in (first, second)]
        )
        cell = InputFeedingDecoderCell(UNITS, attention, input_feeding=feeding)
        return InputFeedingDecoder(cell)

    sources = [checks.MEMORY, checks.MEMORY[:, ::-1][:, :5]]
    source_masks = [checks.MASK, checks.MASK[:, :5]] if "source" in masked else None
    target_mask = checks.WORDS if "target" in masked else None
    checks.check_xla(make, sources, source_masks, target_mask, dtype)
