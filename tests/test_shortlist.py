"""Shortlists: searches with and without them; learned, against a count; commands."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from commands import run
from leave_slow import slow_but
from opinionated import opinionated
from small_translator import written_run

from keras_luong import TokenizerPair, Translator, generate
from keras_luong.decoding import BeamSearch, Ensemble, Shortlist
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.models.bahdanau import Bahdanau2015
from keras_luong.models.transformer import Transformer, TransformerConfig
from keras_luong.text.tokenizer_pair import WordTokenizer

V = 30
SOURCES = np.array([[4, 6, 7, 5, 3], [5, 3, 0, 0, 0], [7, 7, 4, 3, 0]], "int32")
SEARCH = BeamSearch(3, n_best=3, max_length=4, length_penalty=0.6)
NAMES = ["own", "tied", "bahdanau", "transformer"]


@pytest.fixture(scope="module")
def models():
    """Output layers of all kinds: tied, with and without a bias, of a Transformer."""
    sizes, small = (8, V), {"units": 8, "embedding_dim": 8}
    transformer = TransformerConfig(*sizes, units=8, num_layers=1, num_heads=2)
    models = (
        Seq2Seq(Seq2SeqConfig(*sizes, **small)),
        Seq2Seq(Seq2SeqConfig(*sizes, **small, tie_embeddings="target")),
        Bahdanau2015.from_preset("bahdanau2015", *sizes, **small, num_layers=1),
        Transformer(transformer),
    )
    return dict(zip(NAMES, map(opinionated, models), strict=True))


def shortlist(seed=0, frequent=4, per_word=3):
    random = np.random.default_rng(seed)
    common = random.choice(np.arange(4, V), frequent, replace=False)
    return Shortlist(common, random.integers(4, V, (8, per_word)), V)


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


def assert_same(found, expected, row=slice(None)):
    """Equal hypotheses, but for padding."""
    found, T = tf.nest.map_structure(lambda x: x[row], found), expected.ids.shape[2]
    np.testing.assert_array_equal(found.ids[:, :, :T], expected.ids)
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", slow_but(NAMES, "own"))
def test_with_all_words_nothing_changes(models, name):
    everything = Shortlist(np.arange(V), np.zeros([8, 0], int), V)
    search, model = dataclasses.replace(SEARCH, shortlist=everything), models[name]
    expected = SEARCH(model, SOURCES)
    assert_same(search(model, SOURCES), expected)
    if name != "own":  # in a graph that knows the number of sentences
        assert_same(generate(model, SOURCES, search), expected)


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("tied", 1),
        *(pytest.param(x, i, marks=pytest.mark.slow) for x in NAMES for i in (0, 2)),
    ],
)
def test_a_sentence_says_what_its_own_words_allow(models, name, seed):
    listing = shortlist(seed, frequent=3 * seed)
    found = dataclasses.replace(SEARCH, shortlist=listing)(models[name], SOURCES)
    for row, source in enumerate(SOURCES):
        source = source[source > 0]
        words = {0, 1, 2, 3, *listing.frequent, *listing.lexicon[source].ravel()}
        only = Only(models[name], sorted(words))
        assert_same(found, SEARCH(only, source[None]), slice(row, row + 1))


@pytest.mark.slow
@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_an_ensembles_sentence_does_not_depend_on_its_neighbours(models, mean):
    ensemble = Ensemble([models["own"], models["transformer"]], mean)
    search = dataclasses.replace(SEARCH, shortlist=shortlist())
    together = search(ensemble, SOURCES)
    for row, source in enumerate(SOURCES):
        alone = search(ensemble, source[source > 0][None])
        assert_same(together, alone, slice(row, row + 1))


def test_constraints_know_the_words_by_their_ids(models):
    search = dataclasses.replace(
        SEARCH, shortlist=shortlist(), no_repeat_ngram=1, min_length=4, forbidden=(1,)
    )
    prefix = np.array([[29, 28], [27, 0], [0, 0]], "int32")
    found = search(models["own"], SOURCES, prefix)
    np.testing.assert_array_equal(found.ids[0, :, :2].numpy(), [[29, 28]] * 3)
    assert set(found.ids[1, :, 0].numpy()) == {27}
    for ids in found.ids.numpy().reshape(9, -1).tolist():
        assert 1 not in ids and 0 not in ids
        assert len({*ids}) == 4  # no word twice


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


def test_survives_a_file_as_others_do_not(tmp_path):
    listing, path = shortlist(), tmp_path / "list.npz"
    listing.save(path)
    loaded = Shortlist.load(path)
    np.testing.assert_array_equal(loaded.frequent, listing.frequent)
    np.testing.assert_array_equal(loaded.lexicon, listing.lexicon)
    assert loaded.vocab_size == V and repr(loaded) == repr(listing)
    for content in (b"", b"nothing of the kind", b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="not a shortlist"):
            Shortlist.load(path)
    with pytest.raises(FileNotFoundError):
        Shortlist.load(tmp_path / "absent.npz")


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
    search = dataclasses.replace(SEARCH, shortlist=shortlist())
    with pytest.raises(TypeError, match="`restricted`"):
        search(Only(models["own"], [4]), SOURCES)
    other = Shortlist([4], [[4]], V)
    with pytest.raises(ValueError, match="source_vocab_size"):
        BeamSearch(shortlist=other)(models["own"], SOURCES)
    with pytest.raises(TypeError, match="shortlist needs a source of ids"):
        BeamSearch(shortlist=other)(models["own"], np.ones([2, 3, 4], "float32"))


@pytest.fixture
def path(tmp_path):
    """An untrained run, and its training data: a to A and so on."""
    data = tmp_path / "data"
    data.mkdir()
    for side, lines in (("en", "a b\nb c\nd\n"), ("de", "A B\nB C\nD\n")):
        for split in ("train", "val", "test"):
            (data / f"{split}.{side}").write_text(lines)
    pair = TokenizerPair(WordTokenizer(list("abcd")), WordTokenizer(list("ABCDE")))
    model, search = Seq2Seq(Seq2SeqConfig(8, 9, units=4)), BeamSearch(3, max_length=4)
    settings = {"data": str(data), "source": "en", "target": "de"}
    translator = Translator(model, pair, search, 20)
    return written_run(tmp_path / "run", translator, settings).path


def test_a_command_learns_from_the_runs_own_data(path, capsys):
    run("shortlist", path, "--per_word", "3")
    file = path / "shortlist.npz"
    said = capsys.readouterr().out
    assert f"{file}: " in said and "4 frequent words, 3 per source word, of 9" in said
    learned = Shortlist.load(file)
    assert set(learned.frequent) == {4, 5, 6, 7}  # never E
    assert 8 not in learned.lexicon
    assert set(learned.lexicon[7]) <= {0, 7}  # d only ever met D


@pytest.mark.slow
def test_a_command_may_learn_from_less(path, tmp_path):
    out = tmp_path / "few.npz"
    run("shortlist", path, "--limit_examples", "1", "--frequent", "1", "--out", out)
    assert set(Shortlist.load(out).frequent) == {4}
