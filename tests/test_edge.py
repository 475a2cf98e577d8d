"""Translation where there is neither TensorFlow nor Keras."""

from __future__ import annotations

import subprocess
import sys
import threading
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_translator import (
    SENTENCES,
    sentencepiece_translator,
    to_bytes,
    word_translator,
)

from keras_luong import Translator, export_tflite
from keras_luong.decoding import BeamSearch
from keras_luong.models import build
from keras_luong.text.tokenizer_pair import WordTokenizer

pytest.importorskip("ai_edge_litert.interpreter")
edge = pytest.importorskip("keras_luong.export.edge")

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module", params=[sentencepiece_translator, word_translator])
def pair(request, tmp_path_factory):
    """A translator, and its export."""
    translator = request.param()
    path = tmp_path_factory.mktemp("edge") / "x.tflite"
    export_tflite(translator, path)
    return translator, edge.EdgeTranslator(path), path


ALPHABET = st.sampled_from(
    [*b"abcdefgh t\n\t\r\x00\x1c\x85\xa0\xc3\xe2\x96\x81\xed\xf0\xff", *b"the dog"]
)


SYLLABLES = st.sampled_from(["the", "red", "dog", "under", "a", "u", "th", "in", "x"])
LONG_WORDS = st.lists(SYLLABLES, min_size=30, max_size=120).map("".join).map(str.encode)


@settings(max_examples=50)
@given(
    st.one_of(
        st.binary(max_size=80), st.lists(ALPHABET, max_size=80).map(bytes), LONG_WORDS
    )
)
def test_any_bytes_are_read_as_keras_reads_them(pair, text):
    translator, on_edge, _ = pair
    ids, truncated, empty = on_edge._read(text)
    source = translator._read(np.array([text], object))
    assert source.ids.numpy()[0].tolist() == ids
    assert source.truncated.numpy()[0] == truncated
    assert source.empty.numpy()[0] == empty


@settings(max_examples=100)
@given(st.lists(st.integers(0, 8), max_size=12))
def test_ids_are_written_as_keras_writes_them(pair, ids):
    translator, on_edge, _ = pair
    size = translator.target_tokenizer.vocab_size
    ids = np.array([i % size for i in ids], "int32")
    if 3 in ids:  # a hypothesis ends with its first end
        ids = ids[: list(ids).index(3) + 1]
    expected = translator.target_tokenizer.decode(ids[None]).numpy()[0].decode()
    assert on_edge._target.decode(ids) == expected
    pieces = translator.target_tokenizer.pieces(ids).numpy()
    assert on_edge._target.pieces(ids) == [x.decode() for x in pieces]


@pytest.mark.slow
def test_all_hypotheses_on_request(tmp_path):
    translator = word_translator(BeamSearch(4, 4, max_length=3))
    path = export_tflite(translator, tmp_path / "x.tflite")
    texts = ["the red dog", "", "cat"]
    said = edge.EdgeTranslator(path).translate(texts, n_best=True)
    expected = translator.translate(texts, n_best=True)
    assert [len(x) for x in said] == [len(x) for x in expected]
    for a, b in zip(said, expected, strict=True):
        assert [t.text for t in a] == [t.text for t in b]
        scores = [t.score for t in b]
        np.testing.assert_allclose([t.score for t in a], scores, atol=1e-4)


class Wide:
    """A model that says ids beyond its tokenizer's vocabulary, or nothing at all."""

    def __init__(self, bias):
        self.model = build("small", 6, 12, units=4)
        self.bias = np.array(bias, "float32")

    def encode(self, source_ids):
        return self.model.encode(source_ids)

    def step(self, tokens, state, memory):
        logits, state, weights = self.model.step(tokens, state, memory)
        return logits + self.bias, state, weights


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bias", "text", "score"),
    [
        ([0] * 11 + [99], "<unk> <unk> <unk>", None),
        ([np.nan] * 12, "", -np.inf),
    ],
    ids=["ids beyond the vocabulary", "nothing is possible"],
)
def test_strange_models_are_read_as_keras_reads_them(bias, text, score, tmp_path):
    tokenizer = WordTokenizer(["a", "b"])
    search = BeamSearch(2, max_length=3)
    translator = Translator(Wide(bias), tokenizer, search)
    path = export_tflite(translator, tmp_path / "x.tflite")
    (found,) = edge.EdgeTranslator(path).translate(["a b"])
    (expected,) = translator.translate(["a b"])
    assert found.text == expected.text == text
    assert found.tokens == expected.tokens
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-4)
    assert score is None or found.score == score


