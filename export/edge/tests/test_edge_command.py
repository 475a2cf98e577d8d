"""The command line: one line in is one line out."""

import gzip
import importlib.util
import io
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from edge_files import too_new, with_graph, with_metadata

from keras_luong_edge import Translation, __version__, command

NAME = "keras-luong-edge"
needs_litert = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None, reason="there is no LiteRT"
)


class Echo:
    """Says what it hears, and then louder."""

    n_best = 2

    def __init__(self, path, num_threads=None):
        pass

    def translate(self, texts, n_best=False):
        assert n_best
        return [[said(x.decode(), -0.5), said(f"{x.decode()}!", -1.25)] for x in texts]


def said(text, score):
    nothing = np.zeros([0, 0], "float32")
    return Translation(text, score, [], [], nothing, False, nothing.ravel())


@pytest.fixture
def say(monkeypatch, capfdbinary):
    """Runs the command in this process, with a translator that needs no file."""
    monkeypatch.setattr(command, "EdgeTranslator", Echo)

    def run(content, *flags):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        assert command.main(["x.tflite", *flags]) == 0
        return capfdbinary.readouterr().out

    return run


@pytest.mark.parametrize(
    "content, expected",
    [
        (b"", b""),
        (b"a", b"a\n"),
        (b"a\n", b"a\n"),
        (b"a\n\nb\n", b"a\n\nb\n"),
        (b"\n\n", b"\n\n"),
        (b"\xef\xbb\xbfa\nb\n", b"a\nb\n"),  # a byte order mark
        (b"\xef\xbb\xbf\nb\n", b"\nb\n"),
        (b"\xef\xbb\xbf", b""),
        (b"a\n\xef\xbb\xbfb\n", b"a\n\xef\xbb\xbfb\n"),  # and what is none
        ("a\u2028b\x85c\x0bd\x1ce\n".encode(), b"a b c d e\n"),  # an answer's line ends
        (b"a\rb\n", b"a b\n"),
        (b"a\rb\rc\nd\n", b"a b c\nd\n"),
        (b"a\r\nb\r\n", b"a\nb\n"),
        (gzip.compress(b"a\nb", mtime=0), b"a\nb\n"),
    ],
)
def test_one_line_in_is_one_line_out(say, content, expected):
    assert say(content) == expected


def test_what_is_too_long_is_counted(say, capfdbinary, monkeypatch):
    def cut(self, texts, n_best=False):
        return [[said("a", -0.5)._replace(truncated=len(x) > 1)] for x in texts]

    monkeypatch.setattr(Echo, "translate", cut)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\nbb\n")))
    assert command.main(["x.tflite"]) == 0
    message = b"keras-luong-edge: note: 1 of 2 lines are longer than the model reads"
    assert capfdbinary.readouterr().err.startswith(message)


@pytest.mark.parametrize(
    "content, message",
    [
        (
            gzip.compress(gzip.compress(b"a\n", mtime=0), mtime=0),
            "gzip within gzip: unpack it once",
        ),
        (
            gzip.compress(b"a\n", mtime=0)[:-6],
            "the input is damaged gzip: it ends too early",
        ),
        (gzip.compress(b"a\n", mtime=0) + b"x", "damaged gzip: there are other bytes"),
        (b"a\rb\r", "its lines seem to end with them alone"),
        (b"a\rb\rc\n", "its lines seem to end with them alone"),
    ],
)
@needs_litert
def test_input_that_cannot_be_read(python, model, content, message):
    done = runs(python, model, input=content)
    assert done.returncode == 2 and message in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_lists_as_moses_writes_them(say):
    lines = b"0 ||| a ||| -0.5000\n0 ||| a! ||| -1.2500\n1 |||  ||| -0.5000\n"
    assert say(b"a\n\n", "--n_best", "2") == lines + b"1 ||| ! ||| -1.2500\n"
    assert say(b"a\n", "--n_best", "1") == b"a\n"


def test_more_than_the_file_holds(say, capfdbinary, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\n")))
    assert command.main(["x.tflite", "--n_best", "5"]) == 0
    out, err = capfdbinary.readouterr()
    assert out.count(b"\n") == 2
    assert err == b"keras-luong-edge: note: x.tflite finds at most 2 for each line\n"


def test_scores(say):
    assert say(b"a\nb\n", "--scores") == b"a ||| -0.5000\nb ||| -0.5000\n"


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--n_best", "0"], "--n_best must be at least 1. Received: 0"),
        (["--threads", "-1"], "--threads must be at least 1. Received: -1"),
        (["--threads", "two"], "argument --threads: invalid int value: 'two'"),
        (["--beam", "3"], "unrecognized arguments: --beam 3"),
    ],
)
def test_wrong_flags(flags, message, capsys):
    with pytest.raises(SystemExit) as exit:
        command.main(["x.tflite", *flags])
    assert exit.value.code == 2
    assert capsys.readouterr().err == f"{NAME}: {message} (see {NAME} --help)\n"


