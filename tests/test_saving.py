"""A translator made in Python, as a run directory."""

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
    for one, other in zip(
        again.translate(TEXTS), translator.translate(TEXTS), strict=True
    ):
        assert (one.text, one.score) == (other.text, pytest.approx(other.score))
    weights = zip(again.model.weights, translator.model.weights, strict=True)
    assert all(np.array_equal(x, y) for x, y in weights)
    record = read_record(path)
    assert (record["settings"]["source"], record["sample"]) == ("en", "the red dog")


@pytest.mark.slow
def test_k2_commands_take_it(tmp_path, capsys):
    translator = word_translator()
    path = kl.save_run(translator, tmp_path / "run")
    (tmp_path / "in").write_text("the dog\n")
    run("translate", path, "--input", tmp_path / "in", "--output", tmp_path / "out")
    expected = translator.translate(["the dog"])[0].text
    assert (tmp_path / "out").read_text() == f"{expected}\n"


@pytest.mark.slow
def test_k2_greedy_search_is_a_beam_of_one(tmp_path):
    greedy = word_translator(kl.GreedySearch(max_length=5))
    path = kl.save_run(greedy, tmp_path / "run")
    assert kl.load(path).search == kl.BeamSearch(1, max_length=5)
    said = [x.text for x in kl.load(path).translate(TEXTS)]
    assert said == [x.text for x in greedy.translate(TEXTS)]


def test_k2_what_no_run_can_be_is_refused_and_leaves_nothing(tmp_path):
    translator = word_translator()
    random = translator.with_search(kl.RandomSampling())
    with pytest.raises(TypeError, match="BeamSearch.*Received: RandomSampling"):
        kl.save_run(random, tmp_path / "run")
    both = kl.Ensemble([translator.model, word_translator().model])
    several = kl.Translator(both, translator.tokenizers)
    with pytest.raises(TypeError, match="one by one. Received: Ensemble"):
        kl.save_run(several, tmp_path / "run")
    with pytest.raises(TypeError, match="saved of a Translator.*Received: Seq2Seq"):
        kl.save_run(translator.model, tmp_path / "run")
    with pytest.raises(TypeError):
        kl.save_run(translator, tmp_path / "run", {"data": tf.constant(1)})
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is not empty; give another name"):
        kl.save_run(translator, tmp_path)


def test_weights_are_saved_without_the_optimizer_and_load_into_any_model(tmp_path):
    model, path = compiled_and_trained(), tmp_path / "one.weights.h5"
    save_weights(model, path)
    with h5py.File(path) as file:
        assert "optimizer" not in file
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    expected, step = model.get_weights(), int(model.optimizer.iterations)
    new = small_model("adam")
    load_weights(new, path)
    for one, other in zip(new.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_weights(model, path)
    assert int(model.optimizer.iterations) == step == 1


def test_a_file_of_weights_that_cannot_be_written_leaves_the_old_one(
    tmp_path, monkeypatch
):
    model, path = compiled_and_trained(), tmp_path / "one.weights.h5"
    path.write_text("old")

    def fail(*_):
        raise OSError("no room")

    monkeypatch.setattr(h5py.Group, "copy", fail)
    with pytest.raises(OSError, match="no room"):
        save_weights(model, path)
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def compiled_and_trained():
    model = small_model("adam")
    model.fit(small_data(batches=1), verbose=0)
    return model
