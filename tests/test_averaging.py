from __future__ import annotations

import json

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keras_luong
from keras_luong.decoding.beam import BeamSearch
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.runs.average import (
    EPOCH_WEIGHTS,
    average_run,
    epoch_weights,
    load_average,
)
from keras_luong.runs.run import RunDirectory, check_settings, write_record
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer


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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model with dropout, as it was after each of three epochs, optimizer and all."""
    directory = tmp_path_factory.mktemp("trained")
    model = Seq2Seq(Seq2SeqConfig(8, 9, units=4, dropout=0.3))
    model.compile("adam", "mse")
    rng = np.random.default_rng(0)
    x = {name: rng.integers(3, 8, [4, 5]) for name in ("source", "target")}
    paths, states = [], []
    for epoch in range(3):
        model.train_on_batch(x, rng.normal(size=[4, 5, 9]))
        paths.append(directory / f"{epoch}.weights.h5")
        model.save_weights(paths[-1])
        states.append([v.numpy() for v in model.variables])
    return model, paths, states


def test_a_model_gets_the_mean_of_its_weights(trained, tmp_path):
    model, paths, states = trained
    fresh = Seq2Seq(model.config)
    load_average(fresh, list(map(str, paths)))
    for variable, values in zip(
        fresh.variables, zip(*states, strict=True), strict=True
    ):
        if variable.dtype == "float32":
            expected = np.mean(values, axis=0, dtype="float64")
            np.testing.assert_allclose(variable, expected, rtol=1e-7, atol=1e-12)
            assert not np.array_equal(values[0], values[2])
    fresh.save_weights(tmp_path / "mean.weights.h5")  # without an optimizer
    assert (tmp_path / "mean.weights.h5").stat().st_size < paths[0].stat().st_size
    load_average(fresh, [tmp_path / "mean.weights.h5", paths[0]])


def test_what_is_no_float_is_the_last_ones(tmp_path):
    """A counter halfway between two others is nobody's."""
    one = saved(tmp_path / "1.weights.h5", [0.0], np.array([1, 10], "uint32"), 7)
    other = saved(tmp_path / "2.weights.h5", [1.0], np.array([2, 30], "uint32"), 8)
    model = made([0.0], np.array([0, 0], "uint32"), 0)
    for order, last in (([one, other], ([2, 30], 8)), ([other, one], ([1, 10], 7))):
        load_average(model, order)
        mean, *rest = (weight.tolist() for weight in model.get_weights())
        assert mean == [0.5] and tuple(rest) == last


def test_sums_are_float64(tmp_path):
    """Added up in float32, 1e8 + 1 - 1e8 is 0."""
    paths = [
        saved(tmp_path / f"{i}.weights.h5", np.array([value], "float32"))
        for i, value in enumerate([1e8, 1.0, -1e8])
    ]
    load_average(model := made(np.zeros(1, "float32")), paths)
    np.testing.assert_allclose(model.get_weights()[0], [1 / 3], rtol=1e-7)


@pytest.mark.slow
@settings(max_examples=20, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(), (3,), (2, 0), (2, 3, 4)]),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    count=st.integers(1, 5),
)
def test_equals_numpy(tmp_path_factory, seed, shape, dtype, count):
    directory = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(rng.normal(size=shape), dtype) for _ in range(count)]
    paths = [
        saved(directory / f"{i}.weights.h5", array) for i, array in enumerate(arrays)
    ]
    load_average(model := made(np.zeros(shape, dtype)), paths)
    expected = np.mean(arrays, axis=0, dtype="float64").astype(dtype)
    (mean,) = model.get_weights()
    assert mean.dtype == dtype and mean.shape == shape
    np.testing.assert_allclose(mean, expected, rtol=np.finfo(dtype).eps * 2)


def test_bfloat16(tmp_path):
    keras.config.set_dtype_policy("bfloat16")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    paths = []
    for i, value in enumerate([1.0, 2.5]):
        model.set_weights([np.full([2, 1], value), np.full([1], -value)])
        paths.append(tmp_path / f"{i}.weights.h5")
        model.save_weights(paths[-1])
    load_average(model, paths)
    kernel, bias = (np.asarray(x, "float32") for x in model.get_weights())
    assert kernel.tolist() == [[1.75], [1.75]] and bias.tolist() == [-1.75]
    assert model.weights[0].dtype == "bfloat16"


