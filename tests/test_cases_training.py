"""Trainings that went wrong without a word: one test a case, at least."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from commands import run
from small_training import small_data, small_model, train_words, write_corpus

from keras_luong.cli.main import main
from keras_luong.cli.train import next_steps
from keras_luong.config.training import TrainingConfig
from keras_luong.files import write_json
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.runs import description
from keras_luong.runs.callbacks import SaveWeights, StepCurves, training_callbacks
from keras_luong.runs.checkpoints import Checkpoints, check_history
from keras_luong.runs.description import TimeEstimate, _long_time, _many_passes
from keras_luong.runs.load_save import read_logs, save_weights
from keras_luong.runs.run import RunDirectory, lock_run, read_history
from keras_luong.text.batches import dataset_options, training_batches
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer
from keras_luong.training.losses import SequenceCrossentropy
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
    with pytest.raises(
        ValueError, match=r"history\.jsonl.*Put the file back .* --init_"
    ):
        check_history(copy.path)


def test_w4_a_history_that_goes_on_or_has_other_line_ends_is_none_of_these(copy):
    """A killed training may have written an epoch's line, and not its checkpoint."""
    more = json.dumps({"epoch": EPOCHS + 1, "val_perplexity": 2.0})
    text = copy.history.read_text().replace("\n", "\r\n")
    copy.history.write_bytes(f"{text}{more}\n".encode())
    check_history(copy.path)


@pytest.mark.parametrize("content", ["5", '["a", "b"]', '{"a": 1}', "[[], 1]", "~"])
def test_w4_damaged_notes_and_strange_files_are_passed_over(copy, content):
    newest = max(copy.checkpoints.glob("ckpt-*.history"))
    newest.write_text(content)
    (copy.checkpoints / "ckpt-old.index").touch()
    (copy.checkpoints / "ckpt-.index").mkdir()
    check_history(copy.path)
    assert Checkpoints(copy.path).exist()


def test_w4_an_epoch_that_is_trained_again_may_end_otherwise(copy):
    """The newest checkpoint is damaged: the one before knows no later epochs."""
    newest = max(copy.checkpoints.glob("*.data-*"))
    content = bytearray(newest.read_bytes())
    content[-200] ^= 0xFF  # not where its position is
    newest.write_bytes(content)
    with pytest.warns(UserWarning, match="cannot be read"):
        train(copy.path, epochs=EPOCHS + 1)
    assert [x["epoch"] for x in read_history(copy.path)] == [1, 2, 3, 4]


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
    with pytest.raises(
        ValueError, match="does not say its val_perplexity.*own file back"
    ):
        train(copy.path, epochs=EPOCHS + 1)
    copy.best_weights.write_bytes(b"")
    with pytest.raises(OSError, match=r"model\.weights\.h5 is damaged"):
        train(copy.path, epochs=EPOCHS + 1)


@pytest.mark.parametrize(
    "kept", ["epochs/epoch-%04d.weights.h5", "last.weights.h5", ""]
)
def test_w4_best_weights_that_are_missing_are_not_replaced(copy, kept):
    best = read_logs(copy.best_weights)
    place = copy.path / (kept % best["epoch"] if "%" in kept else kept)
    copy.best_weights.unlink()
    if not kept:
        copy.last_weights.unlink()
    elif not place.exists():
        place.parent.mkdir()
        shutil.copy(copy.last_weights, place)
    what = f"epoch {best['epoch']}, val_perplexity {best['val_perplexity']:.4g}"
    hint = f"put it back, or copy {place} to that name" if kept else "put it back"
    said = re.escape(f"{copy.best_weights}, the best weights ({what}), is missing: ")
    with pytest.raises(FileNotFoundError, match=f"{said}{re.escape(hint)}$"):
        train(copy.path, epochs=EPOCHS + 1)
    assert not copy.best_weights.exists()
    if kept:
        shutil.copy(place, copy.best_weights)
        train(copy.path, epochs=EPOCHS + 1)


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

    with (
        lock_run(path),
        pytest.raises(OSError, match=f"{path} was removed, moved or rep"),
    ):
        train(path, [Once(spoil, batch)], epochs=EPOCHS + 9)
    assert {x.name for x in tmp_path.rglob("*")} <= {*later}  # nothing more is written


def test_c4_a_history_that_is_lost_meanwhile_ends_the_training(copy):
    with pytest.raises(ValueError, match="has 0 of the 3 epochs that"):
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


