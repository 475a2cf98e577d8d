from __future__ import annotations

import h5py
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.runs.averaging import (
    EPOCH_WEIGHTS,
    average_weights,
    epoch_weights,
    weight_names,
)
from keras_luong.runs.directory import RunDirectory


def saved(path, *arrays, **variables):
    """A file as Keras lays it out."""
    with h5py.File(path, "w") as file:
        for i, array in enumerate(arrays):
            file[f"layers/dense/vars/{i}"] = array
        for name, value in variables.items():
            file[f"{name}/vars/0"] = value
    return path


def read(path, name="layers/dense/vars/0"):
    with h5py.File(path) as file:
        return file[name][()]


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
    out = average_weights(paths, tmp_path / "mean.weights.h5")
    assert out == tmp_path / "mean.weights.h5"
    fresh = Seq2Seq(model.config)
    fresh.load_weights(out)
    for variable, values in zip(
        fresh.variables, zip(*states, strict=True), strict=True
    ):
        if variable.dtype == "float32":
            expected = np.mean(values, axis=0, dtype="float64")
            np.testing.assert_allclose(variable, expected, rtol=1e-7, atol=1e-12)
            assert not np.array_equal(values[0], values[2])


def test_what_is_no_float_is_the_last_ones(tmp_path):
    """Seeds and counters: a seed halfway between two others is nobody's."""
    seeds = np.array([[1, 10], [2, 30]], "uint32")
    paths = [
        saved(tmp_path / f"{i}.weights.h5", [float(i)], seed=seed, counter=7 + i)
        for i, seed in enumerate(seeds)
    ]
    for order, last in ((paths, 1), (paths[::-1], 0)):
        out = average_weights(order, tmp_path / "mean.weights.h5")
        assert read(out).tolist() == [0.5]
        assert read(out, "seed/vars/0").dtype == "uint32"
        assert read(out, "seed/vars/0").tolist() == seeds[last].tolist()
        assert read(out, "counter/vars/0") == 7 + last


def test_the_optimizer_is_left_out(trained, tmp_path):
    paths = trained[1]
    out = average_weights(paths, tmp_path / "mean.weights.h5")
    assert out.stat().st_size < paths[0].stat().st_size
    with h5py.File(paths[0]) as before, h5py.File(out) as after:
        assert set(before) - set(after) == {"optimizer"}
        name = before["layers/embedding/vars"].attrs["name"]
        assert after["layers/embedding/vars"].attrs["name"] == name


def test_with_and_without_an_optimizer_fit_together(tmp_path):
    one = saved(tmp_path / "1.weights.h5", [1.0], optimizer=[5.0])
    other = saved(tmp_path / "2.weights.h5", [4.0])
    for paths in ([one, other], [other, one]):
        out = average_weights(paths, tmp_path / "mean.weights.h5")
        assert read(out).tolist() == [2.5]
        with h5py.File(out) as file:
            assert list(file) == ["layers"]


def test_sums_are_float64(tmp_path):
    """Added up in float32, 1e8 + 1 - 1e8 is 0."""
    values = [1e8, 1.0, -1e8]
    paths = [
        saved(tmp_path / f"{i}.weights.h5", np.array([value], "float32"))
        for i, value in enumerate(values)
    ]
    mean = read(average_weights(paths, tmp_path / "mean.weights.h5"))
    assert mean.dtype == np.float32
    np.testing.assert_allclose(mean, [1 / 3], rtol=1e-7)


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
        saved(directory / f"{i}.weights.h5", array, [i])
        for i, array in enumerate(arrays)
    ]
    out = average_weights(paths, directory / "mean.weights.h5")
    expected = np.mean(arrays, axis=0, dtype="float64").astype(dtype)
    assert read(out).dtype == dtype and read(out).shape == shape
    np.testing.assert_allclose(read(out), expected, rtol=np.finfo(dtype).eps * 2)
    assert read(out, "layers/dense/vars/1").tolist() == [count - 1]  # the last one's


def test_bfloat16(tmp_path):
    keras.config.set_dtype_policy("bfloat16")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    paths = []
    for i, value in enumerate([1.0, 2.5]):
        model.set_weights([np.full([2, 1], value), np.full([1], -value)])
        paths.append(tmp_path / f"{i}.weights.h5")
        model.save_weights(paths[-1])
    model.load_weights(average_weights(paths, tmp_path / "mean.weights.h5"))
    kernel, bias = (np.asarray(x, "float32") for x in model.get_weights())
    assert kernel.tolist() == [[1.75], [1.75]] and bias.tolist() == [-1.75]
    assert model.weights[0].dtype == "bfloat16"