class TestRefusals:
    @pytest.mark.parametrize(
        "arrays",
        [
            [np.zeros([2, 4]), np.zeros(3)],
            [np.zeros([2, 3])],
            [np.zeros([2, 3]), np.zeros(3), np.zeros(1)],
        ],
    )
    def test_weights_of_another_model(self, tmp_path, arrays):
        own = [np.zeros([2, 3]), np.zeros(3)]
        good = saved(tmp_path / "good.weights.h5", *own)
        other = saved(tmp_path / "other.weights.h5", *arrays)
        with pytest.raises(ValueError, match="other.weights.h5 is .*another model"):
            load_average(made(*own), [good, other, good])

    def test_another_architecture(self, trained, tmp_path):
        other = Seq2Seq(Seq2SeqConfig(8, 9, units=4, score_mode="dot"))
        other.save_weights(tmp_path / "dot.weights.h5")
        with pytest.raises(ValueError, match="dot.weights.h5 .*another model"):
            paths = [tmp_path / "dot.weights.h5", trained[1][0]]
            load_average(Seq2Seq(trained[0].config), paths)

    def test_what_has_no_mean(self, tmp_path):
        arrays = [[1.0], np.zeros([2], "int8")]
        path = saved(tmp_path / "q.weights.h5", *arrays)
        with pytest.raises(ValueError, match="is quantised .int8"):
            load_average(made(*arrays), [path])
        good = saved(tmp_path / "a.weights.h5", [1.0])
        bad = saved(tmp_path / "b.weights.h5", [np.nan])
        with pytest.raises(ValueError, match="The mean of weights.* is not finite"):
            load_average(made([0.0]), [bad, good])

    @pytest.mark.parametrize("keep", [0, 100, 1000])
    def test_damaged_files(self, tmp_path, keep):
        good = saved(tmp_path / "a.weights.h5", np.zeros(500))
        bad = saved(tmp_path / "b.weights.h5", np.zeros(500))
        bad.write_bytes(bad.read_bytes()[:keep])
        with pytest.raises(ValueError, match="b.weights.h5 is damaged"):
            load_average(made(np.zeros(500)), [good, bad])

    def test_wrong_arguments(self, tmp_path):
        model = made([1.0])
        path = saved(tmp_path / "a.weights.h5", [1.0])
        with pytest.raises(ValueError, match="at least one file"):
            load_average(model, [])
        with pytest.raises(TypeError, match="must be a list of paths.*a.weights.h5"):
            load_average(model, path)
        with pytest.raises(TypeError, match="weights must be a path. Received: 3"):
            load_average(model, [path, 3])
        with pytest.raises(FileNotFoundError, match="no file of weights .*nowhere"):
            load_average(model, [path, tmp_path / "nowhere"])


class TestEpochs:
    def test_in_the_order_of_their_numbers(self, tmp_path):
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

    def test_none(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="no weights.*epoch-0001.weights"):
            epoch_weights(tmp_path)
        (tmp_path / "epochs").mkdir()
        with pytest.raises(FileNotFoundError, match="epochs.*name the files"):
            epoch_weights(tmp_path, 3)
        with pytest.raises(ValueError, match="last must be at least 1"):
            epoch_weights(tmp_path, 0)
        with pytest.raises(TypeError, match="run_dir"):
            epoch_weights(None)

    def test_keras_writes_what_is_read(self, tmp_path):
        """`ModelCheckpoint` takes the convention as its file name."""
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        keep = keras.callbacks.ModelCheckpoint(
            str(RunDirectory(tmp_path).path / EPOCH_WEIGHTS), save_weights_only=True
        )
        x = np.ones([2, 1])
        model.fit(x, x, epochs=2, callbacks=[keep], verbose=0)
        names = [path.name for path in epoch_weights(tmp_path)]
        assert names == ["epoch-0001.weights.h5", "epoch-0002.weights.h5"]


