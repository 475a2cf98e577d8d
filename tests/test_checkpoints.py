from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_training import small_model, write_corpus

from keras_luong.runs import checkpoints
from keras_luong.runs.checkpoints import Checkpoints, newest_common
from keras_luong.runs.epochs import FollowEpoch, fit
from keras_luong.runs.run import RunDirectory
from keras_luong.training.optimizers import make_optimizer

BATCHES = 5


def small_data(seed):
    labels = np.random.default_rng(0).integers(1, 9, (BATCHES * 2, 4))
    weights = np.full(labels.shape, 1 / 8, "float32")
    data = tf.data.Dataset.from_tensor_slices((np.roll(labels, 1, 1), labels, weights))
    return data.shuffle(10, seed=seed).batch(2)


class Interrupt(keras.callbacks.Callback):
    """Something happens after so many steps."""

    def __init__(self, after, what):
        super().__init__()
        self.left, self.what = after, what

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            self.what(self.model)


def fail(model):
    raise RuntimeError("power cut")


def train(run_dir, epochs=3, steps=2, interrupt=(), **options):
    model = small_model(make_optimizer("adam", 0.01, **options))
    checkpoints = Checkpoints(run_dir, steps=steps)
    started_at = checkpoints.restore(model)
    follow = FollowEpoch(started_at)
    fit(
        model,
        follow.batches(small_data),
        epochs,
        checkpoints,
        callbacks=[follow, *interrupt, checkpoints],
        verbose=0,
    )
    return model, started_at


