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
    """Says what it hears, and then louder; it reads four bytes."""

    n_best = 2

    def __init__(self, path, num_threads=None):
        pass

    def translate(self, texts, n_best=False):
        assert n_best
        (text,) = texts
        cut = len(text) > 4
        text, nothing = text.decode(errors="replace"), np.zeros([0, 0], "float32")
        return [
            [
                Translation(said, score, [], [], nothing, cut, nothing.ravel())
                for said, score in ((text, -0.5), (f"{text}!", -1.25))
            ]
        ]


@pytest.fixture
def say(monkeypatch, capfdbinary):
    """Runs the command in this process, with a translator that needs no file."""
    monkeypatch.setattr(command, "EdgeTranslator", Echo)
    monkeypatch.setattr(command, "_forget_output", lambda: None)

    def run(content, *flags):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        code = command.main(["x.tflite", *flags])
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return run


def packed(content):
    return gzip.compress(content, mtime=0)


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
        (packed(b"a\nb"), b"a\nb\n"),
    ],
)
def test_one_line_in_is_one_line_out(say, content, expected):
    code, out, _ = say(content)
    assert (code, out) == (0, expected)


@pytest.mark.parametrize(
    "content, message",
    [
        (packed(packed(b"a\n")), "gzip within gzip: unpack it once"),
        (packed(b"a\n")[:-6], "the input is damaged gzip: it ends too early"),
        (packed(b"a\n") + b"x", "damaged gzip: there are other bytes behind it"),
        (b"a\rb\r", "its lines seem to end with them alone"),
        (b"a\rb\rc\n", "its lines seem to end with them alone"),
        ("\ufeffa\nb\n".encode("utf-16-le"), "the input is UTF-16, and not UTF-8"),
        ("a b\nb\n".encode("utf-16-be"), "the input is UTF-16BE, and not UTF-8"),
        (bytes(range(1, 9)) * 9, "the input is no text: its first 72 bytes"),
    ],
)
def test_input_that_cannot_be_read(say, content, message):
    code, out, err = say(content)
    assert code == 2 and message in err and err.count("\n") == 1
    assert out == (b"a\n" if "damaged" in message else b"")  # what came before


@pytest.mark.parametrize(
    "flags, content, out, note",
    [
        ("", b"a\n12345\n", b"a\n12345\n", "1 of 2 lines are longer than the model "),
        ("", b"1234\n", b"1234\n", None),
        ("--scores", b"a\nb\n", b"a ||| -0.5000\nb ||| -0.5000\n", None),
        ("--n_best 1", b"a\n", b"a\n", None),
        (  # as Moses writes them
            "--n_best 2",
            b"a\n\n",
            b"0 ||| a ||| -0.5000\n0 ||| a! ||| -1.2500\n"
            b"1 |||  ||| -0.5000\n1 ||| ! ||| -1.2500\n",
            None,
        ),
        (
            "--n_best 3",
            b"a\n",
            b"0 ||| a ||| -0.5000\n0 ||| a! ||| -1.2500\n",
            "x.tflite finds at most 2 for each line\n",
        ),
        (
            "",
            b"a\n\xff\n\xef\xbf\xbd\n",
            b"a\n\xef\xbf\xbd\n\xef\xbf\xbd\n",
            "lines that are not UTF-8: 1, read with U+FFFD\n",
        ),
    ],
)
def test_what_is_written_and_noted(say, flags, content, out, note):
    code, found, err = say(content, *flags.split())
    assert (code, found) == (0, out)
    assert err.startswith(f"{NAME}: note: {note}") if note else not err


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--n_best 0", "--n_best must be at least 1. Received: 0"),
        ("--threads 0", "--threads must be at least 1. Received: 0"),
        ("--threads two", "argument --threads: invalid int value: 'two'"),
        ("--beam 3", "unrecognized arguments: --beam 3"),
    ],
)
def test_wrong_flags(flags, message, capsys):
    with pytest.raises(SystemExit) as exit:
        command.main(["x.tflite", *flags.split()])
    assert exit.value.code == 2
    assert capsys.readouterr().err == f"{NAME}: {message} (see {NAME} --help)\n"


def test_the_version(capsys):
    with pytest.raises(SystemExit) as exit:
        command.main(["--version"])
    assert exit.value.code == 0 and capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize("stream, name", [("stdin", "input"), ("stdout", "output")])
def test_closed_streams(stream, name, monkeypatch, capsys):
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(SystemExit) as exit:
        command.main(["x.tflite"])
    assert exit.value.code == 2
    assert f"standard {name} is closed" in capsys.readouterr().err


@needs_litert
def test_users_mistakes_take_a_line_and_no_traceback(
    model, tmp_path, monkeypatch, capsys
):
    (tmp_path / "text.tflite").write_text("this is no model\n")
    with_metadata(model, tmp_path / "later.tflite", format=2)
    with_graph(model, tmp_path / "new.tflite", too_new)
    monkeypatch.chdir(tmp_path)
    for name, message in {
        "nowhere.tflite": "No such file or directory: nowhere.tflite",
        "text.tflite": "'text.tflite' is damaged, or no file of keras_luong.export",
        "later.tflite": "'later.tflite' has format 2, written by keras_luong 0.1.0",
        "new.tflite": "LiteRT",
    }.items():
        assert command.main([name]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith(f"{NAME}: {message}")
        assert err.count("\n") == 1
        assert command.main([name, "--debug"]) == 2
        err = capsys.readouterr().err
        assert "Traceback" in err and message in err


def runs(python, *arguments, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    line = [python, "-m", "keras_luong_edge", *map(str, arguments)]
    return subprocess.run(line, **options)


@needs_litert
def test_a_file_is_translated(python, model, answers):
    content = "".join(x["text"] + "\n" for x in answers).encode()
    done = runs(python, model, "--threads", 1, "--n_best", 2, input=content)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == [
        f"{i} ||| {x['text']} ||| {x['score']:.4f}"
        for i, answer in enumerate(answers)
        for x in answer["hypotheses"][:2]
    ]


def heeding_ctrl_c():
    """What a shell starts in the background ignores it, and so do all its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@needs_litert
def test_an_answer_comes_before_the_next_line_and_ctrl_c_is_quiet(
    python, model, answers
):
    with subprocess.Popen(
        [python, "-m", "keras_luong_edge", model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heeding_ctrl_c,
    ) as process:
        for answer in answers[:3]:
            process.stdin.write(answer["text"].encode() + b"\n")
            process.stdin.flush()
            said = process.stdout.readline().decode()
            assert said == answer["hypotheses"][0]["text"] + "\n"
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
