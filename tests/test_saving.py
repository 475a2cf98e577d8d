"""Translators as run directories; files of weights; averages of several as a run."""

import re
import shutil
import warnings

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from commands import run, run_checked
from small_training import small_data, small_model
from small_translator import sentencepiece_translator, word_translator, written_run

import keras_luong as kl
from keras_luong.runs.average import (
    EPOCH_WEIGHTS,
    average_run,
    epoch_weights,
    load_average,
)
from keras_luong.runs.load_save import load_weights, save_weights
from keras_luong.runs.run import check_settings, read_record

TEXTS = ["the red dog", ""]
pytestmark = pytest.mark.usefixtures("eagerly")


MADE = [word_translator, pytest.param(sentencepiece_translator, marks=pytest.mark.slow)]


@pytest.mark.parametrize("make", MADE)
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


# Files of weights.


def test_weights_are_saved_without_the_optimizer(tmp_path, monkeypatch):
    """One that cannot be written leaves the old one."""
    trained, new = small_model("adam"), small_model("adam")
    trained.run_eagerly = True
    trained.fit(small_data(batches=1), verbose=0)
    save_weights(trained, path := tmp_path / "one.weights.h5")
    with h5py.File(path) as file:
        assert "optimizer" not in file
    for model in (new, trained):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            load_weights(model, path)
        for one, other in zip(model.get_weights(), trained.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)
    assert int(trained.optimizer.iterations) == 1

    def fail(*_):
        raise OSError("no room")

    path.write_text("old")
    monkeypatch.setattr(h5py.Group, "copy", fail)
    with pytest.raises(OSError, match="no room"):
        save_weights(trained, path)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "old"


# Their means.


class Weights(keras.layers.Layer):
    """A layer with just these weights."""

    def __init__(self, arrays):
        super().__init__()
        for array in map(np.asarray, arrays):
            self.add_weight(shape=array.shape, dtype=array.dtype.name)

    def call(self, x):
        return x


def made(*arrays):
    """A model with just these weights."""
    model = keras.Sequential([keras.Input((1,)), Weights(arrays)])
    model.set_weights([np.asarray(array) for array in arrays])
    return model


def saved(path, *arrays):
    made(*arrays).save_weights(path)
    return path


SHAPES = [
    *(("float16", (), 1), ("float16", (2, 3, 4), 3), ("float64", (2, 3, 4), 3)),
    *(("bfloat16", (), 3), ("bfloat16", (2, 3, 4), 1), ("float32", (2, 0), 3)),
]


@pytest.mark.parametrize("dtype, shape, count", SHAPES)
def test_the_mean_is_numpys(dtype, shape, count, tmp_path):
    """And a counter is the last file's: halfway between two others it is nobody's."""
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng(0)
    arrays = [np.asarray(rng.normal(size=shape)).astype(dtype) for _ in range(count)]
    paths = [
        saved(tmp_path / f"{i}.weights.h5", array, np.array([i, 10 * i], "uint32"), i)
        for i, array in enumerate(arrays)
    ]
    model = made(np.zeros(shape, dtype), np.zeros(2, "uint32"), 0)
    expected = np.mean(np.stack(arrays).astype("float64"), axis=0).astype(dtype)
    for order in (range(count), range(count)[::-1]):
        load_average(model, [str(paths[i]) for i in order])
        mean, *counters = model.get_weights()
        assert mean.dtype == dtype and mean.shape == shape
        one, other = (x.astype("float64") for x in (mean, expected))
        np.testing.assert_allclose(one, other, rtol=1e-14)
        last = order[-1]
        assert [x.tolist() for x in counters] == [[last, 10 * last], last]


def test_what_has_no_mean_is_refused(tmp_path):
    good = saved(tmp_path / "a.weights.h5", [1.0])
    bad = saved(tmp_path / "b.weights.h5", [np.nan])
    damaged = tmp_path / "c.weights.h5"
    damaged.write_bytes(good.read_bytes()[:1000])
    plain, quantised = made([0.0]), made([1.0], np.zeros([2], "int8"))
    for model, error, message, paths in (
        (quantised, ValueError, "is quantised .int8", [good]),
        (plain, ValueError, "The mean of weights.* is not finite", [bad, good]),
        (plain, ValueError, "c.weights.h5 is damaged", [good, damaged]),
        (plain, ValueError, "at least one file", []),
        (plain, TypeError, "must be a list of paths.*a.weights.h5", good),
        (plain, TypeError, "weights must be a path. Received: 3", [good, 3]),
        (plain, FileNotFoundError, "no file of weights .*none", [tmp_path / "none"]),
    ):
        with pytest.raises(error, match=message):
            load_average(model, paths)


