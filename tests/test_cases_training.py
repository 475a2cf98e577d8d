"""Trainings that went wrong without a word: one test a case, at least."""

from __future__ import annotations

import json
import shutil

import keras
import pytest
from commands import run
from small_training import small_data, small_model, train_words, write_corpus

from keras_luong.cli.main import main
from keras_luong.runs.callbacks import SaveWeights, training_callbacks
from keras_luong.runs.checkpoints import Checkpoints, check_history
from keras_luong.runs.directory import RunDirectory, read_history
from keras_luong.runs.lock import owned
from keras_luong.runs.saving import read_logs, save_weights
from keras_luong.training.metrics import Perplexity
from keras_luong.training.optimizers import make_optimizer

EPOCHS = 3


def train(run_dir, callbacks=(), epochs=EPOCHS):
    """Trains a tiny model as a run is trained."""
    perplexity = Perplexity()
    model = small_model(make_optimizer("adam", 0.01), [perplexity])
    checkpoints = Checkpoints(run_dir, steps=2)
    epoch, _ = checkpoints.restore(model)
    model.fit(
        small_data(),
        validation_data=small_data(batches=1),
        initial_epoch=epoch,
        epochs=epochs,
        verbose=0,
        callbacks=training_callbacks(
            run_dir,
            perplexity,
            first=[
                keras.callbacks.LambdaCallback(on_test_begin=checkpoints.check_place),
                *callbacks,
            ],
            last=[checkpoints],
        ),
    )
    return model


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "trained"
    train(path)
    return path


@pytest.fixture
def copy(trained, tmp_path):
    return RunDirectory(shutil.copytree(trained, tmp_path / "copy"))


def edited(lines):
    line = json.loads(lines[1])
    return [lines[0], json.dumps({**line, "val_perplexity": 1e9}), *lines[2:]]


SPOILT = {
    "missing": None,
    "empty": lambda lines: [],
    "cut by a line": lambda lines: lines[:-1],
    "cut in a line": lambda lines: [*lines[:-1], lines[-1][:20]],
    "without its first line": lambda lines: lines[1:],
    "garbled": lambda lines: [*lines[:-1], "~~"],
    "not UTF-8": lambda lines: [*lines[:-1], "\udcff"],
    "null": lambda lines: [*lines, "null"],
    "no epoch": lambda lines: [*lines, "{}"],
    "a line twice": lambda lines: [lines[0], *lines],
    "edited": edited,
}


@pytest.mark.parametrize("change", SPOILT.values(), ids=SPOILT)
def test_w4_a_history_that_is_not_the_checkpoints_is_refused(copy, change):
    check_history(copy.path)
    if change is None:
        copy.history.unlink()
    else:
        lines = change(copy.history.read_text().splitlines())
        text = "".join(f"{line}\n" for line in lines)
        copy.history.write_text(text, errors="surrogateescape")
    with pytest.raises(ValueError, match=r"history\.jsonl.*Put the file back .* init_"):
        check_history(copy.path)


def test_w4_a_history_that_goes_on_or_has_other_line_ends_is_none_of_these(copy):
    """A killed training may have written an epoch's line, and not its checkpoint."""
    more = json.dumps({"epoch": EPOCHS + 1, "val_perplexity": 2.0})
    text = copy.history.read_text().replace("\n", "\r\n")
    copy.history.write_bytes(f"{text}{more}\n".encode())
    check_history(copy.path)


def test_w4_weights_without_checkpoints_are_no_new_training(copy):
    shutil.rmtree(copy.checkpoints)
    copy.history.unlink()
    with pytest.raises(OSError, match="finished epochs, but .*no checkpoint"):
        train(copy.path)


@pytest.mark.parametrize("history", ["kept", "lost", "worse than it was"])
def test_w4_the_best_weights_are_replaced_by_better_ones_alone(copy, history):
    """What they are worth is theirs, and not in a file beside them."""
    if history == "lost":
        copy.history.unlink()
    elif history != "kept":
        lines = copy.history.read_text().splitlines()
        copy.history.write_text("".join(f"{x}\n" for x in edited(lines)))
    best = read_logs(copy.best_weights)
    perplexities = [line["val_perplexity"] for line in read_history(copy.path)]
    if history == "kept":
        assert best["val_perplexity"] == min(perplexities)
        assert best["epoch"] == 1 + perplexities.index(min(perplexities))
    save = SaveWeights(copy.path)
    save.set_model(small_model("adam"))
    save.on_train_begin()
    for value in (best["val_perplexity"] + 1, best["val_perplexity"], float("nan")):
        save.on_epoch_end(EPOCHS, {"val_perplexity": value})
        assert read_logs(copy.best_weights) == best
        assert read_logs(copy.last_weights)["epoch"] == EPOCHS + 1
    save.on_epoch_end(EPOCHS, {"val_perplexity": 1.0})
    better = {"epoch": EPOCHS + 1, "val_perplexity": 1.0}
    assert read_logs(copy.best_weights) == better


