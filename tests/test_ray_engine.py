"""Ray's engine says what the local one says, whoever is killed while it works."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import options, run
from small_translator import sentencepiece_translator, written_run

from keras_luong.files import write_lines
from keras_luong.runs.ray_engine import check_ray

ROOT = Path(__file__).parents[1]
ODD = (
    b"\xef\xbb\xbfthe red dog\r\n\n  \nthe\rblue \xff\xfe cat\nin\xe2\x80\xa8the house\n"
    b"\xef\xbb\xbfa byte order mark, later\n\x1f\x8bthe dog\nthe\0cat\n" + b"the " * 99
)
WORDS = ["--window", "16", "--batch_size", "4", "--workers", "2", "--engine", "ray"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A run whose translations differ."""
    return written_run(tmp_path_factory.mktemp("run"), sentencepiece_translator()).path


@pytest.fixture
def source(tmp_path):
    lines = [f"the {a} {b} is {i}" for i in range(70) for a in ("red", "blue")
             for b in ("dog", "cat")]  # fmt: skip
    file = tmp_path / "in.en"
    file.write_bytes(ODD + b"\n" + "\n".join(lines).encode())
    return file


def locally(path, source, *words):
    """What the local engine writes, a window at a time as Ray's."""
    out = source.with_name("local")
    sizes = [*WORDS[:4], "--input", source]
    run("translate", path, *sizes, *words, "--output", out)
    return out.read_bytes()


def command(path, source, out, *words):
    """The command in a process of its own, which can be killed."""
    code = "import keras_luong_command as c; c.main()"
    argv = ["translate", path, "--input", source, "--output", out, *WORDS, *words]
    python_path = os.pathsep.join([str(ROOT), str(ROOT / "export" / "edge")])
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, argv)],
        env={**os.environ, "PYTHONPATH": python_path},
        stderr=subprocess.PIPE,
        text=True,
        cwd=source.parent,
    )


def finished(process):
    told = process.communicate()[1]
    assert process.returncode == 0, told
    return told


def wait_for(condition, process, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)


def test_without_ray_it_says_what_to_install(path, source, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(ImportError, match=r"pip install 'keras_luong\[ray\]'"):
        check_ray()
    with pytest.raises(ImportError, match="--engine ray needs Ray Data"):
        run("translate", path, "--input", source, "--output", "out", *WORDS)
    assert not source.with_name("out.parts").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        (["--engine", "ray"], "needs --input and --output"),
        (["--engine", "ray", "--input", "a", "--output", "b", "--pictures", "p"],
         "--pictures are drawn by --engine local only"),
        (["--workers", "2"], "--workers needs --engine ray"),
        (["--address", "auto"], "--address needs --engine ray"),
        (["--column", "text"], "--column needs --engine ray"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        options("translate", "run", *words)
    assert message in capsys.readouterr().err
