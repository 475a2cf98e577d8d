"""Phrases that must occur, in any spelling; `test_beam` has them in every search."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import tensorflow as tf
from brute_force import SOURCES, TableModel, constraints, missing, padded

from keras_luong.decoding import BeamSearch, Constraints, Shortlist
from keras_luong.decoding.lexical import unmet_by
from keras_luong.special_ids import PAD_ID

AMBIGUOUS = ["", "u", "", "", " a", " ab", " b", "b", "a-"]
TEXTS = AMBIGUOUS, None, "| u||| a| b| c|d|e".split("|")


@pytest.mark.parametrize(
    "seed", [pytest.param(i, marks=[pytest.mark.slow] * (i > 5)) for i in range(40)]
)
def test_what_fits_occurs_in_every_hypothesis(seed):
    random = Random(seed)
    # Words that go on: (4, 7) is a longer word than (4,), which it begins with.
    rows = [
        [
            (*random.choices([4, 5, 6], k=random.randint(1, 3)),)
            + (*random.choices([4, 7, 8], k=random.randint(0, 2)),)
            for _ in range(random.randint(0, 3))
        ]
        for _ in SOURCES
    ]
    texts = TEXTS[seed % 3]
    limit = max(1, *(sum(map(len, row)) for row in rows)) + random.randint(0, 3)
    model, width = TableModel(seed, vocabulary=9), random.randint(1, 6)
    search, must = BeamSearch(width, width, limit, 0.6), constraints(rows, texts)
    hypotheses = search(model, SOURCES, constraints=must)
    assert (hypotheses.lengths[:, 0].numpy() > 0).all()
    lacks = unmet_by(must, hypotheses.ids, PAD_ID).numpy()
    for row, ids in enumerate(hypotheses.ids.numpy()):
        for n, length in enumerate(hypotheses.lengths[row].numpy()):
            if length:
                assert missing(ids[n, :length].tolist(), rows[row], texts) == 0
                assert not lacks[row, n].any()
    must = Constraints(padded(rows[1:2]), must.spelling)
    alone = search(model, SOURCES[1:2], constraints=must)
    ids = hypotheses.ids[1].numpy()[:, : alone.ids.shape[2]]
    np.testing.assert_array_equal(ids, alone.ids[0].numpy())
    # Sums may differ in the last bit with another number of rows.
    np.testing.assert_allclose(hypotheses.scores[1], alone.scores[0], atol=1e-5)


def test_without_phrases_it_is_the_ordinary_search():
    model, search = TableModel(0, vocabulary=9), BeamSearch(5, 5, 7, 0.6)
    for shape in ((3, 0, 0), (3, 2, 1)):
        must = constraints([], AMBIGUOUS)._replace(ids=np.zeros(shape, "int32"))
        found = search(model, SOURCES, constraints=must)
        for x, y in zip(search(model, SOURCES), found, strict=True):
            np.testing.assert_array_equal(x, y)


class Listed(TableModel):
    """Can be restricted, to any words or to all but some that become impossible."""

    def __init__(self, *args, words=slice(None), allowed=None):
        super().__init__(*args)
        self.args, self.words, self.allowed = args, words, allowed

    def restricted(self, ids, allowed):
        return Listed(*self.args, words=ids, allowed=allowed)

    def step(self, tokens, state, memory):
        logits, *rest = super().step(tokens, state, memory)
        if self.allowed is None:
            return logits, *rest
        logits = tf.gather(logits, self.words, axis=2)
        return tf.where(self.allowed[:, None], logits, -np.inf), *rest


@pytest.mark.parametrize("texts", [None, [""] * 9 + "| c| d| dc".split("|")])
def test_phrases_of_words_on_a_list_are_those_of_a_model_without_the_others(texts):
    """The last word of all, too; and the end token may be beyond the list's size."""
    shortlist = Shortlist([4, 5], [[0]] * 10, 12, eos_id=9, unk_id=1)
    rows = [((11,), (10,))] * 3
    search = BeamSearch(4, 3, 6, 0.6, eos_id=9, compact=False)
    listed = BeamSearch(4, 3, 6, 0.6, eos_id=9, compact=False, shortlist=shortlist)
    words = tf.constant([0, 1, 2, 4, 5, 9, 10, 11])
    only = np.isin(np.arange(12), words)
    bare = Listed(1, 12)
    without = Listed(1, 12, words=tf.range(12), allowed=tf.constant([only] * 3))
    must = constraints(rows, texts)
    found = listed(bare, SOURCES, constraints=must)
    expected = search(without, SOURCES, constraints=must)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    assert (found.lengths[:, 0].numpy() >= 3).all()


def test_what_is_forbidden_stays_so():
    model, must = TableModel(4, vocabulary=9), constraints([[(4,), (5,)]] * 3)
    found = BeamSearch(3, 1, 6, forbidden=(4,))(model, SOURCES, constraints=must)
    for tokens in found.ids[:, 0].numpy().tolist():
        assert 5 in tokens and 4 not in tokens


@pytest.mark.parametrize("shape", [(3, 2), (2, 1, 1), (3, 1, 1, 1)])
def test_constraints_of_a_wrong_shape(shape):
    must = Constraints(np.ones(shape, "int32"))
    with pytest.raises(ValueError, match=r"row of phrases .*Received: \("):
        BeamSearch(2)(TableModel(0), SOURCES, constraints=must)


def test_a_phrase_is_met_by_any_tokens_that_write_it():
    texts = ["", "u", "", "", " a", "b", " ab", "\u201eab\u201c", "ab", "\u0301", "-ab"]
    met = [[6, 3], [4, 5, 3], [7, 3], [8, 3], [4, 8, 6], [8, 10], [10, 6, 8], [99]]
    lacking = [[6, 5, 3], [5, 8], [4, 8, 3], [4, 3], [6, 9]]
    ids = tf.ragged.constant([[*met, *lacking]]).to_tensor(PAD_ID)
    lacks = unmet_by(constraints([[(6,)]], texts), ids, PAD_ID)[0, :, 0].numpy()
    assert lacks.tolist() == [False] * len(met) + [True] * len(lacking)
    # Twice is twice.
    lacks = unmet_by(constraints([[(6,)] * 2], texts), ids, PAD_ID)[0, :, 1].numpy()
    assert np.flatnonzero(~lacks).tolist() == [5]


@pytest.mark.slow
@pytest.mark.parametrize(("count", "n_best"), [(1, 1), (3, 1), (3, 3)])
def test_a_graph_of_known_shape_and_phrases(count, n_best):
    """TensorFlow once inferred the shapes of such a loop without an end."""
    model, rows = TableModel(0, vocabulary=9), [[(4, 5), (6,)], [(4, 5, 6)], [(8,)]]
    must = constraints(rows[:count], AMBIGUOUS)
    search, sources = BeamSearch(4, n_best, 7, 0.6), tf.constant(SOURCES[:count])

    def find(ids, phrases):
        known = must if count == 1 else must._replace(ids=phrases)
        return search(model, ids, constraints=known)

    specs = [tf.TensorSpec([None] * n, tf.int32) for n in (2, 3)] if count > 1 else None
    graph = tf.function(find, input_signature=specs, autograph=False)
    found = search(model, sources, constraints=must)
    for x, y in zip(graph(sources, must.ids), found, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
