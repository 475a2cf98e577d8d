"""Files of format 1 are translated as they were when they were written."""

import math
import os
import re
import shutil
import subprocess
import sys
import threading
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from edge_files import too_new, with_graph, with_metadata

import keras_luong_edge
from keras_luong_edge import EdgeTranslator, Translation

pytest.importorskip("ai_edge_litert.interpreter")
pytest.importorskip("sentencepiece")

EDGE = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def texts(answers):
    return [answer["text"] for answer in answers]


@pytest.fixture(scope="module")
def best(answers):
    return [answer["hypotheses"][0]["text"] for answer in answers]


def texts_of(translations):
    return [translation.text for translation in translations]


def test_the_answers_are_those_of_before(translator, texts, answers, best):
    said = translator.translate(texts, n_best=True)
    for hypotheses, expected in zip(said, answers, strict=True):
        assert len(hypotheses) == len(expected["hypotheses"])
        for found, one in zip(hypotheses, expected["hypotheses"], strict=True):
            assert found.text == one["text"] and found.tokens == one["tokens"]
            assert found.source_tokens == expected["source_tokens"]
            assert found.truncated == expected["truncated"]
            assert found.score == pytest.approx(one["score"], abs=1e-4)
            np.testing.assert_allclose(found.log_probs, one["log_probs"], atol=1e-4)
            shape = (len(found.tokens), len(found.source_tokens))
            assert found.alignment.shape == shape
            assert found.alignment.dtype == found.log_probs.dtype == np.float32
        weights = np.reshape(expected["alignment"], hypotheses[0].alignment.shape)
        np.testing.assert_allclose(hypotheses[0].alignment, weights, atol=1e-4)
    assert texts_of(translator.translate(iter(texts))) == best
    assert isinstance(translator.translate(["a"])[0], Translation)
    assert translator.translate([]) == []
    assert translator.n_best == 3 and translator.metadata["format"] == 1


