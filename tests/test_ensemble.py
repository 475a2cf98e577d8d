"""Ensembles, against NumPy and their members alone; shortlists, against all words."""

import dataclasses
import functools
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from brute_force import log_of
from commands import run
from leave_slow import slow_but
from opinionated import opinionated
from small_translator import sentencepiece_translator, word_translator, written_run

import keras_luong as kl
from keras_luong.decoding import BeamSearch, Ensemble, GreedySearch, Shortlist, force
from keras_luong.models import build
from keras_luong.runs.load_save import load_ensemble
from keras_luong.runs.run import RunDirectory
from keras_luong.special_ids import BOS_ID, EOS_ID

SIZES = _, V = 8, 30
SOURCES = np.array([[4, 6, 7, 5, 3], [5, 3, 0, 0, 0], [7, 7, 4, 3, 0]], "int32")
TARGETS = np.array([[4, 9, 5, 3], [10, 3, 0, 0], [6, 6, 6, 3]], "int32")
FIELDS = {
    "own": ("small", {}),
    "tied": ("small", {"tie_embeddings": "target"}),
    "local": ("small", {"attention": "local-p", "window": 1}),
    "bahdanau": ("bahdanau2015", {"embedding_dim": 8}),
    "transformer": ("vaswani2017-base", {"num_heads": 2}),
}
NAMES = [*FIELDS, "ensemble"]


@functools.cache
def made(name):
    """Output layers of all kinds: tied, with and without a bias; and an ensemble."""
    if name == "ensemble":
        return Ensemble([made("own"), made("transformer")])
    preset, fields = FIELDS[name]
    return opinionated(build(preset, *SIZES, units=8, num_layers=1, **fields))


@pytest.fixture
def three():
    """Architectures of one vocabulary, of opinions that differ."""
    return [made(name) for name in ("own", "local", "transformer")]


def averaged(models, mean):
    """Log-probabilities [B, T, V] in NumPy, of models that know nothing of `step`."""
    read = np.concatenate([[[BOS_ID]] * 3, TARGETS[:, :-1]], axis=1)
    said = [model({"source": SOURCES, "target": read}).numpy() for model in models]
    p = [np.exp(x.astype("float64")) for x in said]
    p = [x / x.sum(-1, keepdims=True) for x in p]
    if mean == "arithmetic":
        return np.log(np.mean(p, axis=0))
    product = np.prod(p, axis=0) ** (1 / len(p))
    return np.log(product / product.sum(-1, keepdims=True))


class Fixed:
    """Says the same at every step, and attends to the same places."""

    def __init__(self, probabilities, weights=(1.0, 0.0), dtype="float32"):
        self.logits = log_of(dict(enumerate(probabilities)), len(probabilities))
        self.logits = self.logits.astype(dtype)
        self.weights = np.array(weights, dtype)

    def encode(self, source_ids):
        return source_ids, tf.zeros([tf.shape(source_ids)[0], 1])

    def step(self, tokens, state, memory):
        places = tf.zeros_like(tokens, self.logits.dtype)[..., None]
        return places + self.logits, state, places + self.weights


ANY = Fixed([1.0])
EVEN, SURE = Fixed([0.5, 0.5]), Fixed([0.1, 0.9], [0.4, 0.6])
SOME, OTHERS = Fixed([0.5, 0.5, 0.0]), Fixed([0.0, 0.2, 0.8])
THREE = [Fixed([0.7, 0.3]), Fixed([0.7, 0.3]), Fixed([0.1, 0.9])]


MEANS = [
    ([EVEN, SURE], [0.3, 0.7], [1, 3]),  # √(.5 x .1) : √(.5 x .9)
    ([EVEN, Fixed([0.01, 0.09])], [0.3, 0.7], [1, 3]),  # scaled, it is the same
    ([Fixed([0.5, 0.5], dtype="float16"), SURE], [0.3, 0.7], [1, 3]),
    ([SOME, OTHERS], [0.25, 0.35, 0.4], [0, 1, 0]),  # impossible for one of them
    (THREE, [0.5, 0.5], [49 ** (1 / 3), 81 ** (1 / 3)]),
    # Each member's own favourite is another one's horror.
    ([Fixed([0.4, 0.6, 0]), Fixed([0.4, 0, 0.6])], [0.4, 0.3, 0.3], [1, 0, 0]),
]


