"""How many operations a search is made of: exact, and much of a sentence's time."""

import re

import keras
import pytest
import tensorflow as tf
from loop_graphs import loop_bodies, size, total_size, traced

import keras_luong as kl

IDS = tf.TensorSpec([None, None], tf.int32)
ONE = tf.TensorSpec([1, None], tf.int32)


def sizes(find, *signature, **config):
    """Of the search's loop, the largest one; of all."""
    model = kl.Seq2Seq(kl.Seq2SeqConfig(4000, 4000, units=8, **config))
    graphs = traced(lambda *ids: find(model, *ids), *signature)
    return max(size(x.node_def) for x in loop_bodies(graphs)), total_size(graphs)


def test_beam_search():
    assert sizes(kl.BeamSearch(), IDS) == (121, 464)


def test_a_tied_output_layer_adds_one_transpose():
    assert sizes(kl.BeamSearch(), IDS, tie_embeddings="target") == (121, 465)


def test_of_one_sentence():
    assert sizes(kl.BeamSearch(), ONE) == (110, 396)


def test_greedy_search():
    assert sizes(kl.GreedySearch(), IDS) == (121, 458)


@pytest.mark.parametrize(
    "beam_width, ids, expected",
    [
        (5, IDS, (137, 488)),
        (5, ONE, (122, 420)),
        pytest.param(1, IDS, (135, 480), marks=pytest.mark.slow),
    ],
)
def test_as_trained_runs_search(beam_width, ids, expected):
    search = kl.BeamSearch(
        beam_width, max_length=None, length_penalty=1.2, early_stopping="first"
    )
    assert sizes(search, ids) == expected


def test_given_targets():
    assert sizes(kl.decoding.force, IDS, IDS) == (70, 322)


def attentions():
    return {
        "general": kl.LuongAttention("general"),
        "concat": kl.LuongAttention("concat"),
        "local-p": kl.LocalAttention(3, "predictive"),
    }


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "name, cell_type",
    [
        ("general", "lstm"),
        pytest.param("concat", "lstm", marks=pytest.mark.slow),
        pytest.param("local-p", "lstm", marks=pytest.mark.slow),
        pytest.param("general", "gru", marks=pytest.mark.slow),
    ],
)
def test_xla_knows_how_many_rounds_each_loop_of_a_step_makes(name, cell_type):
    """Else it asks the host in every round on a GPU; and each copy is a launch."""
    options = {"num_layers": 2, "cell_type": cell_type}
    encoder = kl.RecurrentEncoder(8, bidirectional=True, **options)
    cell = kl.InputFeedingDecoderCell(8, attentions()[name], **options)
    decoder, bridge = kl.InputFeedingDecoder(cell), kl.StateBridge(cell)
    output = keras.layers.Dense(11)
    source, target = tf.random.normal((3, 7, 4)), tf.random.normal((3, 5, 4))
    mask = tf.sequence_mask([7, 4, 1], 7)

    @tf.function(jit_compile=True)
    def gradients(source, target):
        with tf.GradientTape() as tape:
            memory, *states = encoder(source, mask=mask, training=True)
            start = bridge(states)
            h = decoder(target, memory, mask, initial_state=start, training=True)
            loss = tf.reduce_sum(output(h) ** 2)
        return tape.gradient(loss, tape.watched_variables())

    gradients(source, target)  # makes the weights
    hlo = gradients.experimental_get_compiler_ir(source, target)("optimized_hlo")
    loops = re.findall(r" while\(.*body=%?([\w.\-]+)(.*)", hlo)
    assert len(loops) == 10  # there and back: four of the encoder, one of the decoder
    for body, rest in loops:
        assert "known_trip_count" in rest, body
        operations = re.search(rf"^%?{re.escape(body)} .*?^}}", hlo, re.M | re.S)[0]
        assert 1 <= len(re.findall(r" copy\(", operations)) <= 7, body
