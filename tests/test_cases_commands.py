"""Commands: signals, full disks, wrong paths, and whose fault an error is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from small_training import train_words, write_corpus

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
    """Imports the package, and replaces what is held."""
    import importlib

    ready()
    place, function = PLACES[moment]
    module, _, path = place.partition(":")
    owner, (*names, last) = importlib.import_module(module), path.split(".")
    for name in names:
        owner = getattr(owner, name)
    setattr(owner, last, function)


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
    "evaluation": ("keras_luong.runs.train:_evaluate_split", hold_operation),
    "loading": ("keras_luong.cli.translate:load_translator", hold_operation),
    "converting": ("tensorflow:lite.TFLiteConverter.convert", hold_lock),
}

import keras_luong_command

if moment == "importing":
    sys.meta_path.insert(0, Importing())
elif moment in PLACES:
    ready = keras_luong_command._known()
    from keras_luong.cli.main import main

    main(ready=patched)
keras_luong_command.main()
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
    assert held.ended(5) == 143
    assert b"Traceback" not in held.said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["reading", "vocabulary", "evaluation"])
def test_c1_once_where_nothing_is_to_be_saved(moment, number, data, tmp_path):
    words = train_words(data, tmp_path / "run", tokenizer="sentencepiece")
    held = Held(moment, "train", *words, "--vocab_size", "40", "--epochs", "1")
    held.wait_for(b"READY")
    held.send(number)
    assert held.ended(5) == 128 + number
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
    assert held.ended(5) == 130


@pytest.mark.slow
def test_c1_once_between_steps_and_nothing_is_lost(data, tmp_path):
    held = Held("between", "train", *train_words(data, tmp_path / "run"))
    held.wait_for(b"READY")
    held.send(signal.SIGTERM)
    assert held.ended(20) == 143
    assert b"Stopping after this step" in held.said
    assert b"The same command again goes on from here." in held.out
    held = Held("none", "train", *train_words(data, tmp_path / "run"))
    held.sent = time.monotonic()
    assert held.ended(90) == 0
    assert b"Going on from step 1 of epoch 1." in held.out
