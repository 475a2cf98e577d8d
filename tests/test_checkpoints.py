"""A training that is killed at any moment goes on as if it had not been.

Where its directory is damaged, or another one by now, it says so and writes nothing.
"""

import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_training import small_data, small_model, train_words

from keras_luong.cli.main import main
from keras_luong.runs import checkpoints as module
from keras_luong.runs.callbacks import SaveWeights, StepCurves, training_callbacks
from keras_luong.runs.checkpoints import Checkpoints, check_history, newest_common
from keras_luong.runs.epochs import FollowEpoch, fit
from keras_luong.runs.load_save import load, read_logs, save_weights
from keras_luong.runs.run import RunDirectory, lock_run, read_history
from keras_luong.training.metrics import Perplexity
from keras_luong.training.optimizers import make_optimizer

EPOCHS, BATCHES = 2, 3
#: All kinds of state: moments, half accumulated gradients, an average, a loss's scale.
ALL = {"gradient_accumulation_steps": 2, "ema_momentum": 0.9, "loss_scaling": True}


class After(keras.callbacks.Callback):
    """Something happens after so many steps."""

    def __init__(self, left, what):
        super().__init__()
        self.left, self.what = left, what

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            self.what()


def power_cut():
    raise RuntimeError("power cut")


def new_model(metrics=(), eager=True):
    model = small_model(make_optimizer("adam", 0.01, **ALL), metrics)
    model.run_eagerly = eager  # to trace it takes longer than to train it
    return model


def train(run_dir, *callbacks, epochs=EPOCHS, steps=2, eager=True):
    """Trains a tiny model as a run is trained, from where that was."""
    perplexity = Perplexity()
    model = new_model([perplexity], eager)
    checkpoints = Checkpoints(run_dir, steps=steps)
    follow = FollowEpoch(checkpoints.restore(model))
    place = keras.callbacks.LambdaCallback(on_test_begin=checkpoints.check_place)
    data = small_data(BATCHES).unbatch()
    batches = follow.batches(lambda epoch: data.shuffle(10, epoch + 1).batch(2))
    callbacks = [place, follow, *callbacks], [checkpoints]
    callbacks = training_callbacks(run_dir, perplexity, *callbacks)
    given = {"validation_data": small_data(batches=1), "callbacks": callbacks}
    fit(model, batches, epochs, checkpoints, **given, verbose=0)
    return model, checkpoints.position


def restored(run_dir):
    """The model of a training that would go on, and the position."""
    model = new_model()
    return model, Checkpoints(run_dir).restore(model)


def state_of(model):
    return [*model.weights, *module.seeds_of(model), *model.optimizer.variables]


def assert_equal(model, other):
    for one, two in zip(*map(state_of, (model, other)), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6, err_msg=one.path)


@pytest.fixture(scope="session")
def wholes(tmp_path_factory):
    """Trainings that were never stopped: their model, directory, and what they saved.

    One in a graph draws once more: when it is traced.
    """

    @functools.cache
    def whole(eager):
        path = tmp_path_factory.mktemp("runs") / "whole"
        model, _ = train(path, eager=eager)  # at the end `fit` puts the average into it
        return SimpleNamespace(model=model, path=path, saved=restored(path)[0])

    whole(eager=True)
    return whole


@pytest.fixture
def whole(wholes):
    return wholes(eager=True)


@pytest.fixture
def copy(whole, tmp_path):
    return RunDirectory(shutil.copytree(whole.path, tmp_path / "copy"))


SLOWLY = ([1], (0, 0)), ([3, 2], (1, 0)), ([4], (1, 0)), ([6], (1, 2)), ([3], (0, 2))


KILLED = [
    ([3, 4], (1, 2), True),
    *(pytest.param(*case, False, marks=pytest.mark.slow) for case in SLOWLY),
]


