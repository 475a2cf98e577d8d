"""Begin, end and padding ids of any model, two or three of which may be one."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from leave_slow import slow_but
from own_models import VOCABULARY, Captioner, exhaustive, images

import keras_luong as kl
from keras_luong.decoding import force
from keras_luong.runs.run import read_record, write_record

NAMES = "bos_id", "eos_id", "pad_id"
CASES = {
    **{"tfa's": (1, 2, 0), "padding ends": (3, 0, 0), "the end begins": (2, 2, 0)},
    **{"padding begins": (0, 1, 0), "one for all": (4, 4, 4)},
    "padding is the last": (0, 1, 5),
}
CASES = {name: dict(zip(NAMES, ids, strict=True)) for name, ids in CASES.items()}
every_case = pytest.mark.parametrize("ids", CASES.values(), ids=CASES)
some_cases = pytest.mark.parametrize("name", slow_but(CASES, "tfa's", "padding ends"))


class Speller:
    """Says the word that the source is, and the end; the state counts the letters."""

    def __init__(self, ids):
        self.ids = ids

    def encode(self, source):
        return source, tf.zeros([tf.shape(source)[0], 1], tf.int32)

    def step(self, tokens, state, memory):
        first = tokens == self.ids["bos_id"]
        tf.debugging.assert_equal(first | (state > 0), tf.ones_like(first))
        word = tf.pad(memory, [[0, 0], [0, 9]], constant_values=self.ids["eos_id"])
        word = tf.where(word == self.ids["pad_id"], self.ids["eos_id"], word)
        letters = tf.gather(word, state, batch_dims=1)
        return 9 * tf.one_hot(letters, 9), state + 1, None


SEARCHES = (
    kl.GreedySearch(6),
    kl.BeamSearch(3, max_length=6),
    kl.BeamSearch(3, max_length=6, compact=False, early_stopping=False),
    kl.RandomSampling(top_k=1, max_length=6),
)


@every_case
@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_a_model_that_spells_is_heard(search, ids):
    end, pad = ids["eos_id"], ids["pad_id"]
    words = [[7, 8, 6], [6, pad, pad], [8, 7, pad]]
    found = dataclasses.replace(search, **ids)(Speller(ids), tf.constant(words))
    assert found.lengths[:, 0].numpy().tolist() == [4, 2, 3]
    said = [[7, 8, 6, end], [6, end, pad, pad], [8, 7, end, pad]]
    assert found.ids[:, 0].numpy().tolist() == said


@every_case
def test_no_maximum_length_counts_what_is_not_padding(ids):
    class Endless(Speller):
        def step(self, tokens, state, memory):
            return 9 * tf.one_hot(tf.zeros_like(tokens) + 7, 9), state + 1, None

    source = tf.constant([[7, 8, 6], [6, ids["pad_id"], ids["pad_id"]]])
    for kind in (kl.GreedySearch, partial(kl.RandomSampling, top_k=1)):
        found = kind(max_length=None, **ids)(Endless(ids), source)
        assert found.lengths[:, 0].numpy().tolist() == [16, 12]


@pytest.mark.parametrize("name", slow_but(CASES, "padding ends"))
def test_as_wide_as_the_space_it_is_exhaustive(name):
    """And forced decoding of what it finds agrees with it."""
    ids, model, source = CASES[name], Captioner(), images(2)
    found = kl.BeamSearch(150, n_best=20, max_length=3, **ids)(model, source)
    for row in range(2):
        expected = exhaustive(model, source[row : row + 1], 3, **ids)[:20]
        for n, (tokens, log_prob) in enumerate(expected):
            length = found.lengths[row, n]
            assert found.ids[row, n, :length].numpy().tolist() == tokens
            assert (found.ids[row, n, length:] == ids["pad_id"]).numpy().all()
            np.testing.assert_allclose(found.scores[row, n], log_prob, atol=1e-4)
    found = kl.BeamSearch(4, max_length=5, **ids)(model, source)
    forced = force(model, source, found.ids[:, 0], **ids)
    np.testing.assert_array_equal(forced.ids, found.ids)
    np.testing.assert_array_equal(forced.lengths, found.lengths)
    np.testing.assert_allclose(forced.log_probs, found.log_probs, atol=1e-5)
    np.testing.assert_allclose(forced.weights, found.weights, atol=1e-5)
    long = kl.BeamSearch(3, min_length=4, max_length=5, **ids)(model, source)
    assert (long.lengths >= 4).numpy().all()


@some_cases
def test_prefixes_are_padded_with_the_padding(name):
    ids, model, source = CASES[name], Captioner(), images(3)
    pad = ids["pad_id"]
    word = 3 if 3 not in ids.values() else 5
    prefix = tf.constant([[word, word], [word, pad], [pad, pad]])
    search = kl.BeamSearch(3, max_length=4, **ids)
    found = search(model, source, prefix).ids[:, 0]
    assert found[0, :2].numpy().tolist() == [word, word] and found[1, 0] == word
    free = search(model, source[2:])
    np.testing.assert_array_equal(found[2, : free.ids.shape[2]], free.ids[0, 0])


@some_cases
def test_samples_never_hold_what_is_no_token(name):
    ids = CASES[name]
    begin, end, pad = (ids[x] for x in ("bos_id", "eos_id", "pad_id"))
    search = kl.RandomSampling(num_samples=60, max_length=6, seed=0, **ids)
    found = search(Captioner(), images(2))
    rows = found.ids.numpy().reshape(120, -1)
    for row, length in zip(rows, found.lengths.numpy().ravel(), strict=True):
        assert not ({begin, pad} - {end}) & {*row[:length].tolist()}
        assert end not in row[: length - 1]
        assert (row[length:] == pad).all()
    drawn = {*rows.ravel().tolist()} - {pad}
    assert drawn == {*range(VOCABULARY)} - {begin, pad} | ({end} - {pad})


WRONG_IDS = [
    ({"eos_id": -1}, ValueError, "eos_id must be at least 0. Received: -1"),
    ({"bos_id": None}, TypeError, "bos_id must be an integer. Received: None"),
    ({"pad_id": 2**31}, ValueError, "pad_id must be at most"),
]


@pytest.mark.parametrize("ids, error, message", WRONG_IDS)
def test_wrong_ids(ids, error, message):
    for search in (kl.BeamSearch, kl.GreedySearch, kl.RandomSampling, force_nothing):
        with pytest.raises(error, match=message):
            search(**ids)


def force_nothing(**ids):
    return force(None, tf.ones([1, 1], tf.int32), tf.ones([1, 1], tf.int32), **ids)


@pytest.mark.parametrize("search", SEARCHES, ids=repr)
def test_an_end_or_beginning_that_the_model_does_not_have_is_refused(search):
    with pytest.raises(ValueError, match="one of the model's 6 tokens.*eos_id=6"):
        dataclasses.replace(search, eos_id=VOCABULARY)(Captioner(), images(1))
    # A config says what it has: others may read more than they write.
    model, ids = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4)), tf.constant([[4, 3]])
    searched = dataclasses.replace(search, bos_id=9)
    for find in (searched, partial(force, target_ids=ids, bos_id=9)):
        with pytest.raises(ValueError, match="one of the model's 9 tokens.*bos_id=9"):
            find(model, ids)


def test_ids_that_go_with_others_are_refused():
    """The end must not be forbidden; a translator's tokenizers have the search's."""
    assert kl.BeamSearch(forbidden=(3,), eos_id=2).forbidden == (3,)
    with pytest.raises(ValueError, match=r"must not hold the end id.*\(2, 4\)"):
        kl.BeamSearch(forbidden=(2, 4), eos_id=2)
    model = kl.Seq2Seq(kl.Seq2SeqConfig(6, 6, units=2))
    with pytest.raises(ValueError, match="tokenizers' ids.*: GreedySearch.*eos"):
        search = kl.GreedySearch(eos_id=2, bos_id=1)
        kl.Translator(model, kl.WordTokenizer(["a", "b"]), search)


def test_a_description_and_a_record_have_those_that_are_others(tmp_path):
    assert repr(kl.GreedySearch(4)) == "GreedySearch(max_length=4)"
    search = kl.GreedySearch(4, bos_id=1, eos_id=np.int64(2))
    assert repr(search) == "GreedySearch(max_length=4, bos_id=1, eos_id=2)"
    assert search.eos_id == 2 and type(search.eos_id) is int
    search = kl.BeamSearch(3, n_best=2, eos_id=0)
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=2))
    write_record(tmp_path, model, search, 10, {})
    written = read_record(tmp_path)["search"]
    assert [written[x] for x in ("beam_width", "n_best", "eos_id")] == [3, 2, 0]
    assert kl.BeamSearch(**written) == search


def test_a_shortlist_has_the_ids_of_its_search(tmp_path):
    lexicon = [[0], [0], [0], [4], [5]]
    ids = CASES["tfa's"]
    kl.Shortlist([4], lexicon, 6, unk_id=3, **ids).save(tmp_path / "x.npz")
    loaded = kl.Shortlist.load(tmp_path / "x.npz")
    words = loaded(tf.constant([[3, 0], [4, 2]]), tf.zeros([2, 0], tf.int32))
    assert words.ids.numpy().tolist() == [0, 1, 2, 3, 4, 5]
    assert words.allowed[:, -1].numpy().tolist() == [False, True]
    assert kl.BeamSearch(shortlist=loaded, **ids).shortlist is loaded
    with pytest.raises(ValueError, match="bos_id must be the same in a search and its"):
        kl.BeamSearch(shortlist=loaded)
    with pytest.raises(ValueError, match="vocab_size must be at least 8. Received: 6"):
        kl.Shortlist([4], lexicon, 6, eos_id=7)
