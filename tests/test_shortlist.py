"""Shortlists against searches without them, and what is learned against a count."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from leave_slow import slow_but
from opinionated import opinionated

from keras_luong import Translator, export_saved_model, generate
from keras_luong.decoding import BeamSearch, Ensemble, Shortlist
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.models.bahdanau import Bahdanau2015
from keras_luong.models.transformer import Transformer, TransformerConfig
from keras_luong.text.tokenizer_pair import WordTokenizer

V = 30
SOURCES = np.array([[4, 6, 7, 5, 3], [5, 3, 0, 0, 0], [7, 7, 4, 3, 0]], "int32")
SEARCH = BeamSearch(3, n_best=3, max_length=6, length_penalty=0.6)


@pytest.fixture(scope="module")
def models():
    """Output layers of all kinds: tied, with and without a bias, of a Transformer."""
    sizes = 8, V
    small = {"units": 8, "embedding_dim": 8}
    transformer = TransformerConfig(*sizes, units=8, num_layers=1, num_heads=2)
    models = {
        "own": Seq2Seq(Seq2SeqConfig(*sizes, **small)),
        "tied": Seq2Seq(Seq2SeqConfig(*sizes, **small, tie_embeddings="target")),
        "bahdanau": Bahdanau2015.from_preset(
            "bahdanau2015", *sizes, units=8, embedding_dim=8, num_layers=1
        ),
        "transformer": Transformer(transformer),
    }
    return {name: opinionated(model) for name, model in models.items()}


def shortlist(seed=0, frequent=4, per_word=3):
    random = np.random.default_rng(seed)
    common = random.choice(np.arange(4, V), frequent, replace=False)
    return Shortlist(common, random.integers(4, V, (8, per_word)), V)


def words_of(listing, source):
    """A sentence's own words, in plain Python."""
    likely = {int(t) for s in source if s for t in listing.lexicon[s]}
    return sorted({0, 1, 2, 3} | set(listing.frequent.tolist()) | likely)


class Only:
    """A model that finds all but some words impossible, in full."""

    def __init__(self, model, words):
        self.model = model
        self.bias = np.full(V, -np.inf, "float32")
        self.bias[words] = 0.0
        self.encode = model.encode

    def step(self, tokens, state, memory):
        logits, state, weights = self.model.step(tokens, state, memory)
        return logits + self.bias, state, weights


def sentence(hypotheses, row):
    """Those of one sentence of a batch."""
    return tf.nest.map_structure(lambda x: x[row : row + 1], hypotheses)


def assert_same(found, expected):
    """Equal hypotheses, but for padding."""
    T = expected.ids.shape[2]
    np.testing.assert_array_equal(found.ids[:, :, :T], expected.ids)
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name", slow_but(["own", "tied", "bahdanau", "transformer"], "own")
)
def test_with_all_words_nothing_changes(models, name):
    everything = Shortlist(np.arange(V), np.zeros([8, 0], int), V)
    search = dataclasses.replace(SEARCH, shortlist=everything)
    assert_same(search(models[name], SOURCES), SEARCH(models[name], SOURCES))


