"""The load generator, and a C program that loads the SavedModel as Serving does.

The clients of REST and gRPC are tested with the server, in `test_server.py`.
"""

from __future__ import annotations

import gzip
import subprocess
import sys

import pytest
from export_scripts import EXPORT, export_script
from small_translator import SENTENCES, to_bytes

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")
slow = pytest.mark.slow
c_client = export_script("serving.c_client")
load = export_script("load")

TEXTS = list(map(to_bytes, SENTENCES))
LINES = [text for text in TEXTS if b"\n" not in text]


@pytest.fixture(scope="module")
def expected(pieces_said):
    return {to_bytes(t): x[0] for t, x in zip(SENTENCES, pieces_said, strict=True)}


def test_a_single_string_is_refused():
    rest_client = export_script("rest_client")
    with pytest.raises(TypeError, match="must be lists. Received: 'abc'"):
        rest_client.predict("http://localhost:9", "m30k", {"text": "abc"})
    with pytest.raises(OSError):
        rest_client.predict("http://localhost:9", "m30k", {"text": ["a"]})


def run(script, *arguments, **options):
    """What a script of `export/serving` prints."""
    command = [sys.executable, EXPORT / "serving" / script, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def assert_a_table(said, shapes):
    """Of threads and batch sizes, with nothing that failed or changed."""
    rows = [x.split("|")[1:-1] for x in said.splitlines()[2:] if x.startswith("|")]
    assert [(int(row[0]), int(row[1])) for row in rows] == shapes
    for row in rows:
        p50, p95, p99, rate, failed, changed = map(float, row[2:8])
        assert 0 < p50 <= p95 <= p99 and rate > 0
        assert failed == changed == 0


@slow
@pytest.mark.parametrize("which", ["saved_model", "tflite"])
def test_the_load_generators_table(which, request, tmp_path):
    name = {"saved_model": "pieces_model", "tflite": "pieces_tflite"}[which]
    texts = tmp_path / "in.txt"
    texts.write_text("the red dog\ncat\nis is\n")
    flags = ["--requests", 40, "--threads", 1, 3, "--batch_size", 1, 2]
    said = run("load.py", texts, f"--{which}", request.getfixturevalue(name), *flags)
    assert_a_table(said, [(1, 1), (1, 2), (3, 1), (3, 2)])


@slow
def test_lines_in_lines_out(program, pieces_model, expected):
    said = run("c_client.py", pieces_model, input=b"\n".join(LINES))
    assert said.split("\n") == [*(expected[line].text for line in LINES), ""]


def test_load_counts_what_fails_and_what_changes():
    said = iter(range(-load.WARM, 1000))

    def unreliable(texts):
        number = next(said)
        if number >= 0 and number % 10 == 9:
            raise RuntimeError("no")
        return [b"other" if number == 35 else texts[0]]

    found = load.send(unreliable, [b"a", b"b"], requests=80)
    assert found.failed == 8 and found.changed == 1
    assert len(found.milliseconds) == 72


def test_the_models_configuration_is_one_that_serving_reads():
    pytest.importorskip("tensorflow_serving.apis")
    from google.protobuf import text_format
    from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

    text = (EXPORT / "serving" / "models.config").read_text()
    config = text_format.Parse(text, ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path) == ("m30k", "/models/m30k")
    assert model.model_platform == "tensorflow"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The C program."""
    try:
        return c_client.build(tmp_path_factory.mktemp("bin"))
    except FileNotFoundError as error:  # there is no compiler
        pytest.skip(str(error))


@slow
def test_the_c_program_says_what_keras_says(program, pieces_model, expected):
    said, report = c_client.translate(program, pieces_model, TEXTS)
    assert [x.decode() for x in said] == [expected[text].text for text in TEXTS]
    assert report.startswith(f"{len(TEXTS)} requests, 0 failed")
    texts = [TEXTS[i % len(TEXTS)] for i in range(400)]  # many threads on one session
    said, _ = c_client.translate(program, pieces_model, texts, threads=16)
    assert [x.decode() for x in said] == [expected[text].text for text in texts]


def ask_program(program, version, content, *flags, change=None, **options):
    command = c_client.command(program, version, *flags)
    for place, value in (change or {}).items():
        command[place] = value
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    done = subprocess.run(command, input=content, **options)
    return done.returncode, done.stdout, done.stderr.decode()


@slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: "nowhere"}, "nowhere"),
        ({2: "nowhere.so"}, "nowhere.so"),
        ({3: "nothing:0"}, "nothing:0: the graph has no such tensor"),
        ({5: "--thread"}, "--thread: no such option"),
    ],
)
def test_wrong_arguments_of_the_program(program, pieces_model, change, message):
    code, _, said = ask_program(program, pieces_model, b"", "--framed", change=change)
    assert code == 2 and message in said


@slow
@pytest.mark.parametrize(
    "content, message",
    [
        (gzip.compress(b"the\n", mtime=0), "the input is gzip: unpack it first"),
        ("the\n".encode("utf-16"), "the input is UTF-16: convert it first"),
        (b"the\rcat", "the input is one line with carriage returns within"),
        (b"the\rcat\r\n", "the input is one line with carriage returns within"),
    ],
)
def test_input_that_is_no_text_is_refused(program, pieces_model, content, message):
    code, out, said = ask_program(program, pieces_model, content, "--threads", "2")
    assert code == 1 and message in said and not out


@slow
def test_what_else_the_program_reads_and_writes(program, pieces, pieces_model):
    for text in (b"the\rcat\n", b"the\rcat\rdog\nthe\0\r\n", b"\r\r\n"):
        code, out, _ = ask_program(program, pieces_model, text)
        lines = text.removesuffix(b"\n").split(b"\n")
        expected = [t.text for t in pieces.translate(lines)]
        assert code == 0 and out.decode().splitlines() == expected
    answer = pieces.translate(["the"])[0].text.encode()
    for rest in (b"\3", b"\3\0\0\0t"):
        question = b"\3\0\0\0the" + rest
        flags = ["--framed", "--threads", "2"]
        code, out, said = ask_program(program, pieces_model, question, *flags)
        assert code == 1 and "the input ends early" in said
        assert out == len(answer).to_bytes(4, "little") + answer
    with open("/dev/full", "wb") as full:
        code, _, said = ask_program(program, pieces_model, b"the\n", stdout=full)
    assert code == 1 and "cannot be written" in said