@pytest.mark.parametrize("members, arithmetic, geometric", MEANS)
def test_means_by_hand(members, arithmetic, geometric):
    geometric = np.array(geometric) / sum(geometric)
    for mean, expected in (("arithmetic", arithmetic), ("geometric", geometric)):
        ensemble = Ensemble(members, mean)
        memory, state = ensemble.encode(tf.constant([[3]]))
        logits, _, weights = ensemble.step(tf.constant([[BOS_ID]]), state, memory)
        assert logits.dtype == weights.dtype == tf.float32
        np.testing.assert_allclose(np.exp(logits[0, 0]), expected, rtol=1e-3)
        if members[0] is EVEN and members[1] is SURE:
            np.testing.assert_allclose(weights[0, 0], [0.7, 0.3], rtol=1e-6)
            np.testing.assert_allclose(np.exp(logits[0, 0]), expected, rtol=1e-6)


def test_nothing_in_common_is_no_hypothesis():
    members = [Fixed([0, 0, 0, 0, 1, 0]), Fixed([0, 0, 0, 0, 0, 1])]
    for search in (GreedySearch(4), BeamSearch(2, max_length=4)):
        nothing = search(Ensemble(members), [[3]])
        assert nothing.lengths.numpy().tolist() == [[0]]
        assert nothing.scores.numpy().tolist() == [[-np.inf]]
        something = search(Ensemble(members, "arithmetic"), [[3]])
        assert something.lengths.numpy().tolist() == [[4]]
    # The end needs no agreement: the mean says so.
    ending, going_on = Fixed([0, 0, 0, 0.9, 0.1]), Fixed([0, 0, 0, 0.2, 0.8])
    said = GreedySearch(5)(Ensemble([ending, going_on], "arithmetic"), [[3]])
    assert said.ids.numpy().tolist() == [[[EOS_ID]]]


@pytest.mark.parametrize("mean", slow_but(["geometric", "arithmetic"], "arithmetic"))
def test_forced_targets_have_the_mean_of_teacher_forced_models(three, mean):
    expected = averaged(three, mean)
    chosen = np.take_along_axis(expected, TARGETS[..., None], 2)[..., 0]
    forced = force(Ensemble(three, mean), SOURCES, TARGETS)
    gains = chosen * (TARGETS != 0)
    np.testing.assert_allclose(forced.token_log_probs[:, 0], gains, atol=1e-5)
    assert forced.weights.shape == (3, 1, *TARGETS.shape[1:], *SOURCES.shape[1:])


def test_beams_are_followed_in_every_model():
    """A score that a search reports is that of its words, read anew."""
    ensemble = made("ensemble")
    found = BeamSearch(3, 2, min_length=3, max_length=4)(ensemble, SOURCES)
    for n in range(2):
        read = force(ensemble, SOURCES, found.ids[:, n])
        T = read.weights.shape[2]  # these hypotheses may be the shorter ones
        log_probs, weights = found.log_probs[:, n], found.weights[:, n, :T]
        np.testing.assert_allclose(log_probs, read.log_probs[:, 0], atol=1e-4)
        np.testing.assert_allclose(weights, read.weights[:, 0], atol=1e-4)
    assert len(np.unique(found.ids[:, 0], axis=0)) > 1


def test_members_share_the_sizes_of_their_vocabularies(three):
    unknown = dict.fromkeys(("source_vocab_size", "target_vocab_size"))
    assert vars(Ensemble([ANY]).config) == unknown
    config = Ensemble([ANY, *three]).config
    assert (config.source_vocab_size, config.target_vocab_size) == SIZES
    with pytest.raises(ValueError, match="source tokenizer has 34.*size is 8"):
        kl.Translator(Ensemble(three), kl.WordTokenizer([str(i) for i in range(30)]))


@pytest.mark.parametrize("name, sizes", [("source", (9, V)), ("target", (8, V + 1))])
def test_other_sizes_are_refused(three, name, sizes):
    other = build("small", *sizes, units=4)
    own, new = (getattr(x.config, f"{name}_vocab_size") for x in (three[0], other))
    said = rf"{name}_vocab_size.*same.*\[0\]: {own}, .*\[2\]: {new}"
    with pytest.raises(ValueError, match=said):
        Ensemble([*three[:2], other])
    with pytest.raises(ValueError, match=name):
        Ensemble([Ensemble(three), other])


