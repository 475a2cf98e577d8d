"""A translator made in Python, as a run directory; and files of weights."""

from __future__ import annotations

import warnings

import h5py
import numpy as np
import pytest
import tensorflow as tf
from commands import run
from small_training import small_data, small_model
from small_translator import sentencepiece_translator, word_translator

import keras_luong as kl
from keras_luong.runs.load_save import load_weights, save_weights
from keras_luong.runs.run import read_record

TEXTS = ["the red dog", "", "the cat is"]


@pytest.mark.parametrize(
    "make",
    [word_translator, pytest.param(sentencepiece_translator, marks=pytest.mark.slow)],
)
def test_k2_what_is_saved_is_what_is_loaded(make, tmp_path):
    translator = make()
    path = kl.save_run(translator, tmp_path / "run", {"source": "en"}, "the red dog")
    again = kl.load(path)
    assert again.search == translator.search
    assert again.max_source_length == translator.max_source_length
    expected = translator.translate(TEXTS)
    for one, other in zip(again.translate(TEXTS), expected, strict=True):
        assert (one.text, one.score) == (other.text, pytest.approx(other.score))
    weights = zip(again.model.weights, translator.model.weights, strict=True)
    assert all(np.array_equal(x, y) for x, y in weights)
    record = read_record(path)
    assert (record["settings"]["source"], record["sample"]) == ("en", "the red dog")


@pytest.mark.slow
def test_k2_commands_take_it(tmp_path):
    translator = word_translator()
    path = kl.save_run(translator, tmp_path / "run")
    (tmp_path / "in").write_text("the dog\n")
    run("translate", path, "--input", tmp_path / "in", "--output", tmp_path / "out")
    expected = translator.translate(["the dog"])[0].text
    assert (tmp_path / "out").read_text() == f"{expected}\n"


def test_k2_greedy_search_is_a_beam_of_one(tmp_path):
    greedy = word_translator(kl.GreedySearch(max_length=5))
    loaded = kl.load(kl.save_run(greedy, tmp_path / "run"))
    assert loaded.search == kl.BeamSearch(1, max_length=5)


def test_k2_what_no_run_can_be_is_refused_and_leaves_nothing(tmp_path):
    translator = word_translator()
    both = kl.Ensemble([translator.model, word_translator().model])
    random = translator.with_search(kl.RandomSampling())
    several = kl.Translator(both, translator.tokenizers)
    for refused, settings, message in (
        (random, None, "BeamSearch.*Received: RandomSampling"),
        (several, None, "one by one. Received: Ensemble"),
        (translator.model, None, "saved of a Translator.*Received: Seq2Seq"),
        (translator, {"data": tf.constant(1)}, "EagerTensor"),
    ):
        with pytest.raises(TypeError, match=message):
            kl.save_run(refused, tmp_path / "run", settings)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is not empty; give another name"):
        kl.save_run(translator, tmp_path)


@pytest.fixture
def trained():
    model = small_model("adam")
    model.run_eagerly = True
    model.fit(small_data(batches=1), verbose=0)
    return model


def test_weights_are_saved_without_the_optimizer_and_load_into_any_model(
    trained, tmp_path
):
    path = tmp_path / "one.weights.h5"
    save_weights(trained, path)
    with h5py.File(path) as file:
        assert "optimizer" not in file
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    expected = trained.get_weights()
    new = small_model("adam")
    load_weights(new, path)
    for one, other in zip(new.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_weights(trained, path)
    assert int(trained.optimizer.iterations) == 1


def test_a_file_of_weights_that_cannot_be_written_leaves_the_old_one(
    trained, tmp_path, monkeypatch
):
    path = tmp_path / "one.weights.h5"
    path.write_text("old")

    def fail(*_):
        raise OSError("no room")

    monkeypatch.setattr(h5py.Group, "copy", fail)
    with pytest.raises(OSError, match="no room"):
        save_weights(trained, path)
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