def test_the_version(capsys):
    with pytest.raises(SystemExit) as exit:
        command.main(["--version"])
    assert exit.value.code == 0 and capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize("stream", ["stdin", "stdout"])
def test_closed_streams(stream, monkeypatch, capsys):
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(SystemExit) as exit:
        command.main(["x.tflite"])
    assert exit.value.code == 2
    name = {"stdin": "input", "stdout": "output"}[stream]
    assert f"standard {name} is closed" in capsys.readouterr().err


def runs(python, *arguments, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    line = [python, "-m", "keras_luong_edge", *map(str, arguments)]
    return subprocess.run(line, **options)


@pytest.mark.slow
def test_users_mistakes_take_a_line_and_no_traceback(python, model, tmp_path):
    (tmp_path / "text.tflite").write_text("this is no model\n")
    with_metadata(model, tmp_path / "later.tflite", format=2)
    for name, message in {
        "nowhere.tflite": "No such file or directory: nowhere.tflite",
        "text.tflite": "'text.tflite' is damaged, or no file of keras_luong.export",
        "later.tflite": "'later.tflite' has format 2, written by keras_luong 0.1.0",
    }.items():
        done = runs(python, name, input=b"a\n", cwd=tmp_path)
        assert done.returncode == 2 and done.stdout == b""
        assert done.stderr.decode().startswith(f"{NAME}: {message}")
        assert done.stderr.count(b"\n") == 1
        done = runs(python, name, "--debug", input=b"a\n", cwd=tmp_path)
        assert done.returncode == 2
        assert b"Traceback" in done.stderr and message.encode() in done.stderr


@needs_litert
def test_a_file_is_translated(python, model, answers):
    content = "".join(x["text"] + "\n" for x in answers).encode()
    done = runs(python, model, "--threads", 1, input=content)
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode().split("\n")
    assert said == [*(x["hypotheses"][0]["text"] for x in answers), ""]


@needs_litert
def test_hypotheses_of_a_file(python, model, answers):
    done = runs(python, model, "--n_best", 2, input=b"the red dog\n\n")
    expected = [
        f"0 ||| {x['text']} ||| {x['score']:.4f}" for x in answers[0]["hypotheses"][:2]
    ]
    assert done.stdout.decode().split("\n") == [*expected, "1 |||  ||| 0.0000", ""]


@needs_litert
def test_what_the_runtime_refuses(python, model, tmp_path):
    path = with_graph(model, tmp_path / "x.tflite", too_new)
    done = runs(python, path, input=b"a\n")
    assert done.returncode == 2
    assert b"FULLY_CONNECTED" in done.stderr and b"Traceback" not in done.stderr


@needs_litert
def test_an_answer_comes_before_the_next_line(python, model, answers):
    with subprocess.Popen(
        [python, "-m", "keras_luong_edge", model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        for answer in answers[:3]:
            process.stdin.write(answer["text"].encode() + b"\n")
            process.stdin.flush()
            said = process.stdout.readline().decode()
            assert said == answer["hypotheses"][0]["text"] + "\n"
        process.stdin.close()
        assert process.wait() == 0


def heeding_ctrl_c():
    """What a shell starts in the background ignores it, and so do all its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@needs_litert
def test_ctrl_c_is_quiet(python, model):
    with subprocess.Popen(
        [python, "-m", "keras_luong_edge", model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heeding_ctrl_c,
    ) as process:
        process.stdin.write(b"a\n")
        process.stdin.flush()
        process.stdout.readline()  # it is at work
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert b"Traceback" not in process.stderr.read()


@needs_litert
def test_a_reader_that_has_enough_is_no_error(python, model):
    line = f"'{python}' -m keras_luong_edge '{model}' | head -n 1"
    done = subprocess.run(line, shell=True, input=b"a\n" * 500, capture_output=True)
    assert done.stdout.count(b"\n") == 1
    assert b"Error" not in done.stderr and b"Traceback" not in done.stderr


@needs_litert
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_an_error(python, model):
    with open("/dev/full", "wb") as full:
        done = runs(python, model, input=b"a\n", stdout=full)
    assert done.returncode == 1
    assert b"keras-luong-edge: No space left" in done.stderr
    assert b"Traceback" not in done.stderr


@needs_litert
def test_what_is_not_utf8_is_counted(python, model):
    done = runs(python, model, input=b"a\n\xff b\n\xef\xbf\xbd\n")
    assert done.returncode == 0 and done.stdout.count(b"\n") == 3
    assert b"note: lines that are not UTF-8: 1, " in done.stderr


@needs_litert
def test_utf_16_is_refused(python, model):
    done = runs(python, model, input="\ufeffa\nb\n".encode("utf-16-le"))
    assert done.returncode == 2 and b"UTF-16" in done.stderr