NO_ENSEMBLES = [
    ([], {}, ValueError, "at least one model"),
    (ANY, {}, TypeError, "models must be a list.*Fixed"),
    (["en-de"], {}, TypeError, r"models\[0\].*`encode` and `step`.*'en-de'"),
    ([ANY, None], {}, TypeError, r"models\[1\].*None"),
    ([ANY], {"mean": "harmonic"}, ValueError, "geometric.*'harmonic'"),
]


@pytest.mark.parametrize("models, options, error, message", NO_ENSEMBLES)
def test_refuses_what_is_no_ensemble(models, options, error, message):
    with pytest.raises(error, match=message):
        Ensemble(models, **options)


# Several runs as one.


@pytest.fixture
def runs(tmp_path):
    """Two translators with different weights, and their run directories."""
    rng, translators = np.random.default_rng(0), []
    for width in (3, 2):
        translator = word_translator(BeamSearch(width, max_length=6))
        translator.max_source_length = 5 + width
        for weight in translator.model.trainable_weights:
            weight.assign(rng.normal(size=weight.shape))
        translators.append(translator)
    pairs = enumerate(translators)
    return translators, [written_run(tmp_path / str(i), x).path for i, x in pairs]


def test_runs_translate_together(runs):
    translators, paths = runs
    found = load_ensemble(paths, "mixed_bfloat16")
    assert isinstance(found.model, Ensemble) and found.model.mean == "geometric"
    for model, own in zip(found.model.models, translators, strict=True):
        assert model.dtype_policy.name == "mixed_bfloat16"
        for x, y in zip(model.get_weights(), own.model.get_weights(), strict=True):
            np.testing.assert_array_equal(x, y)
    assert found.search.beam_width == 3  # the first one's
    assert found.max_source_length == 7  # the least
    alone = load_ensemble(paths[1:], "mixed_bfloat16")  # one is itself
    assert alone.search == translators[1].search
    assert alone.model.dtype_policy.name == "mixed_bfloat16"


@pytest.mark.parametrize("side", slow_but(["source", "target"], "target"))
def test_t1_another_normalization_is_named(tmp_path, side):
    """The pieces are the same, and the runs' options look alike."""
    translator = sentencepiece_translator()
    first, second = (written_run(tmp_path / x, translator) for x in "ab")
    sides = {x: translator.tokenizers for x in ("source", "target")}
    sides[side] = sides[side].with_normalization("nmt_nfkc")
    kl.TokenizerPair(**sides).save(second.tokenizer)
    message = f"Received: .*a, .*b, which differ in {side}_normalization 'identity' and"
    with pytest.raises(ValueError, match=f"{message} 'nmt_nfkc'$"):
        load_ensemble([first.path, second.path])


def test_runs_that_are_refused(runs):
    _, (first, second) = runs
    for no_list in ([], "runs/a"):
        with pytest.raises(ValueError, match=f"Received: {re.escape(repr(no_list))}"):
            load_ensemble(no_list)
    tokenizers = RunDirectory(second).tokenizer
    words = kl.WordTokenizer(["the", "red", "dog", "is", "cat"])  # in another order
    kl.TokenizerPair(words, kl.WordTokenizer(["der", "Hund", "ist"])).save(tokenizers)
    with pytest.raises(ValueError, match=f"same tokenizers.*{first}, {second}"):
        load_ensemble([first, second])
    shutil.rmtree(tokenizers)
    with pytest.raises(FileNotFoundError, match="the run is incomplete"):
        load_ensemble([first, second])


# Shortlists.

SEARCH = BeamSearch(3, n_best=3, max_length=4, length_penalty=0.6)


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
def test_with_all_words_nothing_changes(name):
    everything = Shortlist(np.arange(V), np.zeros([8, 0], int), V)
    search, model = dataclasses.replace(SEARCH, shortlist=everything), made(name)
    expected = SEARCH(model, SOURCES)
    assert_same(search(model, SOURCES), expected)
    if name != "own":  # in a graph that knows the number of sentences
        assert_same(kl.generate(model, SOURCES, search), expected)


LATER = [pytest.param(x, i, marks=pytest.mark.slow) for x in NAMES for i in (0, 2)]
SAID = [("tied", 1), *LATER]


