"""The mean of several files of weights, and the average of a run's epochs as a run."""

from __future__ import annotations

import re
import shutil

import keras
import ml_dtypes
import numpy as np
import pytest
from commands import run, run_checked
from small_translator import word_translator, written_run

import keras_luong
from keras_luong.decoding import BeamSearch
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.runs.average import (
    EPOCH_WEIGHTS,
    average_run,
    epoch_weights,
    load_average,
)
from keras_luong.runs.run import RunDirectory, check_settings, read_record


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


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("shape", [(), (2, 0), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
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
    for order in (range(count), range(count)[::-1]):
        load_average(model, [str(paths[i]) for i in order])
        mean, *counters = model.get_weights()
        expected = np.mean(np.stack(arrays).astype("float64"), axis=0).astype(dtype)
        assert mean.dtype == dtype and mean.shape == shape
        one, other = (x.astype("float64") for x in (mean, expected))
        np.testing.assert_allclose(one, other, rtol=1e-14)
        assert [x.tolist() for x in counters] == [
            [order[-1], 10 * order[-1]],
            order[-1],
        ]


def test_what_keras_writes_of_a_training_is_averaged_without_the_optimizer(tmp_path):
    """`ModelCheckpoint` takes the convention of names as its file name."""

    def small():
        layers = keras.layers.Dropout(0.3), keras.layers.Dense(1)
        return keras.Sequential([keras.Input((2,)), *layers])

    model, seen = small(), []
    model.compile("adam", "mse", run_eagerly=True)
    place = str(RunDirectory(tmp_path).path / EPOCH_WEIGHTS)
    keep = keras.callbacks.ModelCheckpoint(place, save_weights_only=True)
    note = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(model.get_weights())
    )
    x = np.ones([2, 2])
    model.fit(x, x[:, :1], epochs=3, callbacks=[keep, note], verbose=0)
    paths = epoch_weights(tmp_path, last=2)
    names = ["epoch-0002.weights.h5", "epoch-0003.weights.h5"]
    assert [path.name for path in paths] == names
    load_average(fresh := small(), paths)
    for mean, *values in zip(fresh.get_weights(), *seen[1:], strict=True):
        np.testing.assert_allclose(mean, sum(values) / 2, rtol=1e-6)
    assert not np.array_equal(seen[1][0], seen[2][0])


@pytest.mark.parametrize("shapes", [[(2, 4), 3], [(2, 3)], [(2, 3), 3, 1]])
def test_weights_of_another_model_are_refused(shapes, tmp_path):
    own = [np.zeros([2, 3]), np.zeros(3)]
    good = saved(tmp_path / "good.weights.h5", *own)
    other = saved(tmp_path / "other.weights.h5", *map(np.zeros, shapes))
    with pytest.raises(ValueError, match="other.weights.h5 is .*another model"):
        load_average(made(*own), [good, other, good])


def test_what_has_no_mean_is_refused(tmp_path):
    quantised = [[1.0], np.zeros([2], "int8")]
    path = saved(tmp_path / "q.weights.h5", *quantised)
    with pytest.raises(ValueError, match="is quantised .int8"):
        load_average(made(*quantised), [path])
    good = saved(tmp_path / "a.weights.h5", [1.0])
    bad = saved(tmp_path / "b.weights.h5", [np.nan])
    model = made([0.0])
    with pytest.raises(ValueError, match="The mean of weights.* is not finite"):
        load_average(model, [bad, good])
    for error, message, paths in (
        (ValueError, "at least one file", []),
        (TypeError, "must be a list of paths.*a.weights.h5", good),
        (TypeError, "weights must be a path. Received: 3", [good, 3]),
        (FileNotFoundError, "no file of weights .*nowhere", [tmp_path / "nowhere"]),
    ):
        with pytest.raises(error, match=message):
            load_average(model, paths)


@pytest.mark.parametrize("keep", [0, 100, 1000])
def test_damaged_files_are_named(keep, tmp_path):
    good = saved(tmp_path / "a.weights.h5", np.zeros(500))
    bad = saved(tmp_path / "b.weights.h5", np.zeros(500))
    bad.write_bytes(bad.read_bytes()[:keep])
    with pytest.raises(ValueError, match="b.weights.h5 is damaged"):
        load_average(made(np.zeros(500)), [good, bad])


def test_epochs_are_in_the_order_of_their_numbers(tmp_path):
    (tmp_path / "epochs").mkdir()
    for number in (2, 10, 9, 10000, 1):
        (tmp_path / EPOCH_WEIGHTS.format(epoch=number)).touch()
    for stranger in ("epoch-0003.weights.h5.tmp", ".epoch-0004.weights.h5", "x"):
        (tmp_path / "epochs" / stranger).touch()
    numbers = [int(path.name[6:-11]) for path in epoch_weights(tmp_path)]
    assert numbers == [1, 2, 9, 10, 10000]
    assert epoch_weights(str(tmp_path), last=2) == [
        tmp_path / "epochs/epoch-0010.weights.h5",
        tmp_path / "epochs/epoch-10000.weights.h5",
    ]
    assert epoch_weights(tmp_path, last=5) == epoch_weights(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"5 epochs \(1, 2, 9.*last 6"):
        epoch_weights(tmp_path, last=6)


def test_where_there_are_no_epochs(tmp_path):
    with pytest.raises(FileNotFoundError, match="no weights.*epoch-0001.weights"):
        epoch_weights(tmp_path)
    (tmp_path / "epochs").mkdir()
    with pytest.raises(FileNotFoundError, match="epochs.*name the files"):
        epoch_weights(tmp_path, 3)
    with pytest.raises(ValueError, match="last must be at least 1"):
        epoch_weights(tmp_path, 0)
    with pytest.raises(TypeError, match="run_dir"):
        epoch_weights(None)


# Runs.


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of six epochs; after each, all weights are 2 to the power of its number."""
    translator = word_translator(BeamSearch(3, max_length=7))
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
    weights = keras_luong.load(run_dir).model.get_weights()
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
    translator = keras_luong.load(out)
    assert len(translator.translate(["the dog", ""])) == 2
    assert translator.search == BeamSearch(3, max_length=7)
    assert listing(out) == ["model.weights.h5", "run.json", "tokenizer"]
    assert listing(path) == before and listing(out.parent) == ["m", "m-average"]
    # But no training goes on in it.
    settings = read_record(out)["settings"]
    assert settings == {"epochs": 3, "average_of": averaged}
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
@pytest.mark.parametrize("changes", [{"num_layers": 2}, {"units": 6}])
def test_a_run_takes_no_weights_of_another_model(path, tmp_path, changes):
    """Of the larger one, Keras alone would load the first layer, and be quiet."""
    other = tmp_path / "other.weights.h5"
    Seq2Seq(Seq2SeqConfig(9, 7, **{"units": 4, **changes})).save_weights(other)
    for paths in ([other], [other, file(path, 1)], [file(path, 1), other]):
        with pytest.raises(ValueError, match="other.weights.h5 .*another model"):
            average_run(path, path.parent / "out", paths)
    assert listing(path.parent) == ["m"]  # nothing half done is left behind


def test_what_is_missing_is_named_and_what_is_there_stays(path, tmp_path, capsys):
    def refuse(error, message, run_dir, *words):
        with pytest.raises(error, match=message):
            run("average", run_dir, *words)

    refuse(FileNotFoundError, "fewer than the last 7", path, "--last", 7)
    refuse(FileNotFoundError, "no run directory at .*nowhere", "nowhere")
    refuse(FileNotFoundError, "is no run directory", tmp_path)
    refuse(FileNotFoundError, "no file.*x", path, "--weights", "x")
    refuse(SystemExit, "2", path, "--last", 0)
    assert "--last must be at least 1. Received: 0" in capsys.readouterr().err
    taken = tmp_path / "taken"
    taken.touch()
    with pytest.raises(FileExistsError, match="taken exists"):
        average_run(path, taken, [file(path, 1)])
    (path / "tokenizer" / "target.txt").unlink()
    refuse(FileNotFoundError, "target.txt", path)
    shutil.rmtree(path / "epochs")
    refuse(FileNotFoundError, "no weights of single epochs in", path)
    assert listing(path.parent) == ["m"]