def test_threads_may_share_one(pair):
    translator, on_edge, _ = pair
    expected = [t.text for t in translator.translate(SENTENCES)]
    wrong = []

    def ask():
        for _ in range(3):
            said = [t.text for t in on_edge.translate(SENTENCES)]
            wrong.extend(a for a, b in zip(said, expected, strict=True) if a != b)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_sentence_may_be_asked_again(pair):
    # XNNPACK's memory went wrong in one fresh interpreter of twelve, in threads only
    translator, _, path = pair
    sentence = "the red dog"
    said = []

    def ask():
        on_edge = edge.EdgeTranslator(path)
        said.extend(on_edge.translate([sentence])[0].text for _ in range(2))

    for _ in range(60):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert set(said) == {translator.translate([sentence])[0].text}
    assert len(said) == 120


LINES = [x for x in map(to_bytes, SENTENCES) if b"\n" not in x]


def edge_command(*arguments, flags=()):
    return [sys.executable, *flags, "-m", "keras_luong.edge", *map(str, arguments)]


def test_the_command_line_translates_lines_without_tensorflow(pair):
    translator, _, path = pair
    done = subprocess.run(
        edge_command(path, flags=["-X", "importtime"]),
        input=b"\n".join(LINES),  # the last line without its end
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    expected = [t.text for t in translator.translate(LINES)]
    assert done.stdout.decode().split("\n") == [*expected, ""]
    imported = {
        line.split("|")[-1].strip().split(".")[0]
        for line in done.stderr.decode().splitlines()
        if line.startswith("import time:")
    }
    assert "keras_luong" in imported and "numpy" in imported
    assert not imported & {"tensorflow", "keras", "h5py", "jax", "torch", "psutil"}


def test_scores_on_request(pair):
    translator, _, path = pair
    command = edge_command(path, "--scores", "--threads", 1)
    done = subprocess.run(command, input=b"the red dog\n\n", capture_output=True)
    score, text = done.stdout.decode().split("\n")[0].split("\t")
    (expected,) = translator.translate(["the red dog"])
    assert text == expected.text
    assert float(score) == pytest.approx(expected.score, abs=1e-3)
    assert done.stdout.decode().split("\n")[1] == "0.0000\t"


def test_a_reader_that_has_enough_is_no_error(pair):
    command = " ".join(edge_command(pair[2])) + " | head -n 1"
    done = subprocess.run(command, shell=True, input=b"a\n" * 500, capture_output=True)
    assert done.stdout.count(b"\n") == 1 and b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_an_error(pair):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            edge_command(pair[2]), input=b"a\n", stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert b"No space left" in done.stderr and b"Traceback" not in done.stderr


def test_threads_are_counted_from_one(pair):
    with pytest.raises(ValueError, match="num_threads must be at least 1. Received: 0"):
        edge.EdgeTranslator(pair[2], num_threads=0)


def damaged(path, tmp_path, how):
    target = tmp_path / "damaged.tflite"
    content = path.read_bytes()
    if how == "cut":
        target.write_bytes(content[:-10])
    elif how == "no archive":
        target.write_bytes(content[:1000])
    elif how == "empty":
        target.touch()
    elif how == "other format":
        with zipfile.ZipFile(target, "w") as archive:
            archive.writestr("keras_luong.json", '{"format": 99, "library": "k 9"}')
    elif how == "no json":
        with zipfile.ZipFile(target, "w") as archive:
            archive.writestr("keras_luong.json", "{")
    elif how == "no tokenizer":
        with zipfile.ZipFile(path) as whole, zipfile.ZipFile(target, "w") as archive:
            archive.writestr("keras_luong.json", whole.read("keras_luong.json"))
    elif how == "bad tokenizer":
        with zipfile.ZipFile(path) as whole, zipfile.ZipFile(target, "w") as archive:
            for name in whole.namelist():
                is_json = name.endswith(".json")
                archive.writestr(name, whole.read(name) if is_json else b"\xff" * 9)
    elif how == "empty tokenizer":
        with zipfile.ZipFile(path) as whole, zipfile.ZipFile(target, "w") as archive:
            for name in whole.namelist():
                is_json = name.endswith(".json")
                archive.writestr(name, whole.read(name) if is_json else b"")
    elif how == "says too little":
        with zipfile.ZipFile(target, "w") as archive:
            archive.writestr("keras_luong.json", '{"format": 1}')
    elif how == "no model":
        with zipfile.ZipFile(path) as whole, zipfile.ZipFile(target, "w") as archive:
            for name in whole.namelist():
                archive.writestr(name, whole.read(name))
    return target


@pytest.mark.parametrize(
    "how",
    [
        "cut",
        "no archive",
        "empty",
        "other format",
        "no json",
        "no tokenizer",
        "bad tokenizer",
        "empty tokenizer",
        "says too little",
        "no model",
    ],
)
def test_a_damaged_file_is_named(pair, how, tmp_path):
    path = damaged(pair[2], tmp_path, how)
    with pytest.raises(ValueError, match="damaged.tflite' is damaged, or no file of"):
        edge.EdgeTranslator(path)
    done = subprocess.run(edge_command(path), capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "damaged.tflite' is damaged" in done.stderr


def test_a_missing_file_is_named():
    with pytest.raises(FileNotFoundError, match="nowhere.tflite"):
        edge.EdgeTranslator("nowhere.tflite")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a dog", "must be a list of strings. Received: 'a dog'"),
        (None, "must be a list of strings. Received: None"),
        ([3], "must be str or bytes. Received: 3"),
    ],
)
def test_wrong_texts(pair, texts, message):
    with pytest.raises(TypeError, match=message):
        pair[1].translate(texts)