def test_epochs_are_in_the_order_of_their_numbers(tmp_path):
    with pytest.raises(FileNotFoundError, match="no weights.*epoch-0001.weights"):
        epoch_weights(tmp_path)
    (tmp_path / "epochs").mkdir()
    with pytest.raises(FileNotFoundError, match="epochs.*name the files"):
        epoch_weights(tmp_path, 3)
    for number in (2, 10, 9, 10000, 1):
        (tmp_path / EPOCH_WEIGHTS.format(epoch=number)).touch()
    for stranger in ("epoch-0003.weights.h5.tmp", ".epoch-0004.weights.h5", "x"):
        (tmp_path / "epochs" / stranger).touch()
    numbers = [int(path.name[6:-11]) for path in epoch_weights(str(tmp_path))]
    assert numbers == [1, 2, 9, 10, 10000]
    for last in (2, 5):
        assert epoch_weights(tmp_path, last) == epoch_weights(tmp_path)[-last:]
    with pytest.raises(FileNotFoundError, match=r"5 epochs \(1, 2, 9.*last 6"):
        epoch_weights(tmp_path, last=6)
    with pytest.raises(ValueError, match="last must be at least 1"):
        epoch_weights(tmp_path, 0)
    with pytest.raises(TypeError, match="run_dir"):
        epoch_weights(None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of six epochs; after each, all weights are 2 to the power of its number."""
    translator = word_translator(kl.BeamSearch(3, max_length=7))
    written = written_run(tmp_path_factory.mktemp("runs") / "m", translator)
    written.epochs.mkdir()
    for epoch in range(1, 7):
        for weight in translator.model.weights:
            weight.assign(keras.ops.full_like(weight, 2.0**epoch))
        translator.model.save_weights(written.path / EPOCH_WEIGHTS.format(epoch=epoch))
    return written.path


@pytest.fixture
def path(trained, tmp_path):
    """A copy of it."""
    return shutil.copytree(trained, tmp_path / "runs" / "m")


def listing(directory):
    return sorted(path.name for path in directory.iterdir())


def weight_of(run_dir):
    """The one value that all weights have."""
    weights = kl.load(run_dir).model.get_weights()
    (value,) = np.unique(np.concatenate([weight.ravel() for weight in weights]))
    return value


def file(path, epoch):
    return path / EPOCH_WEIGHTS.format(epoch=epoch)


@pytest.mark.parametrize("epochs, mean", [(6, (4 + 8 + 16 + 32 + 64) / 5), (2, 3)])
def test_up_to_five_epochs_become_a_run(epochs, mean, path, capsys):
    for epoch in range(epochs + 1, 7):
        file(path, epoch).unlink()
    before = listing(path)
    run("average", path)
    out = path.with_name("m-average")
    said = capsys.readouterr().out
    averaged = re.findall("    (.*/epoch-000[1-6].weights.h5)\n", said)
    assert f"{out} is the average of {len(averaged)}:" in said
    assert len(averaged) == min(epochs, 5)
    # It is a run like any other, and nothing else has changed.
    assert weight_of(out) == mean
    translator = kl.load(out)
    assert len(translator.translate(["the dog", ""])) == 2
    assert translator.search == kl.BeamSearch(3, max_length=7)
    assert listing(out) == ["model.weights.h5", "run.json", "tokenizer"]
    assert listing(path) == before and listing(out.parent) == ["m", "m-average"]
    # But no training goes on in it.
    assert read_record(out)["settings"] == {"epochs": 3, "average_of": averaged}
    assert check_settings(path, {"epochs": 3})
    with pytest.raises(ValueError, match="other settings.*average_of"):
        check_settings(out, {"epochs": 3})
    with pytest.raises(FileExistsError, match="m-average exists and is not empty"):
        run_checked("average", path)


def test_those_that_are_asked_for_where_they_are_asked_for(path, tmp_path, monkeypatch):
    run("average", path, "--last", "2", "--out", tmp_path / "deep" / "down")
    assert weight_of(tmp_path / "deep" / "down") == 48
    files = [file(path, epoch) for epoch in (1, 6, 3)]
    run("average", path, "--out", tmp_path / "out", "--weights", *files)
    assert weight_of(tmp_path / "out") == pytest.approx((2 + 64 + 8) / 3, rel=1e-6)
    settings = read_record(tmp_path / "out")["settings"]
    assert settings == {"epochs": 3, "average_of": list(map(str, files))}
    monkeypatch.chdir(path)  # it finds the run's name from within
    run("average", ".", "--last", "1")
    assert weight_of(path.with_name("m-average")) == 64


@pytest.mark.filterwarnings("ignore:Skipping nested container")
def test_a_run_takes_no_weights_of_another_model(path, tmp_path):
    """Of two layers Keras alone would load the first, and be quiet."""
    other = tmp_path / "other.weights.h5"
    kl.Seq2Seq(kl.Seq2SeqConfig(9, 7, units=4, num_layers=2)).save_weights(other)
    for paths in ([other], [other, file(path, 1)], [file(path, 1), other]):
        with pytest.raises(ValueError, match="other.weights.h5 .*another model"):
            average_run(path, path.parent / "out", paths)
    assert listing(path.parent) == ["m"]  # nothing half done is left behind


def test_what_is_missing_is_named_and_what_is_there_stays(path, tmp_path, capsys):
    def refuse(error, message, run_dir, *words):
        with pytest.raises(error, match=message):
            run("average", run_dir, *words)

    refuse(FileNotFoundError, "fewer than the last 7", path, "--last", 7)
    refuse(FileNotFoundError, "is no run directory", tmp_path)
    refuse(SystemExit, "2", path, "--last", 0)
    assert "--last must be at least 1. Received: 0" in capsys.readouterr().err
    taken = tmp_path / "taken"
    taken.touch()
    with pytest.raises(FileExistsError, match="taken exists"):
        average_run(path, taken, [file(path, 1)])
    (path / "tokenizer" / "target.txt").unlink()
    refuse(FileNotFoundError, "target.txt", path)
    assert listing(path.parent) == ["m"]