@pytest.mark.parametrize("kills, position, eager", KILLED)
def test_going_on_is_the_same(tmp_path, wholes, monkeypatch, kills, position, eager):
    """Also where a relative directory was moved meanwhile."""
    monkeypatch.chdir(tmp_path)
    whole = wholes(eager=eager)
    for after in kills:
        with pytest.raises(RuntimeError, match="power cut"):
            train("runs/a", After(after, power_cut), eager=eager)
    Path("runs").rename("other")
    model, started_at = train("other/a", eager=eager)
    assert started_at == position
    assert_equal(model, whole.model)
    for one, other in zip(*map(read_history, ("other/a", whole.path)), strict=True):
        assert one["epoch"] == other["epoch"]
        assert one["val_loss"] == pytest.approx(other["val_loss"], abs=1e-6)


def test_where_there_is_nothing_left_to_do_nothing_is_done(copy, whole):
    model, started_at = train(copy.path)
    assert started_at == (EPOCHS, 0)
    assert_equal(model, whole.saved)


SIGNALS = [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_saves_and_stops(tmp_path, whole, number):
    before = signal.getsignal(number)
    ask = After(2, lambda: os.kill(os.getpid(), number))
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, ask, steps=100)
    assert signal.getsignal(number) == before
    model, position = train(tmp_path)
    assert position in ((0, 2), (1, 0))
    assert_equal(model, whole.model)


MACHINES = [
    *(([4, 6], [], 6), ([4, 6], [[2, 4]], 4), ([4, 6], [[4, 6], [6, -1]], 6)),
    *(([6, 4], [[2, -1]], -1), ([], [[2, 4]], -1), ([0], [[0, -1]], 0)),
    ([], [[-1, -1]], None),
]


@pytest.mark.parametrize("mine, others, expected", MACHINES)
def test_machines_go_on_from_what_all_of_them_have(mine, others, expected):
    def gather(row):
        assert row.shape == (1, 2) and row.dtype == np.int64
        return np.concatenate([row, np.array(others, np.int64).reshape(-1, 2)])

    assert newest_common(mine, 2, gather) == expected


FIRST = [(True, [0, -1], (0, 0)), (False, [0, -1], (0, 0)), (False, [4, 6], None)]


@pytest.mark.parametrize("saved, other, place", FIRST)
def test_a_machine_killed_before_it_saved(tmp_path, monkeypatch, saved, other, place):
    """If others have saved the beginning: its own is the same. Else it needs theirs."""
    if saved:
        restored(tmp_path)
    seen = []

    def gather(strategy, mine):
        seen.append(mine.tolist())
        return np.concatenate([mine, [other]])

    monkeypatch.setattr(module, "gather_rows", gather)
    if place:
        assert restored(tmp_path)[1] == place
    else:
        with pytest.raises(OSError, match="give each machine a copy of the run"):
            restored(tmp_path)
    assert seen == [[[0, -1]]]


def newest(run, suffix):
    files = run.checkpoints.glob(f"ckpt-*{suffix}")
    return max(files, key=lambda path: int(path.name.split("-")[1].split(".")[0]))


def test_a_damaged_checkpoint_is_passed_over(copy, whole):
    """The one before knows no later epochs, which may be trained again."""
    path = newest(copy, ".data-00000-of-00001")
    data = bytearray(path.read_bytes())
    data[-200] ^= 0xFF  # not where its position is
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="cannot be read"):
        model, started_at = train(copy.path, epochs=EPOCHS)
    assert started_at == (1, 2)
    assert_equal(model, whole.model)
    assert [x["epoch"] for x in read_history(copy.path)] == [1, 2]
    for path in copy.checkpoints.glob("*.data-*"):
        path.write_bytes(b"")
    none = pytest.raises(OSError, match="None of the checkpoints")
    with pytest.warns(UserWarning, match="cannot be read"), none:
        restored(copy.path)


