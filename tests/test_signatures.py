"""Every signature says what the translator says, whoever else is in the batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from small_translator import SENTENCES, sentencepiece_translator, word_translator

from keras_luong import Translator, export_saved_model
from keras_luong.decoding import BeamSearch, GreedySearch, RandomSampling
from keras_luong.export.signatures import signatures

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")


def numpy(found):
    return {name: x.numpy() for name, x in found.items()}


@pytest.fixture(scope="module")
def translator():
    return sentencepiece_translator()


@pytest.fixture(scope="module")
def ask(translator, tmp_path_factory):
    """The signatures of the loaded export."""
    path = export_saved_model(
        translator, tmp_path_factory.mktemp("model"), max_batch_size=40
    )
    loaded = tf.saved_model.load(path)

    def ask(signature, **inputs):
        return numpy(loaded.signatures[signature](**inputs))

    ask.loaded = loaded
    return ask


def strings(array):
    return [x.decode() for x in array]


def test_the_default_translates(translator, ask):
    said = ask("serving_default", text=tf.constant(SENTENCES))
    expected = translator.translate(SENTENCES)
    assert strings(said["translation"]) == [t.text for t in expected]
    assert said["truncated"].tolist() == [t.truncated for t in expected]
    np.testing.assert_allclose(said["score"], [t.score for t in expected], atol=1e-5)


@pytest.mark.slow
def test_n_best_are_all_that_the_beam_holds(translator, ask):
    said = ask("n_best", text=tf.constant(SENTENCES))
    width = translator.search.beam_width
    search = dataclasses.replace(translator.search, n_best=width)
    wide = Translator(translator.model, translator.tokenizers, search, 30)
    for i, hypotheses in enumerate(wide.translate(SENTENCES, n_best=True)):
        count = len(hypotheses)
        assert strings(said["translation"][i, :count]) == [t.text for t in hypotheses]
        scores = [t.score for t in hypotheses]
        if hypotheses[0].source_tokens:
            assert (said["score"][i, count:] <= np.finfo("float32").min).all()
        np.testing.assert_allclose(said["score"][i, :count], scores, atol=1e-5)
        assert said["truncated"][i] == hypotheses[0].truncated
    assert said["translation"].shape == (len(SENTENCES), width)
    best = ask("serving_default", text=tf.constant(SENTENCES))
    assert said["translation"][:, 0].tolist() == best["translation"].tolist()


def test_alignments_are_those_of_the_translations(translator, ask):
    said = ask("align", text=tf.constant(SENTENCES))
    for i, t in enumerate(translator.translate(SENTENCES)):
        T, S = said["length"][i], said["source_length"][i]
        assert strings(said["tokens"][i, :T]) == t.tokens
        assert strings(said["source_tokens"][i, :S]) == t.source_tokens
        found = said["alignment"][i, :T, :S]
        np.testing.assert_allclose(found, t.alignment, atol=1e-5)
        np.testing.assert_allclose(said["log_probs"][i, :T], t.log_probs, atol=1e-4)
        assert said["translation"][i].decode() == t.text
    assert said["alignment"].dtype == np.float32


def test_scores_are_log_probabilities_of_given_targets(translator, ask):
    targets = SENTENCES[::-1]
    said = ask("score", text=tf.constant(SENTENCES), target=tf.constant(targets))
    for i, t in enumerate(translator.score(SENTENCES, targets)):
        T = said["length"][i]
        assert strings(said["tokens"][i, :T]) == t.tokens
        np.testing.assert_allclose(said["log_prob"][i], t.score, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(said["log_probs"][i, :T], t.log_probs, atol=1e-4)
        assert said["truncated"][i] == t.truncated
    assert {True, False} == set(said["truncated"].tolist())


def test_what_was_tokenized_elsewhere_is_translated_alike(translator, ask):
    rows = translator.source_tokenizer.encode(tf.constant(SENTENCES))
    ids, lengths = rows.to_tensor(), tf.cast(rows.row_lengths(), tf.int32)
    said = ask("ids", ids=ids, length=lengths)
    expected = ask("serving_default", text=tf.constant(SENTENCES))
    assert strings(translator.target_tokenizer.decode(said["ids"]).numpy()) == strings(
        expected["translation"]
    )
    np.testing.assert_allclose(said["score"], expected["score"], atol=1e-5)
    assert (said["length"] == (said["ids"] != 0).sum(1)).all()


@pytest.mark.parametrize("padding", [0, 3, 99999])
def test_what_stands_behind_the_length_does_not_matter(ask, padding):
    """A server that joins requests may fill rows up with whatever it likes."""
    ids = [[5, 6, 7], [8, padding, padding], [padding] * 3]
    said = ask("ids", ids=tf.constant(ids), length=tf.constant([3, 1, 0]))
    expected = ask("ids", ids=tf.constant([[8]]), length=tf.constant([1]))
    assert said["ids"][1, : said["length"][1]].tolist() == expected["ids"][0].tolist()
    assert said["length"][2] == 0 and said["score"][2] == 0


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=60), max_size=4),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=4, max_size=4),
)
def test_any_ids_have_an_answer(ask, rows, lengths):
    width = max([0, *map(len, rows)])
    ids = np.array([row + [0] * (width - len(row)) for row in rows], "int32")
    lengths = np.array(lengths[: len(rows)], "int32")
    said = ask("ids", ids=ids.reshape(len(rows), width), length=lengths)
    assert len(said["ids"]) == len(rows)
    assert np.isfinite(said["score"]).all()


def test_neighbours_do_not_matter(ask):
    together = ask("serving_default", text=tf.constant(SENTENCES))["translation"]
    for i, sentence in enumerate(SENTENCES):
        alone = ask("serving_default", text=tf.constant([sentence]))["translation"]
        assert alone[0] == together[i]


@pytest.mark.parametrize("name", ["serving_default", "n_best", "align"])
def test_no_text_is_no_error(ask, name):
    said = ask(name, text=tf.constant([], tf.string))
    assert all(len(x) == 0 for x in said.values())


@pytest.mark.parametrize(
    ("name", "inputs"),
    {
        "serving_default": {"text": ["a"] * 41},
        "score": {"text": ["a"] * 41, "target": ["a"] * 41},
        "ids": {"ids": [[1]] * 41, "length": [1] * 41},
    }.items(),
)
def test_a_batch_beyond_the_limit_is_refused(ask, name, inputs):
    with pytest.raises(tf.errors.InvalidArgumentError, match="too many sentences"):
        ask(name, **{key: tf.constant(x) for key, x in inputs.items()})
    some = {key: tf.constant(x[:40]) for key, x in inputs.items()}
    assert all(len(x) == 40 for x in ask(name, **some).values())


def test_as_many_targets_as_texts(ask):
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in number"):
        ask("score", text=tf.constant(["a", "b"]), target=tf.constant(["a"]))


def test_the_work_on_a_text_has_a_limit(translator, ask):
    """Neither a long text nor a long target is read to its end."""
    long = b"the dog " * 100_000
    said = ask("score", text=tf.constant([long]), target=tf.constant([long]))
    assert said["length"][0] == translator.max_target_length + 1
    said = ask("align", text=tf.constant([long]))
    assert said["source_length"][0] == translator.max_source_length + 1
    assert said["length"][0] <= translator.search.max_length


def test_the_batch_comes_first_everywhere(ask):
    for name, function in ask.loaded.signatures.items():
        for x in function.structured_input_signature[1].values():
            assert x.shape[0] is None, name
        for x in function.structured_outputs.values():
            assert x.shape.rank >= 1 and x.shape[0] is None, name
            assert not x.name.endswith("_bytes")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "count"),
    [(GreedySearch(5), 1), (RandomSampling(num_samples=3), 3)],
)
def test_other_searches_have_their_own_number_of_hypotheses(search, count):
    found = signatures(word_translator(search), 8)
    said = found["n_best"](tf.constant(["the red dog", ""]))
    assert said["translation"].shape == (2, count)


@pytest.mark.slow
def test_one_hypothesis_of_a_wide_search_is_the_best_of_many():
    translator = word_translator(BeamSearch(5, max_length=6, length_penalty=1.0))
    found = signatures(translator, 8)
    text = tf.constant(["the red dog", "cat", "is the the"])
    one, many = found["serving_default"](text), found["n_best"](text)
    np.testing.assert_array_equal(one["translation"], many["translation"][:, 0])
    # By score, those that the maximum length cut behind the finished ones.
    words = [[len(x.split()) for x in row] for row in many["translation"].numpy()]
    for cut, score in zip(np.equal(words, 6), many["score"].numpy(), strict=True):
        assert sorted(zip(cut, -score, strict=True)) == [*zip(cut, -score, strict=True)]


@pytest.mark.slow
def test_every_number_is_one_that_json_knows(tmp_path):
    """A beam of more than there are hypotheses."""
    found = signatures(word_translator(BeamSearch(20, max_length=1)), 8)
    for name in ("n_best", "align", "serving_default"):
        said = found[name](tf.constant(["the red dog", ""]))
        assert all(np.isfinite(x).all() for x in said.values() if x.dtype.is_floating)
    assert (found["n_best"](tf.constant(["the"]))["score"].numpy() < -1e38).any()