SETTINGS = {"units": 4, "epochs": 6}


@pytest.fixture
def run(tmp_path):
    """A run of six epochs; after each, all weights are 2 to the power of its number."""
    run = RunDirectory(tmp_path / "runs" / "m")
    pair = TokenizerPair(WordTokenizer(list("abcd")), WordTokenizer(list("ABCDE")))
    pair.save(run.tokenizer)
    model = Seq2Seq(Seq2SeqConfig(8, 9, units=4))
    write_record(run.path, model, BeamSearch(3, max_length=7), 20, SETTINGS)
    run.epochs.mkdir()
    for epoch in range(1, 7):
        for weight in model.weights:
            weight.assign(keras.ops.full_like(weight, 2.0**epoch))
        model.save_weights(run.path / EPOCH_WEIGHTS.format(epoch=epoch))
    return run


def listing(directory):
    return sorted(path.name for path in directory.iterdir())


class TestAverageOfARun:
    @pytest.mark.slow
    def test_is_a_run(self, run, tmp_path):
        before = listing(run.path)
        out = tmp_path / "deep" / "down"
        paths = epoch_weights(run.path, last=5)
        assert average_run(str(run.path), str(out), paths) == out
        translator = keras_luong.load(out)
        assert len(translator.translate(["a b", ""])) == 2
        assert translator.search == BeamSearch(3, max_length=7)
        for weight in translator.model.get_weights():
            np.testing.assert_allclose(weight, (4 + 8 + 16 + 32 + 64) / 5, 1e-7)
        assert listing(out) == ["model.weights.h5", "run.json", "tokenizer"]
        assert listing(run.path) == before and listing(out.parent) == ["down"]
        record = json.loads(RunDirectory(out).record.read_text())
        expected = {**SETTINGS, "average_of": list(map(str, paths))}
        assert record["settings"] == expected

    def test_training_does_not_go_on_in_it(self, run, tmp_path):
        assert check_settings(run.path, SETTINGS)
        average_run(run.path, tmp_path / "out", epoch_weights(run.path, last=1))
        with pytest.raises(ValueError, match="other settings.*average_of"):
            check_settings(tmp_path / "out", SETTINGS)

    def test_replaces_nothing(self, run, tmp_path):
        paths, out = epoch_weights(run.path, last=1), tmp_path / "out"
        out.mkdir()
        average_run(run.path, out, paths)
        with pytest.raises(FileExistsError, match="out exists"):
            average_run(run.path, out, paths)
        (tmp_path / "file").touch()
        with pytest.raises(FileExistsError, match="file exists"):
            average_run(run.path, tmp_path / "file", paths)

    @pytest.mark.filterwarnings("ignore:Skipping nested container")
    @pytest.mark.parametrize("changes", [{"num_layers": 2}, {"units": 6}])
    def test_weights_of_another_model(self, run, tmp_path, changes):
        """Of the larger one, Keras alone would load the first layer, and be quiet."""
        other = Seq2Seq(Seq2SeqConfig(8, 9, **{"units": 4, **changes}))
        path = tmp_path / "other.weights.h5"
        other.save_weights(path)
        good = run.path / EPOCH_WEIGHTS.format(epoch=1)
        for paths in ([path], [path, good], [good, path]):
            with pytest.raises(ValueError, match="other.weights.h5 .*another model"):
                average_run(run.path, run.path.parent / "out", paths)
        assert listing(run.path.parent) == ["m"]  # nothing half done is left behind

    def test_what_is_missing_is_named(self, run, tmp_path):
        def refuse(message, run_dir, paths):
            with pytest.raises(FileNotFoundError, match=message):
                average_run(run_dir, tmp_path / "out", paths)
            assert not (tmp_path / "out").exists()

        paths = epoch_weights(run.path)
        refuse("no run directory at .*nowhere", tmp_path / "nowhere", paths)
        refuse("is no run directory", tmp_path, paths)
        refuse("no file of weights .*nowhere", run.path, [tmp_path / "nowhere"])
        (run.tokenizer / "target.txt").unlink()
        refuse("target.txt", run.path, paths)