@pytest.mark.slow
def test_in_a_graph_that_knows_the_number_of_sentences(models):
    everything = Shortlist(np.arange(V), np.zeros([8, 0], int), V)
    search = dataclasses.replace(SEARCH, shortlist=everything)
    assert_same(
        generate(models["own"], SOURCES, search), SEARCH(models["own"], SOURCES)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own", "tied", "bahdanau", "transformer"])
@settings(max_examples=5, derandomize=True)
@given(seed=st.integers(0, 1000), frequent=st.integers(0, 6))
def test_a_sentence_says_what_its_own_words_allow(models, name, seed, frequent):
    listing = shortlist(seed, frequent)
    found = dataclasses.replace(SEARCH, shortlist=listing)(models[name], SOURCES)
    for row, source in enumerate(SOURCES):
        source = source[source > 0]
        only = Only(models[name], words_of(listing, source))
        assert_same(sentence(found, row), SEARCH(only, source[None]))


@pytest.mark.slow
@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_an_ensembles_sentence_does_not_depend_on_its_neighbours(models, mean):
    ensemble = Ensemble([models["own"], models["transformer"]], mean)
    search = dataclasses.replace(SEARCH, shortlist=shortlist())
    together = search(ensemble, SOURCES)
    for row, source in enumerate(SOURCES):
        alone = search(ensemble, source[source > 0][None])
        assert_same(sentence(together, row), alone)


def test_constraints_know_the_words_by_their_ids(models):
    search = dataclasses.replace(
        SEARCH, shortlist=shortlist(), no_repeat_ngram=1, min_length=4, forbidden=(1,)
    )
    prefix = np.array([[29, 28], [27, 0], [0, 0]], "int32")
    found = search(models["own"], SOURCES, prefix)
    np.testing.assert_array_equal(found.ids[0, :, :2].numpy(), [[29, 28]] * 3)
    assert set(found.ids[1, :, 0].numpy()) == {27}
    for ids, length in zip(
        found.ids.numpy().reshape(9, -1), found.lengths.numpy().reshape(-1), strict=True
    ):
        assert length >= 4 and 1 not in ids[:length]
        assert len(set(ids[:length])) == length  # no word twice


@pytest.mark.slow
def test_in_an_exported_model(models, tmp_path):
    words = WordTokenizer(["a", "b", "c", "d"])
    targets = WordTokenizer([f"w{i}" for i in range(V - 4)])
    search = dataclasses.replace(SEARCH, shortlist=shortlist())
    translator = Translator(models["own"], (words, targets), search)
    texts = ["a c d b", "b", "", "d d d a b"]
    path = export_saved_model(translator, tmp_path)
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    exported = serve(text=tf.constant(texts))
    assert [x.decode() for x in exported["translation"].numpy()] == [
        t.text for t in translator.translate(texts)
    ]


def test_learns_what_the_model_attends_to(models):
    """Against a count in plain Python, of the model's attention when it is forced."""
    source = np.array([[4, 5, 6, 3], [7, 4, 3, 0]], "int32")
    target = np.array([[10, 11, 10, 3], [12, 3, 0, 0]], "int32")
    begun = np.array([[2, 10, 11, 10], [2, 12, 0, 0]], "int32")
    batch = {"source": source, "target": begun}, target
    learned = Shortlist.learn(models["own"], [batch, batch], per_word=2, frequent=2)
    assert learned.frequent.tolist() == [10, 11]  # 11 and 12 as often: the lower id
    assert learned.vocab_size == V and learned.lexicon.shape == (8, 2)

    memory, state = models["own"].encode(source)
    counts = {}
    for t in range(4):
        _, state, weights = models["own"].step(begun[:, t, None], state, memory)
        for row in range(2):
            word = int(source[row, int(np.argmax(weights[row, 0]))])
            if target[row, t] > 3 and word > 3:
                key = word, int(target[row, t])
                counts[key] = counts.get(key, 0) + 1
    for word in range(8):
        pairs = [(-n, t) for (s, t), n in counts.items() if s == word]
        expected = [t for _, t in sorted(pairs)][:2]
        assert learned.lexicon[word].tolist() == expected + [0] * (2 - len(expected))


def test_a_model_without_attention_gets_frequent_words():
    model = Seq2Seq(Seq2SeqConfig(8, V, units=4, attention=None, input_feeding=False))
    batch = {"source": SOURCES}, np.array([[9, 9, 3], [9, 8, 3], [7, 3, 0]], "int32")
    learned = Shortlist.learn(model, [batch], frequent=2)
    assert learned.frequent.tolist() == [9, 7] and not learned.lexicon.any()


def test_survives_a_file(tmp_path):
    listing = shortlist()
    listing.save(tmp_path / "list.npz")
    loaded = Shortlist.load(tmp_path / "list.npz")
    np.testing.assert_array_equal(loaded.frequent, listing.frequent)
    np.testing.assert_array_equal(loaded.lexicon, listing.lexicon)
    assert loaded.vocab_size == V and repr(loaded) == repr(listing)


@pytest.mark.parametrize("content", [b"", b"nothing of the kind", b"PK\x03\x04"])
def test_another_file_is_no_shortlist(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(ValueError, match="not a shortlist"):
        Shortlist.load(tmp_path / "x.npz")


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (([4], [[4]], 3), ValueError, "vocab_size"),
        (([4], [[4]], 9.0), TypeError, "vocab_size"),
        (([9], [[4]], 9), ValueError, "frequent must hold ids from 0"),
        (([4], [[-1]], 9), ValueError, "lexicon must hold ids from 0"),
        (([0.5], [[4]], 9), TypeError, "frequent must hold integers"),
        (([4], [4], 9), ValueError, "lexicon must have rank 2"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        Shortlist(*arguments)


def test_wrong_use(models):
    with pytest.raises(TypeError, match="shortlist must be a Shortlist"):
        BeamSearch(shortlist="list.npz")

    class Plain:
        encode, step = models["own"].encode, models["own"].step

    search = dataclasses.replace(SEARCH, shortlist=shortlist())
    with pytest.raises(TypeError, match="`restricted`"):
        search(Plain(), SOURCES)
    other = Shortlist([4], [[4]], V)
    with pytest.raises(ValueError, match="source_vocab_size"):
        BeamSearch(shortlist=other)(models["own"], SOURCES)
