"""Commands that are interrupted: by Ctrl-C and SIGTERM at any moment, by full disks."""

import contextlib
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import keras
import psutil
import pytest
import tensorflow as tf
from commands import run_checked as run
from leave_slow import slow_but
from processes import start
from small_training import train_words, write_corpus
from small_translator import word_translator, written_run

from keras_luong.cli.errors import run_carefully
from keras_luong.cli.translate import opened_output
from keras_luong.files import DiskError, saved_beside, write_json
from keras_luong.runs.load_save import save_weights
from keras_luong.runs.run import RunDirectory, lock_run, read_record

#: A command that says READY at a moment, and then does not go on.
HELD = '''
import os, signal, sys, time

told = os.fdopen(os.dup(2), "w")  # also while TensorFlow is imported
moment, sys.argv = sys.argv[1], ["keras-luong", *sys.argv[2:]]
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal

def ready():
    print("READY", file=told, flush=True)

def hold_operation(*args, **kwargs):
    """In an operation of TensorFlow's, within a graph."""
    import tensorflow as tf
    tf.function(lambda: tf.py_function(hold, [], tf.float32))()

hold = lambda *_, **__: (ready(), time.sleep(600))  # in Python
hold_lock = lambda *_, **__: (ready(), sum(range(10**11)))  # in C: all threads wait
passing = lambda *args, **kwargs: (ready(), before(*args, **kwargs))[1]

class Importing:
    def find_spec(self, name, *_):
        if name == "tensorflow":
            hold()

OURS = "keras_luong."
PLACES = {
    "vocabulary": ("sentencepiece", "SentencePieceTrainer.train", hold_lock),
    "step": (OURS + "runs.epochs", "FollowEpoch.on_train_batch_end", hold_operation),
    "checkpoint": (OURS + "runs.checkpoints", "Checkpoints._save", hold_operation),
    "ray works": (OURS + "runs.ray_engine", "_mapped", hold),
    "stdin": (OURS + "cli.translate", "read_raw_lines", passing),
    "saving": ("tensorflow", "saved_model.save", hold_operation),
}

from keras_luong.cli.main import main

if moment == "importing":
    sys.meta_path.insert(0, Importing())
elif moment in PLACES:
    import functools, importlib
    module, path, function = PLACES[moment]
    *names, last = path.split(".")
    owner = functools.reduce(getattr, names, importlib.import_module(module))
    before = getattr(owner, last)
    setattr(owner, last, function)
main()
'''


class Held:
    """A command in a process of its own, held at a moment."""

    def __init__(self, moment, *words, **more):
        self.process = start("-c", HELD, moment, *words, text=False, **more)
        self.said, self.sent = b"", math.inf
        self.timer = threading.Timer(120, self.process.kill)  # what never says it
        self.timer.start()

    def wait_for(self, text=b"READY"):
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that has two epochs."""
    path = tmp_path_factory.mktemp("runs") / "base"
    run = written_run(path, word_translator())
    run.epochs.mkdir()
    for number in (1, 2):
        shutil.copy(run.best_weights, run.epochs / f"epoch-000{number}.weights.h5")
    return path


def filled(words, **places):
    """Words of a command, with paths in place of names."""
    for name, place in places.items():
        words = words.replace(name, str(place))
    return words.split()


RAY = "translate RUN --engine ray --workers 1 --input IN --output OUT/out"
MOMENTS = {
    **{"importing": "train", "vocabulary": "train", "stdin": "translate RUN"},
    **{"saving": "export RUN OUT/m --check a", "ray works": RAY},
}


@pytest.mark.parametrize("moment", slow_but(MOMENTS, "importing"))
def test_a_signal_ends_what_has_nothing_to_save(moment, data, trained, tmp_path):
    """And the processes that it has started."""
    is_ray = moment == "ray works" and pytest.importorskip("ray.data")
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_text("the red dog\n" * 9)
    words = filled(MOMENTS[moment], RUN=trained, IN=source, OUT=out)
    if words == ["train"]:
        sizes = {"tokenizer": "sentencepiece", "vocab_size": 40, "epochs": 1}
        words += train_words(data, tmp_path / "run", **sizes)
    held = Held(moment, *words, stdin=subprocess.PIPE)
    held.wait_for()
    started = psutil.Process(held.process.pid).children(recursive=True)
    assert started or not is_ray
    held.send(signal.SIGTERM)
    assert held.ended(15 if is_ray else 8) == 128 + signal.SIGTERM
    _, alive = psutil.wait_procs(started, timeout=5)
    assert not alive and b"Traceback" not in held.said
    assert is_ray or not out.exists()  # Ray goes on from its parts


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["step", "checkpoint"])
def test_two_signals_end_what_takes_minutes(moment, data, tmp_path):
    held = Held(moment, "train", *train_words(data, tmp_path / "run"))
    held.wait_for()
    held.send(signal.SIGINT)
    if moment != "checkpoint":  # the one before the first step
        held.wait_for(b"Stopping after this step")
        assert time.monotonic() - held.sent < 2
        time.sleep(1)
        assert held.process.poll() is None
        held.send(signal.SIGINT)
    assert held.ended(8) == 130


def said(capsys, work):
    """What a command says on standard error when it fails: one sentence, or two."""
    with pytest.raises(SystemExit) as stopped:
        run_carefully(work)
    text = capsys.readouterr().err
    assert stopped.value.code == 2, text
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
def test_what_is_written_line_by_line_is_replaced_when_whole(name, tmp_path, capsys):
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


#: Commands, and fewer bytes than what they write has.
WRITTEN = {
    "average": ("average RUN --out OUT", 1500),
    "translate": ("translate RUN --input IN --output OUT.gz", 20),
    "saved_model": ("export RUN OUT --check a", 20_000),
    "tflite": ("export RUN OUT.tflite --check a", 20_000),
}


@pytest.mark.parametrize("name", slow_but(WRITTEN, "average"))
def test_nothing_is_left_of_what_did_not_fit(name, trained, tmp_path, capsys):
    source, out = tmp_path / "in", tmp_path / "new" / "m"
    source.write_text("the red dog\n" * 40)
    command, size = WRITTEN[name]
    words = filled(command, RUN=trained, IN=source, OUT=out)

    def full():
        with disk_of(size):
            run(*words)

    text = said(capsys, full)
    assert "cannot be written: File too large" in text
    place = tempfile.gettempdir() if name == "tflite" else out  # where it is made
    assert f"{place}" in text and not out.parent.exists()


def test_devices_and_links_are_written_through(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with opened_output(tmp_path / "link") as file:
        file.write(b"a\n")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "out").read_text() == "a\n"
    with saved_beside("/dev/null") as beside:
        assert str(beside) == "/dev/null"
    assert not os.path.isfile("/dev/null")


def test_a_run_names_itself_and_keeps_its_record(trained, tmp_path, capsys):
    record = RunDirectory(trained).record
    before = record.read_text()

    def full():
        with disk_of(50):
            write_json(record, read_record(trained))

    expected = f"keras-luong: {record} cannot be written: File too large."
    assert said(capsys, full) == expected
    assert record.read_text() == before

    def in_training():
        with lock_run(trained):
            full = "x: No space left on device"
            raise tf.errors.ResourceExhaustedError(None, None, full)

    assert f"{trained} cannot be written: No space left" in said(capsys, in_training)
    with pytest.raises(FileNotFoundError, match="directory: '/proc/x'"):
        write_json("/proc/x", {})


def test_weights_on_a_full_disk(tmp_path):
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