def test_what_newer_files_say_changes_nothing(model, texts, best, tmp_path):
    special = {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    changes = {"special_ids": special, "bytes_per_token": 64, "n_best": 2}
    path = with_metadata(model, tmp_path / "x.tflite", **changes)
    newer = EdgeTranslator(path, num_threads=2)
    assert newer.n_best == 2 == max(map(len, newer.translate(texts, n_best=True)))
    assert texts_of(newer.translate(texts)) == best


def test_places_that_no_hypothesis_has_taken(translator, monkeypatch):
    def nothing(source):
        return {
            "ids": np.zeros([1, 3, 0], "int32"),
            "lengths": np.zeros([1, 3], "int32"),
            "scores": np.full([1, 3], np.finfo("float32").min),
            "weights": np.zeros([1, 3, 0, source.shape[1]], "float32"),
            "token_log_probs": np.zeros([1, 3, 0], "float32"),
        }

    monkeypatch.setattr(translator, "_graph", nothing)
    ((found,),) = translator.translate(["the dog"], n_best=True)
    assert found.text == "" and found.tokens == [] and found.score == -math.inf
    assert found.source_tokens[-1] == "</s>"


def test_threads_may_share_one(translator, texts, best):
    said = []

    def ask():
        said.extend(texts_of(translator.translate(texts)) for _ in range(5))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [best] * 20


def test_a_sentence_may_be_asked_again(model, texts, best):
    # XNNPACK's memory went wrong in one fresh interpreter of twelve, in threads only
    said = []

    def ask():
        translator = EdgeTranslator(model)
        said.extend(translator.translate(texts[:1])[0].text for _ in range(2))

    for _ in range(60):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert said == best[:1] * 120


@pytest.mark.parametrize(
    "number, error, message",
    [
        (0, ValueError, "num_threads must be at least 1. Received: 0"),
        (1025, ValueError, "num_threads must be at most 1024. Received: 1025"),
        ("2", TypeError, "num_threads must be an int. Received: '2'"),
    ],
)
def test_numbers_of_cores_that_cannot_be(model, number, error, message):
    with pytest.raises(error, match=message):
        EdgeTranslator(model, num_threads=number)


@pytest.mark.parametrize(
    "texts, message",
    [
        ("a dog", "must be a list of strings. Received: 'a dog'"),
        (b"a dog", "must be a list of strings. Received: b'a dog'"),
        (None, "must be a list of strings. Received: None"),
        ([3], "must be str or bytes. Received: 3"),
    ],
)
def test_wrong_texts(translator, texts, message):
    with pytest.raises(TypeError, match=message):
        translator.translate(texts)


def of_another_kind(graph):
    graph.signatureDefs[0].inputs[0].name = b"image"


@pytest.mark.parametrize(
    "change, reason",
    [
        (too_new, "Didn't find op for builtin opcode 'FULLY_CONNECTED' version '99'"),
        (of_another_kind, r"It maps \['image'\] to \['ids', "),
        (None, "The mo"),
    ],
)
def test_a_file_that_the_runtime_refuses_is_not_damaged(
    model, tmp_path, change, reason
):
    path = tmp_path / "x.tflite"
    if change:
        with_graph(model, path, change)
    else:  # an archive without a graph
        with zipfile.ZipFile(model) as whole, zipfile.ZipFile(path, "w") as archive:
            for name in whole.namelist():
                archive.writestr(name, whole.read(name))
    message = rf"LiteRT [\d.]+ cannot run the graph of '.*x.tflite': {reason}"
    with pytest.raises(ValueError, match=message) as caught:
        EdgeTranslator(path)
    assert "damaged" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("changes", [{"source_length": 64}, {"n_best": 4}])
def test_s7_what_the_graph_does_not_say(model, tmp_path, changes):
    path = with_metadata(model, tmp_path / "x.tflite", **changes)
    with pytest.raises(ValueError, match="is damaged: it says .* its graph has"):
        EdgeTranslator(path)


def test_any_file_name(model, texts, best, tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff \xc3\xa4.tflite"
    try:
        shutil.copy(model, path)
    except OSError:
        pytest.skip("files cannot have such names here")
    for name in (path, os.fsdecode(path)):
        assert texts_of(EdgeTranslator(name).translate(texts[:1])) == best[:1]


def test_without_litert(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(ModuleNotFoundError, match="pip install ai-edge-litert"):
        EdgeTranslator(model)


def test_neither_tensorflow_nor_keras_is_imported(python, model):
    code = (
        "import sys; from keras_luong_edge import EdgeTranslator; "
        "EdgeTranslator(sys.argv[1]).translate(['a']); print(*sys.modules)"
    )
    done = subprocess.run(
        [python, "-c", code, model], capture_output=True, text=True, check=True
    )
    imported = {name.split(".")[0] for name in done.stdout.split()}
    assert "keras_luong_edge" in imported and "ai_edge_litert" in imported
    assert not imported & {"tensorflow", "keras", "keras_luong", "h5py", "jax"}


def test_every_public_name_is_documented():
    for name in ("EdgeTranslator", "Translation"):
        assert "Example:" in getattr(keras_luong_edge, name).__doc__
    assert re.fullmatch(r"\d+\.\d+\.\d+", keras_luong_edge.__version__)


def test_the_readmes_python_runs(model, tmp_path, monkeypatch):
    (tmp_path / "mine.tflite").write_bytes(model.read_bytes())
    monkeypatch.chdir(tmp_path)
    readme = (EDGE / "README.md").read_text("utf-8")
    examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, "README.md", "exec"), {})


@pytest.mark.slow
def test_a_fresh_environment(model, texts, best, tmp_path):
    """In which there is nothing else."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    ignored = shutil.ignore_patterns("build", "*.egg-info")
    source = shutil.copytree(EDGE, tmp_path / "source", ignore=ignored)
    pip = [programs / "python", "-m", "pip"]
    done = subprocess.run(
        [*pip, "install", "--quiet", source], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"pip cannot install it: {done.stderr[-300:]}")
    listed = subprocess.run([*pip, "list"], capture_output=True, text=True, check=True)
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    assert "keras-luong-edge" in names
    assert not {"keras", "keras_luong", "tensorflow"} & names
    done = subprocess.run(
        [programs / "keras-luong-edge", model],
        input="".join(f"{text}\n" for text in texts),
        capture_output=True,
        cwd=tmp_path,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == [*best, ""]
