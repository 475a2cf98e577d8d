"""Two workers train, one is killed: the loop of the docs starts both again."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from processes import PATHS, ROOT, free_ports
from small_training import write_corpus

from keras_luong.config.training import TrainingConfig
from keras_luong.runs.load_save import load
from keras_luong.runs.machines import Machines, Told
from keras_luong.runs.run import RunDirectory, read_history, read_record
from keras_luong.training.strategies import make_strategy

PAGE = (ROOT / "docs" / "several_machines.md").read_text("utf-8")
(LOOP,) = re.findall(r"```bash\n(until .*?)```", PAGE, re.S)
TINY = (
    "--units 8 --tokenizer sentencepiece --vocab_size 30 --subword_sampling 0.2 "
    "--optimizer adam --learning_rate 0.01 --dropout 0.3 --batch_tokens 60 --epochs 2 "
    "--beam_width 2 --save_steps 5"
)
#: Writes the names of files that were read to their end, a line each.
COUNTS_READINGS = """
import json, os, sys
if "keras_luong.cli" in sys.orig_argv:
    from keras_luong.text import corpus_files
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    read = corpus_files.read_lines
    def reading(path):
        yield from read(path)
        with open(f"{index}.read", "a") as file:
            file.write(f"{os.path.basename(path)}\\n")
    corpus_files.read_lines = reading
"""
WAIT = 500  # seconds, on a machine that does other things too


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with a corpus, and a `keras-luong` that trains something tiny."""
    place = tmp_path_factory.mktemp("place")
    corpus = place / "my" / "corpus"
    corpus.mkdir(parents=True)
    write_corpus(corpus, train=200, val=8)
    for path in corpus.iterdir():
        path.rename(path.with_suffix({".xx": ".en", ".yy": ".de"}[path.suffix]))
    command = place / "bin" / "keras-luong"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m keras_luong.cli "$@" {TINY}\n'
    )
    command.chmod(0o755)
    (place / "site").mkdir()
    (place / "site" / "sitecustomize.py").write_text(COUNTS_READINGS)
    return place


@contextlib.contextmanager
def workers(place):
    """Two of the page's loops, each a worker of one cluster."""
    cluster = [f"localhost:{port}" for port in free_ports(2)]
    started = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        environment = {
            "TF_CONFIG": json.dumps({"cluster": {"worker": cluster}, "task": task}),
            "PATH": os.pathsep.join([str(place / "bin"), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([PATHS, str(place / "site")]),
            "CUDA_VISIBLE_DEVICES": "",
            "TF_NUM_INTRAOP_THREADS": "1",
        }
        with open(place / f"{index}.log", "w") as log:
            output = {"stdout": log, "stderr": subprocess.STDOUT, "cwd": place}
            environment = {**os.environ, **environment}
            loop = ["sh", "-c", LOOP]
            given = {"env": environment, "start_new_session": True, **output}
            started.append(subprocess.Popen(loop, **given))
    try:
        yield started
    finally:
        for worker in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def runs(place):
    """The run directories of both."""
    path = place / "runs" / "several"
    return [RunDirectory(path), RunDirectory(path / "workers" / "1")]


def logs(place):
    """What each has said."""
    return [(place / f"{index}.log").read_text() for index in range(2)]


def end_well(started, place):
    for worker in started:
        assert worker.wait(WAIT) == 0, logs(place)


def kill(run, seen):
    """Kills who trains there, once `seen` is true."""
    end = time.monotonic() + WAIT
    while not seen(run):
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(int(run.owner.read_text()), signal.SIGKILL)


def in_the_first_epoch(run):
    return (run.checkpoints / "ckpt-4.index").exists()


def in_the_last_evaluation(run):
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        notes = run.checkpoints.glob("ckpt-*.history")
        return any(note.read_text().startswith("[2,") for note in notes)


def assert_equal(one, other):
    """Bit for bit."""
    for x, y in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(x, y, err_msg=x.path)


@pytest.fixture(scope="module")
def whole(place):
    """What both have at the end of a training in which none is killed."""
    with workers(place) as started:
        end_well(started, place)
    # The first one reads the text; the other one what it has made of it.
    read = [(place / f"{index}.read").read_text().split() for index in range(2)]
    assert [names.count("train.en") for names in read] == [3, 0]
    corpora = [read_record(run.path)["corpus"] for run in runs(place)]
    assert corpora[0] == corpora[1]
    one, other = (load(run.path, "last").model for run in runs(place))
    assert_equal(one, other)
    shutil.rmtree(place / "runs")
    return one


VICTIMS = [(0, in_the_last_evaluation), (1, in_the_first_epoch)]


@pytest.mark.slow
@pytest.mark.parametrize("victim, when", VICTIMS)
def test_killed_and_started_again(place, whole, victim, when):
    """The weights are those of a training in which none was killed."""
    try:
        with workers(place) as started:
            kill(runs(place)[victim], when)
            end_well(started, place)
        for run in runs(place):
            assert_equal(whole, load(run.path, "last").model)
            assert [line["epoch"] for line in read_history(run.path)] == [1, 2]
            assert run.results.exists()
        said = logs(place)
        assert f"A machine (worker {victim}) was lost" in said[1 - victim]
        if when is in_the_first_epoch:
            assert all("Going on from step" in text for text in said)
    finally:
        shutil.rmtree(place / "runs", ignore_errors=True)


def test_machines_of_other_settings_are_refused(tmp_path):
    machines = Machines(make_strategy("one"), tmp_path)
    config = TrainingConfig.from_preset("small", data="a", source="xx", target="yy")
    same = {**config.settings(), "data": "elsewhere"}
    machines.check(config, Told(same, {}))
    machines.check(config, None)  # of the first one
    with pytest.raises(ValueError, match="first one. They differ in units: 7 there, "):
        machines.check(config, Told({**same, "units": 7}, {}))
