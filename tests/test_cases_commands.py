"""Commands: signals, full disks, wrong paths, and whose fault an error is."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import keras
import psutil
import pytest
import tensorflow as tf
from commands import run_checked as run
from small_training import train_words, write_corpus
from small_translator import sentencepiece_translator, word_translator, written_run

import keras_luong as kl
from keras_luong.cli import command_line
from keras_luong.cli import main as command
from keras_luong.cli.command_line import parse
from keras_luong.cli.errors import run_carefully
from keras_luong.cli.translate import opened_output
from keras_luong.cli.translators import tell_languages, telling_language
from keras_luong.evaluation import scores
from keras_luong.export import signatures as sequence_export
from keras_luong.files import (
    DiskError,
    read_lines,
    read_raw_lines,
    saved_beside,
    write_json,
)
from keras_luong.runs import load_save
from keras_luong.runs.checkpoints import Checkpoints
from keras_luong.runs.load_save import load, save_weights
from keras_luong.runs.run import RunDirectory, lock_run, read_record

ROOT = Path(__file__).parents[1]

#: A command that says READY at a moment, and then does not go on.
HELD = '''
import os, signal, sys, time

told = os.fdopen(os.dup(2), "w")  # also while TensorFlow is imported
moment, sys.argv = sys.argv[1], ["keras-luong", *sys.argv[2:]]
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal


def hold(*args, **kwargs):
    """In Python."""
    print("READY", file=told, flush=True)
    time.sleep(600)


def hold_lock(*args, **kwargs):
    """In C, which keeps all threads waiting."""
    print("READY", file=told, flush=True)
    sum(range(10**11))


def hold_operation(*args, **kwargs):
    """In an operation of TensorFlow's, within a graph."""
    import tensorflow as tf

    tf.function(lambda: tf.py_function(hold, [], tf.float32))()


class Importing:
    def find_spec(self, name, *_):
        if name == "tensorflow":
            hold()


def patched():
    """Replaces what is held."""
    import importlib

    place, function = PLACES[moment]
    module, _, path = place.partition(":")
    owner, (*names, last) = importlib.import_module(module), path.split(".")
    for name in names:
        owner = getattr(owner, name)
    global before
    before = getattr(owner, last)
    setattr(owner, last, function)


def passing(*args, **kwargs):
    """Goes on, to wait for standard input."""
    print("READY", file=told, flush=True)
    return before(*args, **kwargs)


def starting(*args, **kwargs):
    """While Ray starts its processes."""
    import threading

    threading.Timer(1.5, lambda: print("READY", file=told, flush=True)).start()
    return before(*args, **kwargs)


def between(self, batch, logs=None, then=None):
    print("READY", file=told, flush=True)
    time.sleep(0.5)
    if self.stop.is_set():
        self._save(self._epoch, batch + 1)
    self._stop_if_asked()


PLACES = {
    "reading": ("keras_luong.runs.opening:describe_corpus", hold),
    "vocabulary": ("sentencepiece:SentencePieceTrainer.train", hold_lock),
    "tracing": ("keras_luong.models.seq2seq:Seq2Seq.compute_loss", hold),
    "step": ("keras_luong.runs.epochs:FollowEpoch.on_train_batch_end", hold_operation),
    "between": ("keras_luong.runs.checkpoints:Checkpoints.on_train_batch_end", between),
    "checkpoint": ("keras_luong.runs.checkpoints:Checkpoints._save", hold_operation),
    "evaluation": ("keras_luong.runs.validation:_evaluate_split", hold_operation),
    "loading": ("keras_luong.cli.translators:load_translator", hold_operation),
    "ray starts": ("ray:init", starting),
    "ray works": ("keras_luong.runs.ray_engine:_mapped", hold),
    "stdin": ("keras_luong.cli.translate:read_raw_lines", passing),
    "saving": ("tensorflow:saved_model.save", hold_operation),
    "converting": ("tensorflow:lite.TFLiteConverter.convert", hold_lock),
}