def test_weights_that_are_not_finite_are_not_saved(copy):
    model, checkpoints = new_model(), Checkpoints(copy.path, steps=2)
    checkpoints.restore(model)
    before = sorted(copy.checkpoints.iterdir())
    model.layers[-1].kernel.assign(model.layers[-1].kernel * np.inf)
    checkpoints.on_epoch_begin(EPOCHS)
    checkpoints.on_train_batch_end(0)
    with pytest.raises(FloatingPointError, match="kernel .*step 2 of epoch 3. The"):
        checkpoints.on_train_batch_end(1)
    assert sorted(copy.checkpoints.iterdir()) == before


@pytest.mark.parametrize("text", ["garbage ~~", None])
def test_the_list_of_checkpoints_may_be_lost(copy, whole, text):
    listed = copy.checkpoints / "checkpoint"
    listed.unlink() if text is None else listed.write_text(text)
    (copy.checkpoints / "ckpt-old.index").touch()  # what is none of them
    (copy.checkpoints / "ckpt-.index").mkdir()
    model, started_at = restored(copy.path)
    assert started_at == (EPOCHS, 0)
    assert_equal(model, whole.saved)


def test_there_may_be_more_than_are_kept(copy, monkeypatch):
    """A machine may lose its power before it drops the oldest."""
    kept = lambda: len([*copy.checkpoints.glob("*.index")])  # noqa: E731
    checkpoints = Checkpoints(copy.path)
    checkpoints.restore(new_model())
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda self: None)
        checkpoints.on_epoch_end(3)
    assert kept() == 3
    again = Checkpoints(copy.path)
    assert again.restore(new_model()) == (4, 0)
    again.on_epoch_end(4)
    assert kept() == 2 and again.exist()
    for steps, keep in ((0, 2), (2, 1)):
        with pytest.raises(ValueError, match="must be at least"):
            Checkpoints(copy.path, steps, keep)


@pytest.mark.parametrize("kept", ["history", "last_weights", "best_weights"])
def test_what_a_training_left_without_checkpoints_is_no_new_one(copy, kept):
    shutil.rmtree(copy.checkpoints)
    for name in {"history", "last_weights", "best_weights"} - {kept}:
        getattr(copy, name).unlink()
    with pytest.raises(OSError, match="finished epochs, but .*no checkpoint"):
        restored(copy.path)
    assert not Checkpoints(copy.path).exist()