@pytest.mark.parametrize("name, seed", SAID)
def test_a_sentence_says_what_its_own_words_allow(name, seed):
    listing = shortlist(seed, frequent=3 * seed)
    found = dataclasses.replace(SEARCH, shortlist=listing)(made(name), SOURCES)
    for row, source in enumerate(SOURCES):
        source = source[source > 0]
        words = {0, 1, 2, 3, *listing.frequent, *listing.lexicon[source].ravel()}
        only = Only(made(name), sorted(words))
        assert_same(found, SEARCH(only, source[None]), slice(row, row + 1))


def test_constraints_know_the_words_by_their_ids():
    rules = {"no_repeat_ngram": 1, "min_length": 4, "forbidden": (1,)}
    search = dataclasses.replace(SEARCH, shortlist=shortlist(), **rules)
    prefix = np.array([[29, 28], [27, 0], [0, 0]], "int32")
    found = search(made("own"), SOURCES, prefix)
    np.testing.assert_array_equal(found.ids[0, :, :2].numpy(), [[29, 28]] * 3)
    assert set(found.ids[1, :, 0].numpy()) == {27}
    for ids in found.ids.numpy().reshape(9, -1).tolist():
        assert 1 not in ids and 0 not in ids
        assert len({*ids}) == 4  # no word twice


def test_learns_what_the_model_attends_to():
    """Against a count in plain Python, of the model's attention when it is forced."""
    source = np.array([[4, 5, 6, 3], [7, 4, 3, 0]], "int32")
    target = np.array([[10, 11, 10, 3], [12, 3, 0, 0]], "int32")
    begun = np.array([[2, 10, 11, 10], [2, 12, 0, 0]], "int32")
    batch = {"source": source, "target": begun}, target
    model = made("own")
    learned = Shortlist.learn(model, [batch, batch], per_word=2, frequent=2)
    assert learned.frequent.tolist() == [10, 11]  # 11 and 12 as often: the lower id
    assert learned.vocab_size == V and learned.lexicon.shape == (8, 2)

    memory, state = model.encode(source)
    counts = {}
    for t in range(4):
        _, state, weights = model.step(begun[:, t, None], state, memory)
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
    model = build("small", *SIZES, units=4, attention=None, input_feeding=False)
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


WRONG = [
    (([4], [[4]], 3), ValueError, "vocab_size"),
    (([4], [[4]], 9.0), TypeError, "vocab_size"),
    (([9], [[4]], 9), ValueError, "frequent must hold ids from 0"),
    (([4], [[-1]], 9), ValueError, "lexicon must hold ids from 0"),
    (([0.5], [[4]], 9), TypeError, "frequent must hold integers"),
    (([4], [4], 9), ValueError, "lexicon must have rank 2"),
]


@pytest.mark.parametrize("arguments, error, message", WRONG)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        Shortlist(*arguments)


def test_wrong_use():
    search = dataclasses.replace(SEARCH, shortlist=shortlist())
    with pytest.raises(TypeError, match="`restricted`"):
        search(Only(made("own"), [4]), SOURCES)
    other = Shortlist([4], [[4]], V)
    with pytest.raises(ValueError, match="source_vocab_size"):
        BeamSearch(shortlist=other)(made("own"), SOURCES)
    with pytest.raises(TypeError, match="shortlist needs a source of ids"):
        BeamSearch(shortlist=other)(made("own"), np.ones([2, 3, 4], "float32"))


@pytest.fixture
def path(tmp_path):
    """An untrained run, and its training data: a to A and so on."""
    data = tmp_path / "data"
    data.mkdir()
    for side, lines in (("en", "a b\nb c\nd\n"), ("de", "A B\nB C\nD\n")):
        for split in ("train", "val", "test"):
            (data / f"{split}.{side}").write_text(lines)
    pair = kl.TokenizerPair(*map(kl.WordTokenizer, (list("abcd"), list("ABCDE"))))
    translator = kl.Translator(build("small", 8, 9, units=4), pair, SEARCH, 20)
    settings = {"data": str(data), "source": "en", "target": "de"}
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
def test_a_command_learns_from_some_of_it(path):
    out = path / "few.npz"
    run("shortlist", path, "--limit_examples", "1", "--frequent", "1", "--out", out)
    assert set(Shortlist.load(out).frequent) == {4}