from keras_luong.cli.main import main

if moment == "importing":
    sys.meta_path.insert(0, Importing())
elif moment in PLACES:
    patched()
main()
'''


class Held:
    """A command in a process of its own, held at a moment."""

    def __init__(self, moment, *words, **more):
        command = [sys.executable, "-c", HELD, moment, *map(str, words)]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, **more
        )
        self.said = b""
        self.timer = threading.Timer(120, self.process.kill)  # what never says it
        self.timer.start()

    def wait_for(self, text):
        while text not in self.said:
            line = self.process.stderr.readline()
            assert line, self.said.decode()
            self.said += line

    def send(self, number):
        self.sent = time.monotonic()
        self.process.send_signal(number)

    def ended(self, seconds):
        """The exit code as a shell has it, soon after the last signal."""
        self.out, said = self.process.communicate()
        self.timer.cancel()
        self.said += said
        assert time.monotonic() - self.sent < seconds, self.said.decode()
        code = self.process.returncode
        return 128 - code if code < 0 else code


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_corpus(folder, train=60, val=4)
    return folder


def test_c1_while_tensorflow_is_imported(tmp_path):
    held = Held("importing", "train", "phrases", "--run_dir", tmp_path / "run")
    held.wait_for(b"READY")
    held.send(signal.SIGTERM)
    assert held.ended(8) == 143
    assert b"Traceback" not in held.said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["reading", "vocabulary", "evaluation"])
def test_c1_once_where_nothing_is_to_be_saved(moment, number, data, tmp_path):
    words = train_words(data, tmp_path / "run", tokenizer="sentencepiece")
    held = Held(moment, "train", *words, "--vocab_size", "40", "--epochs", "1")
    held.wait_for(b"READY")
    held.send(number)
    assert held.ended(8) == 128 + number
    assert b"Traceback" not in held.said


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["tracing", "step", "checkpoint"])
def test_c1_twice_in_what_takes_minutes(moment, data, tmp_path):
    held = Held(moment, "train", *train_words(data, tmp_path / "run"))
    held.wait_for(b"READY")
    held.send(signal.SIGINT)
    if moment != "checkpoint":  # the one before the first step
        held.wait_for(b"Stopping after this step")
        assert time.monotonic() - held.sent < 2
        time.sleep(1)
        assert held.process.poll() is None
        held.send(signal.SIGINT)
    assert held.ended(8) == 130


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "moment, words",
    [
        ("loading", ["translate", "RUN"]),
        ("stdin", ["translate", "RUN"]),
        ("converting", ["export", "RUN", "OUT/m.tflite", "--check", "a"]),
        ("saving", ["export", "RUN", "OUT", "--check", "a"]),
    ],
)
def test_c1_in_other_commands(moment, words, number, trained, tmp_path):
    out = tmp_path / "models"
    words = [x.replace("RUN", str(trained)).replace("OUT", str(out)) for x in words]
    held = Held(moment, *words, stdin=subprocess.PIPE)
    held.wait_for(b"READY")
    held.send(number)
    assert held.ended(8) == 128 + number
    assert b"Traceback" not in held.said and not out.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["ray starts", "ray works"])
def test_c1_no_process_of_rays_stays(moment, number, trained, tmp_path):
    pytest.importorskip("ray.data")
    source = tmp_path / "in.fr"
    source.write_text("the red dog\n" * 9)
    words = ["--engine", "ray", "--workers", "1", "--input", source]
    held = Held(moment, "translate", trained, *words, "--output", tmp_path / "out")
    held.wait_for(b"READY")
    started = psutil.Process(held.process.pid).children(recursive=True)
    assert started
    held.send(number)
    assert held.ended(15) == 128 + number
    _, alive = psutil.wait_procs(started, timeout=5)
    assert not alive and b"Traceback" not in held.said


@pytest.mark.slow
def test_c1_once_between_steps_and_nothing_is_lost(data, tmp_path):
    held = Held("between", "train", *train_words(data, tmp_path / "run"))
    held.wait_for(b"READY")
    held.send(signal.SIGTERM)
    assert held.ended(20) == 143
    assert b"Stopping after this step" in held.said
    assert b"The same command again goes on from here." in held.out
    held = Held("none", "train", *train_words(data, tmp_path / "run"))
    held.sent = math.inf
    assert held.ended(0) == 0
    assert b"Going on from step 1 of epoch 1." in held.out


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run from French into English that has two epochs."""
    path = tmp_path_factory.mktemp("runs") / "base"
    languages = {"source": "fr", "target": "en", "bleu_tokenize": "13a"}
    directory = written_run(path, sentencepiece_translator(), languages)
    line = '{"epoch": %s, "seconds": 9.0, "val_perplexity": 5.0, "val_bleu": 31.0}\n'
    directory.history.write_text(line % 1 + line % 2)
    directory.epochs.mkdir()
    for number in (1, 2):
        shutil.copy(
            directory.best_weights, directory.epochs / f"epoch-000{number}.weights.h5"
        )
    return path


def said(capsys, work, code=2):
    """What a command says on standard error when it fails: one sentence, or two."""
    with pytest.raises(SystemExit) as stopped:
        run_carefully(work)
    text = capsys.readouterr().err
    assert stopped.value.code == code, text
    return text.splitlines()[-1]


@contextlib.contextmanager
def disk_of(size):
    """Lets no file become larger, as if the disk were full there."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", ["new/out.de", "new/out.de.gz"])
def test_c3_what_is_written_line_by_line_is_replaced_when_whole(name, tmp_path, capsys):
    out = tmp_path / name

    def write(size):
        with disk_of(size), opened_output(out) as file:
            file.write(random.Random(0).randbytes(200))

    for existed in (False, True):
        text = said(capsys, lambda: write(100))
        assert f"{out} cannot be written: File too large." in text
        assert out.parent.exists() == existed
        write(300)
        before = out.read_bytes()
    assert out.read_bytes() == before and [*out.parent.iterdir()] == [out]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.de", "out.de.gz"])
def test_c3_a_translation_is_replaced_when_it_is_whole(name, trained, tmp_path, capsys):
    source, out = tmp_path / "in.fr", tmp_path / "new" / name
    source.write_text("the red dog\n" * 40)
    words = ["translate", trained, "--input", source, "--output", out]

    def full():
        with disk_of(20):
            run(*words)

    expected = f"{out} cannot be written: File too large."
    assert expected in said(capsys, full)
    assert not out.parent.exists()  # nor an empty folder
    run(*words)
    before = out.read_bytes()
    assert expected in said(capsys, full)
    assert out.read_bytes() == before and [*out.parent.iterdir()] == [out]


@pytest.mark.slow
def test_c3_devices_and_links_are_written_through(trained, tmp_path):
    source, link = tmp_path / "in.fr", tmp_path / "link"
    source.write_text("the red dog\n")
    link.symlink_to(tmp_path / "out")
    run("translate", trained, "--input", source, "--output", link)
    assert link.is_symlink() and (tmp_path / "out").read_text().count("\n") == 1
    with saved_beside("/dev/null") as beside:
        assert str(beside) == "/dev/null"
    assert not os.path.isfile("/dev/null")


@pytest.mark.parametrize(
    "words",
    [
        ["average", "RUN", "--out", "OUT"],
        pytest.param(["export", "RUN", "OUT", "--check", "a"], marks=pytest.mark.slow),
        pytest.param(
            ["export", "RUN", "OUT/m.tflite", "--check", "a"], marks=pytest.mark.slow
        ),
    ],
    ids=lambda words: words[2],
)
def test_c3_nothing_is_left_of_what_did_not_fit(words, trained, tmp_path, capsys):
    out = tmp_path / "models" / "m"
    places = {"RUN": str(trained), "OUT": str(out)}
    words = [places.get(word, word.replace("OUT", str(out))) for word in words]

    def full():
        with disk_of(1500):
            run(*words)

    assert f"{out}" in (text := said(capsys, full)) and "File too large" in text
    assert not out.parent.exists()


def test_c3_a_run_names_itself_and_keeps_its_record(trained, tmp_path, capsys):
    record = RunDirectory(trained).record
    before = record.read_text()

    def full():
        with disk_of(50):
            write_json(record, read_record(trained))

    assert said(capsys, full) == f"keras-luong: {record} cannot be written: " + (
        "File too large."
    )
    assert record.read_text() == before

    def in_training():
        with lock_run(trained):
            full = "x: No space left on device"
            raise tf.errors.ResourceExhaustedError(None, None, full)

    assert f"{trained} cannot be written: No space left" in said(capsys, in_training)


def test_c3_the_file_that_was_asked_for_is_named():
    with pytest.raises(FileNotFoundError, match="directory: '/proc/x'"):
        write_json("/proc/x", {})


def test_c3_a_little_room_is_not_0_mb(tmp_path, monkeypatch):
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(OSError, match="need about 1 MB"):
        Checkpoints(tmp_path / "run").restore(model)


def test_c3_weights_on_a_full_disk(tmp_path):
    """HDF5 ends the process if it finds the disk full."""
    model = keras.Sequential([keras.Input([60]), keras.layers.Dense(90)])
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    out = tmp_path / "new" / "m.weights.h5"
    save_weights(model, out)
    size, before = out.stat().st_size, out.read_bytes()
    shutil.rmtree(out.parent)
    for existed in (False, True):
        for percent in range(10, 100, 10):
            with disk_of(size * percent // 100):
                with pytest.raises(DiskError, match=re.escape(f"{out} cannot be")):
                    save_weights(model, out)
            assert out.exists() == out.parent.exists() == existed
        with disk_of(size):
            save_weights(model, out)
    assert out.read_bytes() == before and [*out.parent.iterdir()] == [out]


@pytest.mark.slow
def test_c3_a_training_on_a_full_disk(data, tmp_path, capsys):
    def full():
        with disk_of(6000):
            run("train", *train_words(data, tmp_path / "run"))

    assert f"{tmp_path / 'run'}" in (text := said(capsys, full))
    assert "cannot be written: File too large." in text


@pytest.mark.parametrize(
    "argv, message",
    [
        ("translate RUN g.fr", "Nothing takes g.fr: did you mean --input g.fr?"),
        ("evaluate RUN a b", "did you mean --test a b?"),
        ("evaluate RUN --test one.fr", "--test needs 2 values, and has one.fr"),
        ("evaluate RUN --test one.fr --show 3", "--test needs 2 values"),
        ("evaluate RUN --val", "without --test, the run's own text to validate"),
        ("train d --val a.en", "lies beside that to learn from, as val.fr and val.en"),
        ("train d --gpus 2", "CUDA_VISIBLE_DEVICES=0,1 before the command"),
        ("train d --vocab_size 3", "--vocab_size must be above 4, .*1000 is right"),
        ("train d --preset small --vocab_size 4", "--vocab_size must be above 4"),
        ("train d --preset small --mix_old 0.5", "--mix_old needs --init_from.*--mix"),
    ],
)
def test_c5_says_what_to_type(argv, message, capsys):
    with pytest.raises(SystemExit):
        parse(argv.split())
    assert re.search(message, capsys.readouterr().err)


def test_c5_what_is_there_already(trained, tmp_path, capsys):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "7").mkdir()
    text = said(capsys, lambda: run("export", trained, tmp_path / "m"))
    assert "--overwrite" in text and "--version 8" in text
    out = tmp_path / "mean"
    run("average", trained, "--out", out)
    text = said(capsys, lambda: run("average", trained, "--out", out))
    assert f"--out {out}-2" in text


WRONG = [
    "translate no/run",
    "translate RUN --input no/file",
    "translate RUN --terms no/file",
    "translate RUN --constraints no/file",
    "translate RUN --shortlist no/file",
    "translate RUN --ensemble no/run",
    "translate RUN --output RUN",
    "evaluate no/run",
    "evaluate RUN --against no/run",
    "evaluate RUN --test no/file no/file",
    "evaluate --hypotheses no/file --test no/file no/file",
    "score no/run a b",
    "score RUN no/file no/file",
    "export no/run out",
    "export RUN FILE",
    "verify RUN no/file",
    "verify RUN FILE --saved_model no/model",
    "verify RUN FILE --tflite no/model.tflite",
    "average no/run",
    "average RUN --weights no/file",
    "tune no/run",
    "shortlist no/run",
    "distill no/run --out new",
    "distill RUN --out RUN",
    "backtranslate no/run --data phrases --mono FILE --out new",
    "backtranslate RUN --data phrases --mono no/file --out new",
    "compare no/run",
    "train phrases --run_dir FILE",
    "train --init_from no/run",
    "train DIR --source a --target b",
    "train DIR/train.xx --source a --target b",
    "translate RUN --input DIR",
    "translate RUN --input text.parquet",
    "translate RUN --engine ray --input FILE --output DIR",
    "evaluate RUN --test DIR DIR",
]


@pytest.mark.parametrize("argv", WRONG)
def test_c6_a_wrong_path_is_told_before_anything_is_imported(argv, trained, tmp_path):
    (tmp_path / "file").write_text("a\n")
    (tmp_path / "dir" / "deep").mkdir(parents=True)
    for name in ("train.xx", "train.yy", "deep/x.parquet"):
        (tmp_path / "dir" / name).write_text("a\n")
    places = {"RUN": trained, "FILE": tmp_path / "file", "DIR": tmp_path / "dir"}
    for name, place in places.items():
        argv = argv.replace(name, str(place))
    words = argv.split()
    begun = []
    with pytest.raises(SystemExit) as stopped:
        command.main(words, run=begun.append)
    assert stopped.value.code == 2 and not begun


@pytest.mark.parametrize(
    "argv, message",
    [
        ("translate no/run", "There is no run directory at no/run. "),
        ("train docs --source a --target b", "docs has no train.a and train.b, "),
    ],
)
def test_c6_at_once(argv, message):
    words = [sys.executable, "-m", "keras_luong.cli", *argv.split()]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"keras-luong: {message}")
    assert after.ru_utime - usage.ru_utime < 1.5  # importing TensorFlow takes 5


def test_c6_names_what_may_have_been_meant(trained, capsys):
    wrong = trained.with_name("bass")
    text = said(capsys, lambda: run("tune", wrong))
    assert text.endswith(f"Did you mean {trained}?")


@pytest.mark.parametrize("kind", ["random", "weights", "picture", "zip"])
def test_c7_what_is_no_text_is_refused(kind, trained, tmp_path, capsys):
    path = tmp_path / "file"
    path.write_bytes(
        {
            "random": random.Random(0).randbytes(10_000),
            "weights": RunDirectory(trained).best_weights.read_bytes(),
            "picture": next((ROOT / "docs" / "images").glob("*.png")).read_bytes(),
            "zip": b"PK\x03\x04\x14\0\0\0\x08\0" + bytes(range(256)) * 9,
        }[kind]
    )
    for words in (
        ["translate", trained, "--input", path],
        ["score", trained, path, path],
        ["evaluate", trained, "--test", path, path],
        ["translate", trained, "--input", path, "--terms", path],
    ):
        assert f"{path} is no text" in said(capsys, lambda w=words: run(*w))
    with pytest.raises(ValueError, match="The input is no text"):
        list(read_lines(io.BytesIO(path.read_bytes())))
    path.with_suffix(".gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(ValueError, match="is no text"):
        list(read_raw_lines(path.with_suffix(".gz")))


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\n" * 99,
        b"a\0b\n" + b"a long line of text, without any\n" * 9,
        "é à ü".encode("latin-1") * 99,
        b"\x1b[1mbold\x1b[0m\n" * 9,
        b"\0\n",
        b"",
        "東京\n".encode() * 99,
    ],
)
def test_c7_odd_text_is_text(text, tmp_path):
    (tmp_path / "file").write_bytes(text)
    list(read_raw_lines(tmp_path / "file"))


def test_c10_whose_fault_an_error_is(capsys, monkeypatch):
    def by_python():
        return sequence_export.fields(None)

    text = said(capsys, by_python, code=1)
    assert "This is a fault of keras-luong, in keras_luong.export.signatures" in text
    assert "Error" in text and "--debug" in text

    def by_a_library():
        with saved_beside(None):
            pass

    text = said(capsys, by_a_library, code=1)
    assert "This is a fault of keras-luong or of pathlib" in text
    monkeypatch.setattr(command_line, "signature", lambda *_, **__: len(None))
    with pytest.raises(SystemExit) as stopped:
        command.main(["average", "x"])
    assert stopped.value.code == 1
    assert "fault of keras-luong" in capsys.readouterr().err


DAMAGE = {
    ("history.jsonl", '{"epoch": "4"}'): "history.jsonl, line 1 is damaged",
    ("history.jsonl", '{"epoch": true, "val_bleu": "x"}'): "line 1 is damaged",
    ("history.jsonl", "5"): "history.jsonl, line 1 is damaged",
    ("results.json", "[1]"): "results.json is damaged: it must have an object for",
    ("results.json", "[]"): "results.json is damaged",
    ("results.json", '{"validation": 3}'): "results.json is damaged",
    ("run.json", "settings"): "run.json is damaged: settings must be an object",
    ("run.json", "search"): "run.json is damaged: search must be an object",
    ("run.json", "model"): "run.json is damaged: model must be an object",
    ("run.json", "paths"): "run.json is damaged: paths must be an object",
}


@pytest.mark.parametrize("damage, message", DAMAGE.items(), ids=map(str, DAMAGE))
def test_c10_damaged_files_are_no_fault(damage, message, trained, tmp_path, capsys):
    path = shutil.copytree(trained, tmp_path / "run")
    name, content = damage
    if name == "run.json":
        content = json.dumps({**json.loads((path / name).read_text()), content: 5})
    (path / name).write_text(content)
    assert message in said(capsys, lambda: run("compare", path))


def test_c10_what_a_history_lacks_is_blank(trained, tmp_path, capsys):
    path = shutil.copytree(trained, tmp_path / "run")
    (path / "history.jsonl").write_text('{"epoch": 1}\n{"epoch": 2, "val_bleu": 7}\n')
    assert "7.00" in run("compare", path)


def test_c10_damaged_settings_of_a_run_to_start_from(trained, tmp_path, capsys):
    path = shutil.copytree(trained, tmp_path / "run")
    record = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**record, "settings": 5}))
    with pytest.raises(SystemExit):
        parse(["train", "phrases", "--init_from", str(path)])
    assert "run.json is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyError("x"), AssertionError("x"), IndexError()])
def test_c10_every_internal_error_is_told(error, capsys):
    def fail():
        raise error

    text = said(capsys, fail, code=1)
    assert "fault of keras-luong" in text and type(error).__name__ in text
    with pytest.raises(type(error)):
        run_carefully(fail, debug=True)


NEEDS = "need TensorFlow as Keras's backend: set KERAS_BACKEND=tensorflow"


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_k3_one_sentence_for_commands(backend, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(keras.backend, "backend", lambda: backend)
    for words in (
        ["train", "phrases", "--run_dir", str(tmp_path / "run")],
        ["translate", "x"],
        ["compare", "x"],
        ["export", "x", "y"],
    ):
        with pytest.raises(SystemExit) as stopped:
            command.main(words)
        text = capsys.readouterr().err
        assert stopped.value.code == 2 and NEEDS in text and repr(backend) in text
    assert not (tmp_path / "run").exists()


def test_k3_one_sentence_for_the_library(trained, tmp_path, monkeypatch):
    translator = word_translator()
    model, tokenizers = translator.model, translator.tokenizers
    ids = tf.TensorSpec([None, None], tf.int32)
    generator = kl.SequenceGenerator(model, ids)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    source, out = [[4, 5, 3]], tmp_path / "out"
    for work in (
        lambda: kl.generate(model, source),
        lambda: kl.BeamSearch()(model, source),
        lambda: kl.GreedySearch()(model, source),
        lambda: kl.RandomSampling()(model, source),
        lambda: kl.SequenceGenerator(model, ids),
        lambda: kl.Ensemble([model, model]),
        lambda: kl.Translator(model, tokenizers),
        lambda: kl.load(trained),
        lambda: kl.export_saved_model(generator, out),
        lambda: kl.export_tflite(generator, out),
    ):
        with pytest.raises(ValueError, match=NEEDS):
            work()
    assert not out.exists()


@pytest.mark.parametrize(
    "settings, told",
    [('{"backend": "torch"}', "Received: 'torch'"), ("[1]", "keras.json is damaged: ")],
)
def test_k3_before_keras_is_imported(settings, told, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_HOME": str(tmp_path)}
    env.pop("KERAS_BACKEND", None)
    (tmp_path / "keras.json").write_text(settings)
    words = [sys.executable, "-m", "keras_luong.cli", "translate", "x"]
    done = subprocess.run(words, capture_output=True, text=True, env=env)
    assert done.returncode == 2 and told in done.stderr


FRENCH = "Un homme en chemise bleue se tient sur une échelle et nettoie une fenêtre."
ENGLISH = "A man in a blue shirt is standing on a ladder and cleaning a window."


@pytest.fixture
def texts(tmp_path):
    for name, line in (("fr", FRENCH), ("en", ENGLISH)):
        (tmp_path / f"t.{name}").write_text(f"{line}\n" * 30)
    return tmp_path / "t.fr", tmp_path / "t.en"


def test_w5_says_which_side_is_in_another_language(trained, texts, capsys):
    french, english = ([path.read_bytes()] * 9 for path in texts)
    tell_languages(trained, source=english, target=french)
    assert "the sides look swapped: the source should be fr" in capsys.readouterr().err
    tell_languages(trained, source=french, target=french)
    expected = "note: the target should be en, and reads like fr.\n"
    assert capsys.readouterr().err == expected
    assert [*telling_language(trained, english)] == english
    expected = "note: the source should be fr, and reads like en.\n"
    assert capsys.readouterr().err == expected
    tell_languages(trained, source=french, target=english)
    few = [ENGLISH.encode()] * 9
    assert [*telling_language(trained, few)] == few
    assert not capsys.readouterr().err


@pytest.mark.slow
def test_w5_text_in_another_language_is_told(trained, texts, tmp_path, capsys):
    french, english = texts
    swapped = "note: the sides look swapped: the source should be fr and reads like en"
    alone = "note: the source should be fr, and reads like en."
    out = tmp_path / "out"
    run("translate", trained, "--input", english, "--output", out)
    assert alone in capsys.readouterr().err
    run("translate", trained, "--input", french, "--output", out)
    assert "reads like" not in capsys.readouterr().err
    run("score", trained, english, french, "--output", out)
    assert swapped in capsys.readouterr().err
    run("evaluate", trained, "--test", english, french)
    assert swapped in capsys.readouterr().err
    run("evaluate", trained, "--test", french, french)
    assert "the target should be en, and reads like fr" in capsys.readouterr().err
    run("evaluate", trained, "--test", french, english)
    assert "reads like" not in capsys.readouterr().err


def test_w6_every_run_named_gets_a_row_or_a_sentence(trained, tmp_path, capsys):
    mean, notes = tmp_path / "mean", tmp_path / "notes"
    notes.mkdir()
    run("average", trained, "--out", mean)
    new = written_run(tmp_path / "new", word_translator(), {}).path
    capsys.readouterr()
    text = run("compare", trained, mean, notes, new)
    names = [line.split("|")[1].strip() for line in text.splitlines()[2:]]
    assert sorted(names) == ["base", "mean", "new"]
    assert "average of 2" in text
    told = capsys.readouterr().err
    assert f"note: {notes} is no run directory." in told
    assert "note: of mean nothing is known yet, as an average is not" in told
    assert "note: of new nothing is known yet, as it has finished no epoch" in told
    with pytest.raises(ValueError, match="no run directory among .*notes"):
        run("compare", notes)


@pytest.fixture
def with_text(tmp_path):
    """A run with a beam of 2, and the folder of its text to validate by."""
    folder = tmp_path / "data"
    folder.mkdir()
    write_corpus(folder, train=9, val=4)
    keras.utils.set_random_seed(0)
    words = list("abcdefg")
    model = kl.Seq2Seq(kl.Seq2SeqConfig(11, 11, units=8, init_scale=0.7))
    pair = kl.TokenizerPair(kl.WordTokenizer(words), kl.WordTokenizer(words))
    search = kl.BeamSearch(2, max_length=9, length_penalty=0.4)
    settings = {"data": str(folder), "source": "xx", "target": "yy"}
    return written_run(
        tmp_path / "run", kl.Translator(model, pair, search, 20), settings
    ).path, folder


@pytest.mark.slow
def test_w7_tuning_never_makes_it_worse(with_text, capsys):
    path, folder = with_text
    sources = (folder / "val.xx").read_text().splitlines()
    best = [t.text for t in load(path).translate(sources)]
    (folder / "val.yy").write_text("\n".join(best) + "\n")
    before = read_record(path)["search"]
    found = run("tune", path, "--beam_widths", "1", "--length_penalties", "0")
    assert found[:2] == (2, 0.4) and read_record(path)["search"] == before
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in out[1:3]] == [["2", "0.4"], ["1", "0"]]
    assert out[-1] == f"{path} goes on translating with beam 2, 0.4: none is better"


class Searched:
    """Translates every source as its search is called."""

    def __init__(self, beam_width=2, length_penalty=0.4, n_best=1):
        self.search = kl.BeamSearch(beam_width, length_penalty=length_penalty)

    def with_search(self, **changes):
        return Searched(**changes)

    def translate(self, sources, progress):
        text = f"{self.search.beam_width} {self.search.length_penalty:g}"
        return [SimpleNamespace(text=text) for _ in sources]


@pytest.mark.parametrize(
    ("after", "kept", "told"),
    [
        (31.25, 5, "{} translates with beam 5, length penalty 1.4 (before: beam 2, 0.4;"
         " +1.2 BLEU)"),
        (30.0, 2, "{} goes on translating with beam 2, 0.4: none is better"),
        (29.0, 2, "{} goes on translating with beam 2, 0.4: none is better"),
    ],
)  # fmt: skip
def test_w7_replaces_a_search_only_by_a_better_one(
    after, kept, told, with_text, monkeypatch, capsys
):
    path, _ = with_text
    figures = {"2 0.4": 30.0, "5 1.4": after}

    def bleu(texts, *_):
        return SimpleNamespace(score=figures[texts[0]], signature="s")

    monkeypatch.setattr(load_save, "load", lambda _: Searched())
    monkeypatch.setattr(scores, "bleu", bleu)
    run("tune", path, "--beam_widths", "5", "--length_penalties", "1.4")
    assert capsys.readouterr().out.splitlines()[-1] == told.format(path)
    assert read_record(path)["search"]["beam_width"] == kept