def test_w4_weights_of_unknown_worth_are_not_replaced(copy):
    save_weights(small_model("adam"), copy.best_weights)
    with pytest.raises(ValueError, match="does not say its val_perplexity.*move this"):
        train(copy.path, epochs=EPOCHS + 1)
    copy.best_weights.write_bytes(b"")
    with pytest.raises(OSError, match=r"model\.weights\.h5 is damaged"):
        train(copy.path, epochs=EPOCHS + 1)
    copy.best_weights.unlink()
    train(copy.path, epochs=EPOCHS + 1)
    assert read_logs(copy.best_weights)["epoch"] == EPOCHS + 1


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_corpus(folder, train=60, val=8, test=6)
    return folder


@pytest.mark.slow
def test_w4_by_the_command(data, tmp_path, capsys):
    path = tmp_path / "run"
    run("train", *train_words(data, path, epochs=2))
    kept = {x: x.read_bytes() for x in (path / "run.json", *path.glob("*.h5"))}
    (path / "history.jsonl").write_text("")
    with pytest.raises(SystemExit) as stopped:
        more = train_words(data, path, epochs=4, learning_rate=30)
        main(["train", *map(str, more)])
    assert stopped.value.code == 2
    assert "history.jsonl has 0 of the" in capsys.readouterr().err
    assert {x: x.read_bytes() for x in kept} == kept
    (path / "history.jsonl").unlink()
    told = train_words(data, tmp_path / "next", init_from=path, epochs=1)
    del told[told.index("--units") : told.index("--units") + 2]
    run("train", *told)  # as the message says
    assert f"best weights of {path} after " in capsys.readouterr().out


class Once(keras.callbacks.Callback):
    """Something happens to the directory in the middle of an epoch."""

    def __init__(self, what, batch=1):
        super().__init__()
        self.what, self.batch = what, batch

    def on_train_batch_begin(self, batch, logs=None):
        if batch == self.batch and self.what is not None:
            what, self.what = self.what, None
            what()


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


@pytest.mark.parametrize("batch", [1, 2])  # before a save, before an epoch's end
@pytest.mark.parametrize("change", GONE.values(), ids=GONE)
def test_c4_a_directory_that_is_gone_ends_the_training(
    trained, tmp_path, change, batch
):
    path = tmp_path / "run"
    shutil.copytree(trained, path)
    (path / "run.json").touch()  # the parts of a run that a tiny model has not
    (path / "tokenizer").mkdir()
    later = []

    def spoil():
        change(path)
        later.extend(sorted(x.name for x in tmp_path.rglob("*")))

    with owned(path), pytest.raises(OSError, match=f"{path} was removed, moved or rep"):
        train(path, [Once(spoil, batch)], epochs=EPOCHS + 9)
    assert {x.name for x in tmp_path.rglob("*")} <= {*later}  # nothing more is written


def test_c4_a_history_that_is_lost_meanwhile_ends_the_training(copy):
    with pytest.raises(ValueError, match="has 0 of the 2 epochs that"):
        train(copy.path, [Once(copy.history.unlink)], epochs=EPOCHS + 1)
    assert not copy.history.exists()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["", "logs", "checkpoints"])
def test_c4_by_the_command(data, tmp_path, monkeypatch, capsys, what):
    path, train_begin = tmp_path / "run", Checkpoints.on_epoch_begin

    def spoil(self, epoch, logs=None):
        train_begin(self, epoch)
        if epoch == bool(what):
            shutil.rmtree(path / what)
            if what:  # nothing can be written there
                (path / what).touch()

    monkeypatch.setattr(Checkpoints, "on_epoch_begin", spoil)
    with pytest.raises(SystemExit) as stopped:
        main(["train", *map(str, train_words(data, path, epochs=9))])
    assert stopped.value.code == 2
    text = capsys.readouterr()
    assert f"Epoch {1 + bool(what)}/9" in text.out
    assert f"Epoch {2 + bool(what)}/9" not in text.out
    (line,) = [x for x in text.err.splitlines() if x.startswith("keras-luong: ")]
    assert f"{path}/{what}".rstrip("/") in line
    assert path.exists() == bool(what)