@pytest.mark.parametrize("resuming", [False, True])
def test_too_little_room_is_known_at_once(copy, tmp_path, monkeypatch, resuming):
    """Two checkpoints and files of weights, one more of each while it is written."""
    model = new_model()
    model.optimizer.build(model.trainable_variables)
    weights = sum(x.numpy().nbytes for x in model.weights)
    state = sum(x.numpy().nbytes for x in model.optimizer.variables)
    there = [*copy.checkpoints.glob("ckpt-*"), copy.best_weights, copy.last_weights]
    there = sum(x.stat().st_size for x in there) if resuming else 0
    needed = max(3 * (state + weights) + 3 * weights - there, state + weights)
    path = copy.path if resuming else tmp_path / "new"
    usage = shutil.disk_usage(tmp_path)._replace(free=needed - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(OSError, match="about 1 MB. Received: .* with 0 MB fr"):
        restored(path)
    usage = usage._replace(free=needed)
    assert restored(path)[1] == ((EPOCHS, 0) if resuming else (0, 0))


def write_lines(path, lines):
    path.write_text("".join(f"{x}\n" for x in lines), errors="surrogateescape")


def edited(lines):
    line = json.loads(lines[1])
    return [lines[0], json.dumps({**line, "val_perplexity": 1e9}), *lines[2:]]


SPOILT = {
    "missing": (None, "has 0 of the [12]"),
    "cut by a line": (lambda lines: lines[:-1], "has [01] of the [12]"),
    "cut in a line": (lambda lines: [*lines[:-1], lines[-1][:20]], "line 2 is dam"),
    "without its first line": (lambda lines: lines[1:], "has [01] of the [12]"),
    "not UTF-8": (lambda lines: [*lines[:-1], "\udcff"], "line 2 is damaged"),
    "null": (lambda lines: [*lines, "null"], "line 3 is damaged"),
    "no epoch": (lambda lines: [*lines, "{}"], "line 3 is damaged"),
    "a line twice": (lambda lines: [lines[0], *lines], "has other values of the [12]"),
    "edited": (edited, "has other values of the [12]"),
}


@pytest.mark.parametrize("change, said", SPOILT.values(), ids=SPOILT)
def test_w4_a_history_that_is_not_the_checkpoints_is_refused(copy, change, said):
    check_history(copy.path)
    if change is None:
        copy.history.unlink()
    else:
        write_lines(copy.history, change(copy.history.read_text().splitlines()))
    with pytest.raises(ValueError, match=rf"y\.jsonl.* {said}.*Put the .* --init_"):
        check_history(copy.path)


@pytest.mark.parametrize("content", [None, "5", '["a", "b"]', "[[], 1]", "~"])
def test_w4_what_a_killed_training_may_have_left_is_none_of_these(copy, content):
    """An epoch's line without its checkpoint, half a note; nor are other line ends."""
    more = json.dumps({"epoch": EPOCHS + 1, "val_perplexity": 2.0})
    text = copy.history.read_text().replace("\n", "\r\n")
    copy.history.write_bytes(f"{text}{more}\n".encode())
    if content is not None:
        newest(copy, ".history").write_text(content)
    check_history(copy.path)


def test_w4_the_command_refuses_it(tiny_run, tmp_path, capsys):
    path = shutil.copytree(tiny_run.run.path, tmp_path / "run")
    kept = {x: x.read_bytes() for x in (path / "run.json", *path.glob("*.h5"))}
    (path / "history.jsonl").write_text("")
    with pytest.raises(SystemExit) as stopped:
        words = train_words(tiny_run.data, path, epochs=4, batch_tokens=400)
        main(["train", *map(str, words)])
    assert stopped.value.code == 2
    assert re.search(r"y\.jsonl has 0 of the [12] epochs", capsys.readouterr().err)
    assert {x: x.read_bytes() for x in kept} == kept


@pytest.mark.parametrize("history", ["kept", "lost", "worse than it was"])
def test_w4_the_best_weights_are_replaced_by_better_ones_alone(copy, history):
    """What they are worth is theirs, and not in a file beside them."""
    best = read_logs(copy.best_weights)
    values = [line["val_perplexity"] for line in read_history(copy.path)]
    assert best["val_perplexity"] == values[best["epoch"] - 1] == min(values)
    if history == "lost":
        copy.history.unlink()
    elif history != "kept":
        write_lines(copy.history, edited(copy.history.read_text().splitlines()))
    save = SaveWeights(copy.path)
    save.set_model(small_model("adam"))
    save.on_train_begin()
    for epoch in (0, EPOCHS):  # an early one may be trained again
        for value in (best["val_perplexity"] + 1, best["val_perplexity"], float("nan")):
            save.on_epoch_end(epoch, {"val_perplexity": value})
            assert read_logs(copy.best_weights) == best
            assert read_logs(copy.last_weights)["epoch"] == epoch + 1
    save.on_epoch_end(EPOCHS, {"val_perplexity": 1.0})
    better = {"epoch": EPOCHS + 1, "val_perplexity": 1.0}
    assert read_logs(copy.best_weights) == better


def test_w4_weights_of_unknown_worth_are_not_replaced(copy):
    save_weights(small_model("adam"), copy.best_weights)
    with pytest.raises(ValueError, match="not say its val_perplexity.*own file back"):
        SaveWeights(copy.path).on_train_begin()
    copy.best_weights.write_bytes(b"")
    with pytest.raises(OSError, match=r"model\.weights\.h5 is damaged"):
        SaveWeights(copy.path).on_train_begin()


@pytest.mark.parametrize("kept", ["epochs/epoch-{}.weights.h5", "last.weights.h5", ""])
def test_w4_best_weights_that_are_missing_are_not_replaced(copy, kept):
    best = read_logs(copy.best_weights)
    place = copy.path / kept.format(f"{best['epoch']:04d}")
    copy.best_weights.unlink()
    if kept.startswith("epochs"):
        place.parent.mkdir()
        shutil.copy(copy.last_weights, place)
    elif not kept:
        copy.last_weights.unlink()
    what = f"epoch {best['epoch']}, val_perplexity {best['val_perplexity']:.4g}"
    hint = f"put it back, or copy {place} to that name" if kept else "put it back"
    said = re.escape(f"{copy.best_weights}, the best weights ({what}), is missing: ")
    with pytest.raises(FileNotFoundError, match=f"{said}{re.escape(hint)}$"):
        SaveWeights(copy.path).on_train_begin()
    copy.history.unlink()  # a training that has begun anew
    SaveWeights(copy.path).on_train_begin()


def replaced(path):
    shutil.copytree(path, path.with_name("other"))
    shutil.rmtree(path)
    path.with_name("other").rename(path)


def emptied(path):
    for inner in path.glob("[!.]*"):
        shutil.rmtree(inner) if inner.is_dir() else inner.unlink()


GONE = {
    "removed": shutil.rmtree,
    "emptied": emptied,
    "moved": lambda path: path.rename(path.with_name("moved")),
    "replaced": replaced,
    "made anew": lambda path: (shutil.rmtree(path), path.mkdir()),
}


@pytest.mark.parametrize("change", GONE.values(), ids=GONE)
def test_c4_a_directory_that_is_gone_ends_the_training(copy, tmp_path, change):
    """Before a checkpoint, or an epoch's end, is written."""
    copy.record.touch()  # the parts of a run that a tiny model has not
    copy.tokenizer.mkdir()
    checkpoints = Checkpoints(copy.path, steps=1)
    with lock_run(copy.path):
        checkpoints.restore(new_model())
        checkpoints.on_epoch_begin(EPOCHS)
        checkpoints.check_place()
        change(copy.path)
        left = sorted(tmp_path.rglob("*"))
        for moment in (
            checkpoints.check_place,
            lambda: checkpoints.on_train_batch_end(0),
            lambda: checkpoints.on_epoch_end(EPOCHS),
        ):
            with pytest.raises(OSError, match=f"{copy.path} was removed, moved or rep"):
                moment()
        assert sorted(tmp_path.rglob("*")) == left


def test_c4_a_history_that_is_lost_meanwhile_ends_the_training(copy):
    with pytest.raises(ValueError, match="has 0 of the 2 epochs that"):
        train(copy.path, After(1, copy.history.unlink), epochs=EPOCHS + 1)
    assert not copy.history.exists()


def test_w9_points_of_curves_are_counted_by_batches(tmp_path):
    """Three of which are a step of the optimizer."""
    model = small_model(make_optimizer("adam", 0.01, gradient_accumulation_steps=3))
    model.run_eagerly = True
    model.fit(small_data(), epochs=2, verbose=0, callbacks=[StepCurves(tmp_path, 2)])
    (events,) = tmp_path.iterdir()
    found = tf.compat.v1.train.summary_iterator(str(events))
    assert [x.step for x in found if x.summary.value] == [2, 4, 6]


@pytest.mark.slow
def test_killed_at_random_moments(tiny_run, tmp_path):
    """Three times, by SIGKILL; the weights are those of a run that was not."""
    whole, part = tmp_path / "whole", tmp_path / "part"
    main(["train", *map(str, train_words(tiny_run.data, whole, epochs=12))])
    words = train_words(tiny_run.data, part, save_steps=2, epochs=12)
    command = [sys.executable, "-m", "keras_luong.cli", "train", *map(str, words)]
    rng = random.Random(1)
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert any(line.startswith("Epoch") for line in process.stdout)  # it trains
            time.sleep(rng.uniform(0.0, 6.0))
            process.kill()
    subprocess.run(command, check=True, capture_output=True)
    models = (load(x, "last").model for x in (whole, part))
    for one, other in zip(*(x.weights for x in models), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6, err_msg=one.path)
