"""REST and gRPC clients and the load generator, against a stand-in for Serving."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from export_scripts import EXPORT, export_script
from small_translator import SENTENCES, to_bytes, word_translator

from keras_luong import export_saved_model, export_tflite
from keras_luong.decoding import BeamSearch

grpc = pytest.importorskip("grpc")
pytest.importorskip("tensorflow_serving.apis")

from stand_in_server import serving  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")
rest_client = export_script("rest_client")
grpc_client = export_script("grpc_client")
load = export_script("load")

TEXTS = list(map(to_bytes, SENTENCES))


@pytest.fixture(scope="module")
def translator():
    return word_translator(BeamSearch(2, max_length=6))


@pytest.fixture(scope="module")
def exported(translator, tmp_path_factory):
    return export_saved_model(translator, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(exported):
    with serving(exported, "m30k") as addresses:
        yield addresses


@pytest.fixture(scope="module")
def ask(server):
    """Both clients, answering alike."""
    rest, address = server
    client = grpc_client.Client(address, "m30k")

    def ask(inputs, signature="serving_default"):
        said = rest_client.predict(rest, "m30k", inputs, signature)
        also = client.predict(inputs, signature)
        assert said.keys() == also.keys()
        for name, x in also.items():
            if x.dtype == object or x.dtype.kind == "S":
                also[name] = np.char.decode(x.astype(np.bytes_))
                np.testing.assert_array_equal(said[name], also[name])
            else:
                np.testing.assert_allclose(said[name], x, rtol=1e-5)
        return said

    return ask


@pytest.mark.slow
def test_they_translate_any_bytes(translator, ask):
    said = ask({"text": TEXTS})
    expected = translator.translate(TEXTS)
    assert said["translation"] == [t.text for t in expected]
    assert said["truncated"] == [t.truncated for t in expected]


@pytest.mark.slow
def test_they_ask_every_signature(translator, ask):
    texts = ["the red dog", "cat"]
    best = translator.translate(texts)
    said = ask({"text": texts}, "n_best")["translation"]
    assert [row[0] for row in said] == [t.text for t in best]
    said = ask({"text": texts}, "align")["tokens"]
    assert said[0][: len(best[0].tokens)] == best[0].tokens
    scores = ask({"text": texts, "target": ["der Hund", "ist"]}, "score")["log_prob"]
    expected = [t.score for t in translator.score(texts, ["der Hund", "ist"])]
    np.testing.assert_allclose(scores, expected, rtol=1e-4)
    said = ask({"ids": [[4, 5, 6], [7, 0, 0]], "length": [3, 1]}, "ids")["score"]
    np.testing.assert_allclose(said, [t.score for t in best], rtol=1e-4)


@pytest.mark.slow
def test_refusals_say_why(server):
    rest, address = server
    with pytest.raises(RuntimeError, match="m31k:predict answers 400: .*unknown"):
        rest_client.predict(rest, "m31k", {"text": ["a"]})
    with pytest.raises(RuntimeError, match="too many sentences"):
        rest_client.predict(rest, "m30k", {"text": ["a"] * 257})
    with pytest.raises(grpc.RpcError, match="too many sentences"):
        grpc_client.Client(address, "m30k").predict({"text": ["a"] * 257})
    with pytest.raises(OSError):
        rest_client.predict("http://localhost:9", "m30k", {"text": ["a"]})


def test_a_single_string_is_refused():
    with pytest.raises(TypeError, match="must be lists. Received: 'abc'"):
        rest_client.predict("http://localhost:9", "m30k", {"text": "abc"})


def run(script, *arguments, **options):
    command = [sys.executable, EXPORT / "serving" / script, *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize("script", ["rest_client.py", "grpc_client.py"])
def test_their_command_lines(translator, server, script):
    address = server[script.startswith("grpc")]
    lines = [text for text in TEXTS if b"\n" not in text] * 4
    done = run(script, address, "m30k", input=b"\n".join(lines))
    assert done.returncode == 0, done.stderr
    expected = [t.text for t in translator.translate(lines)]
    assert done.stdout.decode().split("\n") == [*expected, ""]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["rest", "grpc", "saved_model", "tflite"])
def test_the_load_generators_table(translator, exported, server, which, tmp_path):
    where = {"rest": server[0], "grpc": server[1], "saved_model": exported}
    if which == "tflite":
        pytest.importorskip("ai_edge_litert.interpreter")
        where["tflite"] = export_tflite(translator, tmp_path / "x.tflite")
    texts = tmp_path / "in.txt"
    texts.write_text("the red dog\ncat\nis is\n")
    flags = ["--requests", 40, "--threads", 1, 3, "--batch_size", 1, 2]
    done = run("load.py", texts, f"--{which}", where[which], *flags)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.decode().splitlines()[2:]]
    assert [(int(row[0]), int(row[1])) for row in rows] == [
        (1, 1),
        (1, 2),
        (3, 1),
        (3, 2),
    ]
    for row in rows:
        p50, p95, p99, rate, failed, changed = map(float, row[2:8])
        assert 0 < p50 <= p95 <= p99 and rate > 0
        assert failed == changed == 0


@pytest.mark.slow
def test_s3_the_load_generator_beside_others(server, tmp_path):
    texts = tmp_path / "in.txt"
    texts.write_text("the red dog\ncat\n")
    flags = ["--requests", 20, "--beside", 2, "--beside_size", 8]
    done = run("load.py", texts, "--rest", server[0], *flags)
    assert done.returncode == 0, done.stderr
    assert "beside 2 of 8 texts: " in done.stdout.decode()


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
    from google.protobuf import text_format
    from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

    text = (EXPORT / "serving" / "models.config").read_text()
    config = text_format.Parse(text, ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path) == ("m30k", "/models/m30k")
    assert model.model_platform == "tensorflow"