TOGETHER = 4
VOCABULARY = [f"w{i}" for i in range(20)]
#: Trains on so many devices, by one of `KINDS`: accumulated or not.
ON_DEVICES = """
import json, os, sys
import tensorflow as tf
sys.path.insert(0, sys.argv[1])
from test_cases_training import trained_by
cpu = tf.config.list_physical_devices("CPU")[0]
logical = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, logical)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    weights, loss = trained_by(sys.argv[2], accumulated=True)
print(json.dumps([[w.ravel().tolist() for w in weights], loss]), flush=True)
os._exit(0)  # as in test_strategies.py
"""


def batches_of_all_sizes(together):
    """Batches with unlike numbers of labels, the last of which are no whole group."""
    rng = random.Random(0)
    sides = {
        side: [
            " ".join(rng.choices(VOCABULARY, k=rng.randint(1, 9))) for _ in range(40)
        ]
        for side in ("source", "target")
    }
    return training_batches(
        tf.data.Dataset.from_tensor_slices(sides),
        TokenizerPair(WordTokenizer(VOCABULARY)),
        batch_tokens=40,
        gradient_accumulation_steps=together,
    )


def large_batches(batches):
    """Each group of batches as one batch, with the mean per label."""
    for start in range(0, len(batches), TOGETHER):
        group = batches[start : start + TOGETHER]
        group = [x for x in group if tf.reduce_any(x[1] != 0)]
        inputs, labels, _ = (
            tf.nest.map_structure(_joined, *parts) for parts in zip(*group, strict=True)
        )
        counted = tf.cast(labels != 0, tf.float32)
        yield inputs, labels, counted / tf.reduce_sum(counted)


def _joined(*ids):
    return tf.concat([tf.RaggedTensor.from_tensor(x) for x in ids], 0).to_tensor(0)


KINDS = {
    "sgd": {"clip_norm": 0.01},
    "adam": {"clip_norm": None},
    "scaled": {"clip_norm": 0.01, "loss_scaling": True},
}


def trained_by(kind, accumulated, epochs=2):
    """Weights and losses of a training by steps of four batches, or of large ones."""
    keras.utils.set_random_seed(1)
    size = 4 + len(VOCABULARY)
    model = Seq2Seq(Seq2SeqConfig(size, size, units=4, dropout=0.0, init_scale=1.0))
    together = TOGETHER if accumulated else 1
    name = "adam" if kind == "adam" else "sgd"
    optimizer = make_optimizer(
        name, 0.1, gradient_accumulation_steps=together, **KINDS[kind]
    )
    model.compile(optimizer, SequenceCrossentropy(0.1), metrics=[Perplexity()])
    data = batches_of_all_sizes(TOGETHER)
    batches = list(data)  # the same ones in every epoch
    losses = []
    if accumulated:
        data = tf.data.Dataset.from_generator(
            lambda: iter(batches), output_signature=data.element_spec
        ).with_options(dataset_options())
        losses = model.fit(data, epochs=epochs, verbose=0).history["loss"]
    for _ in () if accumulated else range(epochs):
        steps = []
        for batch in large_batches(batches):
            model.reset_metrics()
            steps.append(model.train_on_batch(*batch)[0])
        losses.append(float(np.mean(steps)))
    return model.get_weights(), losses


