"""The script that compares Keras with every export."""

from __future__ import annotations

import subprocess
import sys

import pytest
from export_scripts import EXPORT, export_script
from small_translator import word_translator, written_run

from keras_luong import export_saved_model, export_tflite
from keras_luong.decoding import BeamSearch

pytest.importorskip("ai_edge_litert.interpreter")
c_client = export_script("serving.c_client")

TEXTS = ["the red dog", "", "cat", "is is the red", "x"]
SEARCH = BeamSearch(3, max_length=6)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run, its exports, a text and a reference."""
    path = tmp_path_factory.mktemp("run")
    translator = word_translator(SEARCH)
    written_run(path / "run", translator)
    export_saved_model(translator, path / "model")
    export_tflite(translator, path / "x.tflite")
    export_tflite(translator, path / "x.int8.tflite", "int8")
    # Of a model that says other things.
    export_tflite(word_translator(SEARCH), path / "other.tflite")
    (path / "in.txt").write_text("\n".join(TEXTS) + "\n")
    expected = [t.text for t in translator.translate(TEXTS)]
    (path / "reference.txt").write_text("\n".join(expected) + "\n")
    return path


def verify(run, *options):
    script = EXPORT / "verify.py"
    command = [sys.executable, script, run / "run", run / "in.txt", *options]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


@pytest.mark.slow
def test_it_says_that_all_agree(run):
    has_c = c_client.compiler() is not None
    flags = ["--reference", run / "reference.txt", "--tokenize", "none"]
    flags += ["--saved_model", run / "model" / "1"] + ["--without_c"] * (not has_c)
    done = verify(run, *flags, "--tflite", run / "x.tflite", run / "x.int8.tflite")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All agree." in done.stdout
    table = done.stdout.split("seconds\n")[1].split("nrefs")[0]
    rows = [line.split() for line in table.splitlines()]
    names = ["Keras", "SavedModel,", "x.tflite,", "x.int8.tflite,"]
    if has_c:
        names.insert(2, "SavedModel,")
    assert [row[0] for row in rows] == names
    assert all(row[-3] == "0" for row in rows)  # lines that differ
    assert len({row[-2] for row in rows}) == 1  # BLEU
    assert "tok:none" in done.stdout


@pytest.mark.slow
def test_it_says_so_if_one_does_not(run):
    done = verify(run, "--tflite", run / "x.tflite", run / "other.tflite")
    assert done.returncode == 1
    assert "THEY DO NOT AGREE." in done.stdout
    assert "other.tflite, LiteRT: " in done.stdout


@pytest.mark.slow
def test_wrong_calls(run, tmp_path):
    done = verify(run)
    assert done.returncode == 1 and "Nothing to compare" in done.stderr
    short = tmp_path / "short.txt"
    short.write_text("one\n")
    done = verify(run, "--tflite", run / "x.tflite", "--reference", short)
    assert done.returncode == 1 and "has 5 lines" in done.stderr