def test_names(tmp_path):
    path = saved(tmp_path / "a.weights.h5", [1.0], [2.0], optimizer=[3.0], seed=[4])
    names = ["layers/dense/vars/0", "layers/dense/vars/1", "seed/vars/0"]
    assert weight_names(str(path)) == names


def test_may_replace_what_it_reads(tmp_path):
    one = saved(tmp_path / "1.weights.h5", [1.0])
    other = saved(tmp_path / "2.weights.h5", [4.0])
    average_weights([one, other], one)
    assert read(one).tolist() == [2.5] and read(other).tolist() == [4.0]
    assert len(list(tmp_path.iterdir())) == 2


class TestRefusals:
    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ([np.zeros([2, 4]), np.zeros(3)], r"vars/0: float \(2, 4\) there, .*2, 3"),
            ([np.zeros([2, 3])], r"vars/1: missing there, float \(3,\) in .*last"),
            ([np.zeros([2, 3]), np.zeros(3), np.zeros(1)], r"vars/2: .*, missing in"),
            ([np.zeros([2, 3]), np.zeros(3, "int32")], r"vars/1: int32 \(3,\) there"),
            ([np.zeros(1)] * 9, r"vars/0: .*vars/4.* and 4 more"),
        ],
    )
    def test_other_structures(self, tmp_path, arrays, message):
        last = saved(tmp_path / "last.weights.h5", np.zeros([2, 3]), np.zeros(3))
        other = saved(tmp_path / "other.weights.h5", *arrays)
        message = f"other.weights.h5 holds .* than .*last.weights.h5: .*{message}"
        with pytest.raises(ValueError, match=message):
            average_weights([last, other, last], tmp_path / "mean.weights.h5")
        assert len(list(tmp_path.iterdir())) == 2

    def test_another_architecture(self, trained, tmp_path):
        other = Seq2Seq(Seq2SeqConfig(8, 9, units=4, score_mode="dot"))
        other.save_weights(tmp_path / "dot.weights.h5")
        with pytest.raises(ValueError, match="score/vars/0: missing there"):
            average_weights(
                [tmp_path / "dot.weights.h5", trained[1][0]], tmp_path / "m.weights.h5"
            )

    def test_what_has_no_mean(self, tmp_path):
        path = saved(tmp_path / "q.weights.h5", np.zeros([2], "int8"))
        with pytest.raises(ValueError, match="dense/vars/0 is quantised .int8"):
            average_weights([path], tmp_path / "mean.weights.h5")
        good = saved(tmp_path / "a.weights.h5", [1.0])
        bad = saved(tmp_path / "b.weights.h5", [np.nan])
        with pytest.raises(ValueError, match="mean of layers/dense/vars/0 .*finite"):
            average_weights([bad, good], tmp_path / "mean.weights.h5")
        assert not (tmp_path / "mean.weights.h5").exists()

    @pytest.mark.parametrize("keep", [0, 100, 1000])
    def test_damaged_files(self, tmp_path, keep):
        good = saved(tmp_path / "a.weights.h5", np.zeros(500))
        bad = saved(tmp_path / "b.weights.h5", np.zeros(500))
        bad.write_bytes(bad.read_bytes()[:keep])
        with pytest.raises(ValueError, match="b.weights.h5 is damaged"):
            average_weights([good, bad], tmp_path / "mean.weights.h5")

    def test_wrong_arguments(self, tmp_path):
        path = saved(tmp_path / "a.weights.h5", [1.0])
        with pytest.raises(ValueError, match="at least one file"):
            average_weights([], tmp_path / "mean.weights.h5")
        with pytest.raises(TypeError, match="must be a list of paths.*a.weights.h5"):
            average_weights(path, tmp_path / "mean.weights.h5")
        with pytest.raises(TypeError, match="paths must be a path. Received: 3"):
            average_weights([path, 3], tmp_path / "mean.weights.h5")
        with pytest.raises(FileNotFoundError, match="no file of weights at .*nowhere"):
            average_weights([path, tmp_path / "nowhere"], tmp_path / "m.weights.h5")
        with pytest.raises(ValueError, match="out must end in .weights.h5.*mean.h5"):
            average_weights([path], tmp_path / "mean.h5")


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
        with pytest.raises(FileNotFoundError, match="epochs .*name the files"):
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