def assert_same(one, other):
    np.testing.assert_allclose(one[1], other[1], 1e-5)
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_allclose(np.ravel(a), np.ravel(b), atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_w9_accumulated_batches_are_one_large_batch(kind):
    """Its steps, clipped or not, and the loss that is told."""
    assert_same(trained_by(kind, accumulated=True), trained_by(kind, False))


@pytest.mark.slow
def test_w9_with_replicas_too():
    command = [sys.executable, "-c", ON_DEVICES, str(Path(__file__).parent), "sgd"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert_same(json.loads(done.stdout.splitlines()[-1]), trained_by("sgd", False))


def test_w9_the_batches_are_the_same_in_whole_groups():
    """Each label weighs as much as all others of its step."""
    single, together = (list(batches_of_all_sizes(n)) for n in (1, TOGETHER))
    assert len(single) % TOGETHER  # the last group is filled up
    assert len(together) == -(-len(single) // TOGETHER) * TOGETHER
    for one, other in zip(single, together, strict=False):
        tf.nest.map_structure(np.testing.assert_array_equal, one[:2], other[:2])
    for inputs, labels, weights in together[len(single) :]:
        assert inputs["source"].shape == (1, 1)
        assert not np.any(labels) and not np.any(weights)
    for start in range(0, len(together), TOGETHER):
        group = together[start : start + TOGETHER]
        number = sum(np.count_nonzero(labels) for _, labels, _ in group)
        for _, labels, weights in group:
            expected = (np.asarray(labels) != 0) * TOGETHER / number
            np.testing.assert_allclose(weights, expected, 1e-6)


def test_w9_an_overflow_moves_no_batch_to_another_step():
    """float16: the batch that overflows is counted, and its step has what follows."""
    weight = keras.Variable(0.0)
    optimizer = make_optimizer(
        "sgd", 1.0, None, loss_scaling=True, gradient_accumulation_steps=2
    )
    seen = []
    for gradient in (np.inf, 2.0, 4.0, np.inf, 6.0, 8.0):
        scale = float(optimizer.scale_loss(1.0))
        optimizer.apply([tf.constant(-gradient * scale)], [weight])
        seen.append(float(weight.value))
    assert seen == [0.0, 1.0, 1.0, 1.0, 1.0, 8.0]


def test_w9_points_of_curves_are_counted_by_batches(tmp_path):
    model = small_model(make_optimizer("adam", 0.01, gradient_accumulation_steps=3))
    curves, steps = StepCurves(tmp_path), []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: steps.append(curves._step)
    )
    model.fit(small_data(), epochs=2, verbose=0, callbacks=[curves, note])
    assert steps == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("hours", "said"),
    [
        (47, None),
        (49, "this may take 49.0 hours on this machine. A smaller model"),
        (720, "this may take 30 days on this machine"),
        (1921, "this may take 80 days"),
    ],
)
def test_c2_a_training_of_many_hours(hours, said):
    found = list(_long_time(hours * 3600))
    assert [said in x for x in found] == [True] * bool(said)


@pytest.mark.parametrize(
    ("shape", "settings", "said"),
    [
        ({}, {"epochs": 100}, None),
        ({"passes": 37}, {"preset": "auto"}, None),  # about 250 pairs
        ({"passes": 1, "parts": 60}, {"epochs": 3000}, None),
        ({}, {"epochs": 5761}, "5,761 epochs go 5,761 times over a text of 3 pairs"),
        (
            {"passes": 5761},
            {"preset": "auto", "steps_per_epoch": 150},
            "40 epochs go 230,440 times, 5,761 in each epoch, over a text of 3 pairs.*"
            "More text helps.*fewer epochs or a lower steps_per_epoch",
        ),
        ({"passes": 90}, {"preset": "auto", "epochs": 20}, None),
        ({"passes": 90}, {"preset": "auto", "epochs": 30}, "30 epochs go 2,700 times"),
    ],
)
def test_c2_a_text_that_is_gone_over_thousands_of_times(shape, settings, said):
    settings = {"preset": "small", "shared": True, **settings}
    config = TrainingConfig.from_preset(**settings)
    found = list(_many_passes(config, {"pairs": 3, "passes": 1, "parts": 1, **shape}))
    assert [re.search(said or "", x) is not None for x in found] == [True] * bool(said)


@pytest.mark.parametrize(
    ("epochs", "done", "said"), [(100, 0, ["80.0"]), (30, 0, ["60.0"]), (100, 20, [])]
)
def test_c2_by_what_a_training_says_of_its_time(epochs, done, said, capsys):
    """Two hours an epoch; of those that end early, 40 at the most are usual."""
    config = TrainingConfig(epochs=epochs, early_stopping=5)
    TimeEstimate(config, 1, done)._say(7200)
    printed = capsys.readouterr().out
    assert re.findall(r"note: this may take (\S+) hours", printed) == said


@pytest.mark.slow
def test_c2_and_c8_by_the_command(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(description, "MEASURED_STEPS", 1)
    monkeypatch.setattr(description, "LONGEST_HOURS", 0)
    path = tmp_path / "run"
    run("train", *train_words(data, path, epochs=2, tag="ui"))
    said = capsys.readouterr().out
    assert re.search("time +about . s an epoch on this machine, and the valid", said)
    assert said.count("note: this may take") == 1
    assert f"Translate:  keras-luong translate {path} --tag ui < in.txt" in said


@pytest.mark.parametrize("tag", [None, "ui"])
def test_c8_the_next_command_has_the_tag_of_the_run(tmp_path, tag):
    write_json(tmp_path / "run.json", record_with({"tag": tag}))
    command = shlex.split(next_steps(tmp_path).split("Translate:")[1].splitlines()[0])
    before = command[: command.index("<")]
    assert before[2:] == [str(tmp_path), *(["--tag", tag] if tag else [])]


def record_with(settings):
    parts = {"format": 1, "model": {}, "search": {}, "max_source_length": 9}
    parts |= {"paths": {}, "corpus": None, "came_from": None}
    return {**parts, "settings": settings}
