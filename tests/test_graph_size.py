"""How many operations a search is made of: exact, and much of a sentence's time."""

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
    assert sizes(kl.BeamSearch(), IDS) == (130, 479)


def test_a_tied_output_layer_adds_one_transpose():
    assert sizes(kl.BeamSearch(), IDS, tie_embeddings="target") == (130, 480)


def test_of_one_sentence():
    assert sizes(kl.BeamSearch(), ONE) == (119, 411)


def test_greedy_search():
    assert sizes(kl.GreedySearch(), IDS) == (130, 473)


@pytest.mark.parametrize(
    "beam_width, ids, expected",
    [
        (5, IDS, (146, 503)),
        (5, ONE, (131, 435)),
        pytest.param(1, IDS, (144, 495), marks=pytest.mark.slow),
    ],
)
def test_as_trained_runs_search(beam_width, ids, expected):
    search = kl.BeamSearch(
        beam_width, max_length=None, length_penalty=1.2, early_stopping="first"
    )
    assert sizes(search, ids) == expected


def test_given_targets():
    assert sizes(kl.decoding.force, IDS, IDS) == (79, 337)
