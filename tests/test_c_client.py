"""Translation without Python: a C program loads the SavedModel as Serving does."""

from __future__ import annotations

import gzip
import subprocess
import sys

import pytest
from export_scripts import EXPORT, export_script
from small_translator import (
    SENTENCES,
    sentencepiece_translator,
    to_bytes,
    word_translator,
)

from keras_luong import export_saved_model

c_client = export_script("serving.c_client")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*max_source_length"),
    pytest.mark.skipif(c_client.compiler() is None, reason="there is no C compiler"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    try:
        return c_client.build(tmp_path_factory.mktemp("bin"))
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(
    scope="module",
    params=[
        sentencepiece_translator,
        pytest.param(word_translator, marks=pytest.mark.slow),
    ],
)
def exported(request, tmp_path_factory):
    translator = request.param()
    path = export_saved_model(translator, tmp_path_factory.mktemp("model"))
    return translator, path


@pytest.mark.slow
def test_it_says_what_keras_says(program, exported):
    translator, path = exported
    said, report = c_client.translate(program, path, map(to_bytes, SENTENCES))
    expected = translator.translate(SENTENCES)
    assert [x.decode() for x in said] == [t.text for t in expected]
    assert report.startswith(f"{len(SENTENCES)} requests, 0 failed")


@pytest.mark.slow
def test_many_threads_on_one_session_say_the_same(program, exported):
    translator, path = exported
    texts = [to_bytes(SENTENCES[i % len(SENTENCES)]) for i in range(400)]
    said, _ = c_client.translate(program, path, texts, threads=16)
    expected = {to_bytes(x): translator.translate([x])[0].text for x in SENTENCES}
    assert [x.decode() for x in said] == [expected[text] for text in texts]


@pytest.mark.slow
def test_lines_in_lines_out(exported, tmp_path):
    translator, path = exported
    texts = [b"the red dog", b"", b"the \xc3 cat"]
    script = EXPORT / "serving" / "c_client.py"
    command = [sys.executable, script, path]
    done = subprocess.run(command, input=b"\n".join(texts), capture_output=True)
    assert done.returncode == 0, done.stderr
    expected = [t.text for t in translator.translate(texts)]
    assert done.stdout.decode().split("\n") == [*expected, ""]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: "nowhere"}, "nowhere"),
        ({2: "nowhere.so"}, "nowhere.so"),
        ({3: "nothing:0"}, "nothing:0: the graph has no such tensor"),
        ({5: "--thread"}, "--thread: no such option"),
    ],
)
def test_wrong_arguments(program, exported, change, message):
    command = c_client.command(program, exported[1], "--framed")
    for place, value in change.items():
        command[place] = value
    done = subprocess.run(command, input=b"", capture_output=True)
    assert done.returncode == 2 and message in done.stderr.decode()


@pytest.mark.slow
def test_input_that_ends_early_is_an_error_after_the_answers(program, exported):
    translator, path = exported
    command = c_client.command(program, path, "--framed", "--threads", "2")
    question = b"\3\0\0\0the"
    for rest in (b"\3", b"\3\0\0\0t"):
        done = subprocess.run(command, input=question + rest, capture_output=True)
        assert done.returncode == 1 and b"the input ends early" in done.stderr
        expected = translator.translate(["the"])[0].text.encode()
        assert done.stdout == len(expected).to_bytes(4, "little") + expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "content, message",
    [
        (gzip.compress(b"the\n", mtime=0), b"the input is gzip: unpack it first"),
        ("the\n".encode("utf-16"), b"the input is UTF-16: convert it first"),
        (b"the\rcat", b"the input is one line with carriage returns within"),
        (b"the\rcat\r\n", b"the input is one line with carriage returns within"),
    ],
)
def test_input_that_is_no_text_is_refused(program, exported, content, message):
    command = c_client.command(program, exported[1], "--threads", "2")
    done = subprocess.run(command, input=content, capture_output=True)
    assert done.returncode == 1 and message in done.stderr and not done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [b"the\rcat\n", b"the\rcat\rdog\nthe\0\r\n", b"\r\r\n"]
)
def test_carriage_returns_within_lines(program, exported, text):
    translator, path = exported
    command = c_client.command(program, path)
    done = subprocess.run(command, input=text, capture_output=True)
    expected = [
        t.text for t in translator.translate(text.removesuffix(b"\n").split(b"\n"))
    ]
    assert done.returncode == 0 and done.stdout.decode().splitlines() == expected


@pytest.mark.slow
def test_a_full_disk_is_an_error(program, exported):
    command = c_client.command(program, exported[1])
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, input=b"the\n", stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1 and b"cannot be written" in done.stderr