NOTHING_ELSE = """
import sys
import keras_luong
from keras_luong.export.edge import EdgeTranslator
said = EdgeTranslator(sys.argv[1]).translate([b"the red dog", ""])
print(said[0].text)
assert not {"tensorflow", "keras"} & set(sys.modules)
try:
    keras_luong.LuongAttention
except AttributeError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_fresh_environment_with_the_edge_extra_alone(pair, tmp_path):
    translator, _, path = pair
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    extra = 'extra == "edge"'
    wanted = [
        line.split(";")[0].strip()
        for line in metadata.requires("keras_luong")
        if extra in line.replace("'", '"')
    ]
    assert len(wanted) == 3
    pip = [python, "-m", "pip", "install", "--quiet"]
    done = subprocess.run([*pip, *wanted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot install {wanted}: {done.stderr[-300:]}")
    subprocess.run([*pip, "--no-deps", ROOT], check=True)
    found = subprocess.run([*pip[:3], "list"], capture_output=True, text=True).stdout
    assert "tensorflow" not in found and "\nkeras " not in found
    expected = translator.translate(["the red dog"])[0].text
    done = subprocess.run(
        [python, "-c", NOTHING_ELSE, path], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    text, error = done.stdout.splitlines()
    assert text == expected
    assert "no 'LuongAttention' here, which needs TensorFlow" in error
    command = [python, "-m", "keras_luong.edge", path]
    lines = b"the red dog\n\n"
    done = subprocess.run(command, input=lines, cwd=tmp_path, capture_output=True)
    assert done.stdout.decode() == f"{expected}\n\n"