def assert_equal(model, other):
    variables = zip(
        [*model.weights, *model.optimizer.variables],
        [*other.weights, *other.optimizer.variables],
        strict=True,
    )
    for one, two in variables:
        np.testing.assert_allclose(one, two, atol=1e-6, err_msg=one.path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole"))[0]


@pytest.mark.parametrize(
    "after, position",
    [
        pytest.param(1, (0, 0), marks=pytest.mark.slow),
        (4, (0, 2)),
        pytest.param(5, (0, 4), marks=pytest.mark.slow),
        pytest.param(6, (1, 0), marks=pytest.mark.slow),
        pytest.param(14, (2, 2), marks=pytest.mark.slow),
    ],
)
def test_going_on_equals_never_stopping(tmp_path, whole, after, position):
    with pytest.raises(RuntimeError, match="power cut"):
        train(tmp_path, interrupt=[Interrupt(after, fail)])
    model, started_at = train(tmp_path)
    assert started_at == position
    assert_equal(model, whole)
    model, started_at = train(tmp_path)  # there is nothing left to do
    assert started_at == (3, 0)
    assert_equal(model, whole)


@pytest.mark.slow
def test_goes_on_in_a_relative_directory_that_was_moved(tmp_path, whole, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for after, run_dir in ((4, "runs/a"), (3, "runs/a")):
        with pytest.raises(RuntimeError, match="power cut"):
            train(run_dir, interrupt=[Interrupt(after, fail)])
    (tmp_path / "runs").rename("other")
    model, started_at = train("other/a")
    assert started_at == (0, 4)
    assert_equal(model, whole)


ALL = {"gradient_accumulation_steps": 2, "ema_momentum": 0.9, "loss_scaling": True}


@pytest.mark.slow
@pytest.mark.parametrize("after", [3, 6])
def test_going_on_with_all_options(tmp_path, after):
    """Gradients half accumulated, an average, and `fit` that puts it into the model."""
    whole, _ = train(tmp_path / "whole", **ALL)
    with pytest.raises(RuntimeError, match="power cut"):
        train(tmp_path, interrupt=[Interrupt(after, fail)], **ALL)
    assert_equal(train(tmp_path, **ALL)[0], whole)


def test_an_error_in_fit_leaves_the_signals_alone(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError, match="power cut"):
        train(tmp_path, interrupt=[Interrupt(1, fail)])
    assert signal.getsignal(signal.SIGINT) == before


def test_machines_go_on_from_what_all_of_them_have():
    class Machines:
        """A strategy's way to tell each machine what the others have."""

        def __init__(self, *others):
            self.others = np.array(others, np.int64).reshape(-1, 2)

        def gather(self, mine):
            return np.concatenate([mine, self.others])

    def newest(mine, *others):
        return newest_common(mine, 2, Machines(*others).gather)

    assert newest([4, 6]) == 6
    assert newest([4, 6], [2, 4]) == 4
    assert newest([4, 6], [4, 6]) == 6
    assert newest([6, 4], [2, -1]) == -1
    assert newest([], [2, 4]) == -1
    assert newest([], [-1, -1]) is None


@pytest.mark.parametrize("saved", [True, False])
def test_a_machine_killed_before_its_first_checkpoint(tmp_path, monkeypatch, saved):
    """The others have saved the beginning; its own beginning is the same."""
    model = small_model(make_optimizer("adam", 0.01))
    if saved:
        Checkpoints(tmp_path).restore(model)
    seen = []

    def gather(strategy, mine):
        seen.append(mine.tolist())
        return np.concatenate([mine, [[0, -1]]])

    monkeypatch.setattr(checkpoints, "gather_rows", gather)
    assert Checkpoints(tmp_path).restore(model) == (0, 0)
    assert seen == [[[0, -1]]]


def test_a_new_machine_needs_checkpoints_of_another(tmp_path, monkeypatch):
    def gather(strategy, mine):
        return np.concatenate([mine, [[4, 6]]])

    monkeypatch.setattr(checkpoints, "gather_rows", gather)
    with pytest.raises(OSError, match="give each machine a copy of the run"):
        Checkpoints(tmp_path).restore(small_model(make_optimizer("adam", 0.01)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(tmp_path, whole, number):
    before = signal.getsignal(number)
    ask = Interrupt(3, lambda model: os.kill(os.getpid(), number))
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, steps=100, interrupt=[ask])
    assert signal.getsignal(number) == before
    model, started_at = train(tmp_path)
    assert started_at[0] == 0 and 3 <= started_at[1] <= 4
    assert_equal(model, whole)


def newest(run_dir):
    files = RunDirectory(run_dir).checkpoints.glob("*.data-*")
    return max(files, key=lambda path: int(path.name.split("-")[1].split(".")[0]))


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over(tmp_path, whole):
    with pytest.raises(RuntimeError):
        train(tmp_path, interrupt=[Interrupt(10, fail)])
    data = bytearray(newest(tmp_path).read_bytes())
    data[len(data) // 2] ^= 0xFF
    newest(tmp_path).write_bytes(data)
    with pytest.warns(UserWarning, match="cannot be read"):
        model, started_at = train(tmp_path)
    assert started_at == (1, 2)
    assert_equal(model, whole)


def test_only_damaged_checkpoints_are_an_error(tmp_path):
    train(tmp_path, epochs=1)
    for path in RunDirectory(tmp_path).checkpoints.glob("*.data-*"):
        path.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="cannot be read"),
        pytest.raises(OSError, match="None of the checkpoints"),
    ):
        train(tmp_path)


@pytest.mark.slow
def test_ruined_weights_are_not_saved(tmp_path, whole):
    def ruin(model):
        model.layers[-1].kernel.assign(model.layers[-1].kernel * np.nan)

    with pytest.raises(FloatingPointError, match="step 2 of epoch 2"):
        train(tmp_path, interrupt=[Interrupt(BATCHES + 2, ruin)])
    model, started_at = train(tmp_path)
    assert started_at == (1, 0)
    assert_equal(model, whole)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["garbage ~~", "", None])
def test_the_list_of_checkpoints_may_be_lost(tmp_path, whole, text):
    with pytest.raises(RuntimeError):
        train(tmp_path, interrupt=[Interrupt(10, fail)])
    listed = RunDirectory(tmp_path).checkpoints / "checkpoint"
    listed.unlink() if text is None else listed.write_text(text)
    model, started_at = train(tmp_path)
    assert started_at == (1, 4)
    assert_equal(model, whole)


@pytest.mark.slow
def test_there_may_be_more_than_are_kept(tmp_path, whole, monkeypatch):
    """A machine may lose its power before it drops the oldest."""
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(Path, "unlink", lambda self: None)
        train(tmp_path, interrupt=[Interrupt(10, fail)])
    assert len(list(RunDirectory(tmp_path).checkpoints.glob("*.index"))) > 2
    model, started_at = train(tmp_path)
    assert started_at == (1, 4)
    assert_equal(model, whole)
    assert len(list(RunDirectory(tmp_path).checkpoints.glob("*.index"))) == 2


def test_finished_epochs_without_checkpoints_are_an_error(tmp_path):
    train(tmp_path, epochs=1)
    RunDirectory(tmp_path).history.touch()
    shutil.rmtree(RunDirectory(tmp_path).checkpoints)
    with pytest.raises(OSError, match="finished epochs, but .*no checkpoint"):
        train(tmp_path)


@pytest.mark.parametrize("resuming", [False, True])
def test_too_little_room_is_known_at_once(tmp_path, monkeypatch, resuming):
    if resuming:
        train(tmp_path, epochs=1)
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match="Received: .* with 0 MB free"):
        train(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory_is_known_at_once(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError):
        train(tmp_path)


def test_a_file_in_the_place_of_the_directory_is_known_at_once(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(OSError):
        train(tmp_path / "run")


def command(data, run_dir):
    flags = "--source xx --target yy --preset small --units 8 --tokenizer word"
    flags += " --optimizer adam --batch_tokens 30 --epochs 6 --save_steps 5"
    flags += " --dropout 0.3 --eval_sentences 4 --beam_width 2"
    places = ["--data", data, "--run_dir", run_dir]
    train = [sys.executable, "-m", "keras_luong.cli", "train"]
    return [*train, *map(str, places), *flags.split()]


def weights_of(run_dir):
    run = RunDirectory(run_dir)
    path = tf.train.latest_checkpoint(str(run.checkpoints))
    reader = tf.train.load_checkpoint(path)
    names = (n for n in reader.get_variable_to_shape_map() if n != "save_counter")
    names = (name for name in names if "save_counter" not in name)
    return {name: reader.get_tensor(name) for name in names if "OBJECT" not in name}


def start(data, run_dir):
    return subprocess.Popen(
        command(data, run_dir),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    """Six times, by SIGKILL; the weights are those of a run that was not."""
    data, whole, parts = (tmp_path / name for name in ("data", "whole", "parts"))
    data.mkdir()
    write_corpus(data, train=300, val=8, test=6)
    output, _ = (process := start(data, whole)).communicate()
    assert process.returncode == 0, output[-3000:]
    rng = random.Random(1)
    for _ in range(6):
        process = start(data, parts)
        for line in process.stdout:
            if line.startswith("Epoch"):  # it trains
                break
        time.sleep(rng.uniform(0.0, 5.0))
        assert process.poll() is None  # not done yet
        process.kill()
        process.communicate()
    output, _ = (process := start(data, parts)).communicate()
    assert process.returncode == 0, output[-3000:]
    one, other = weights_of(whole), weights_of(parts)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(other[name], value, atol=1e-6, err_msg=name)
