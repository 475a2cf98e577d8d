"""Comparing a run with its exports."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from commands import options, run
from export_scripts import EXPORT, export_script
from small_translator import word_translator, written_run

from keras_luong import export_saved_model, export_tflite
from keras_luong.cli import translators, verify
from keras_luong.cli.verify import Answers
from keras_luong.decoding import BeamSearch

c_client = export_script("serving.c_client")

TEXTS = ["the red dog", "", "cat", "is is the red", "x"]
SEARCH = BeamSearch(3, max_length=6, min_length=3)


def written(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run, a text and a reference."""
    path = tmp_path_factory.mktemp("run")
    translator = word_translator(SEARCH)
    written_run(path / "run", translator)
    written(path / "in.txt", TEXTS)
    expected = [t.text for t in translator.translate(TEXTS)]
    written(path / "reference.txt", expected)
    return path, translator, expected


@pytest.fixture(scope="module")
def exported(whole):
    """The same with exports, one of them of a model that says other things."""
    pytest.importorskip("ai_edge_litert.interpreter")
    path, translator, _ = whole
    export_saved_model(translator, path / "model")
    export_tflite(translator, path / "x.tflite")
    export_tflite(translator, path / "x.int8.tflite", "int8")
    other, rng = word_translator(SEARCH), np.random.default_rng(0)
    for weight in other.model.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    export_tflite(other, path / "other.tflite")
    return path


def table(said):
    rows = said.split("seconds\n")[1].split("nrefs")[0].splitlines()
    return [row.split() for row in rows if row.strip() and "agree" not in row.lower()]


@pytest.mark.slow
def test_another_runtime(whole, capsys):
    """As export/verify.py gives one in C."""
    path, _, expected = whole
    asked = options("verify", path / "run", path / "in.txt")
    verify.run(asked, {"Parrot": lambda texts: expected})
    out = capsys.readouterr().out
    assert "All agree." in out
    assert [row[:2] for row in table(out)] == [["Keras", "0"], ["Parrot", "0"]]
    with pytest.raises(SystemExit) as stopped:
        verify.run(asked, {"Parrot": lambda texts: [*expected[:-1], "something"]})
    assert stopped.value.code == 1
    out = capsys.readouterr().out
    assert "THEY DO NOT AGREE." in out
    assert f"line 5\n  Keras: {expected[-1]}\n  Parrot: something" in out


REFERENCE = ["a dog runs in the park", "the cat is red"]


@pytest.mark.parametrize(
    "said, exact, agree",
    [
        (REFERENCE, True, True),
        (["a dog runs in the park", "the cat was red"], True, False),
        (["a dog runs in the park", "the cat was red"], False, False),  # in BLEU
        (["a dog runs in the park", "the cat is  red"], False, True),
        (["a dog runs in the park", "the cat is  red"], True, False),
    ],
)
def test_what_is_quantized_may_differ_but_not_in_bleu(said, exact, agree, capsys):
    found = [Answers("Keras", REFERENCE, 1.0), Answers("other", said, 2.0, exact)]
    assert verify.compare(found, REFERENCE, "none", 3) == agree
    out = capsys.readouterr().out
    assert ("All agree." in out) == agree and "tok:none" in out
    assert "chrF" in out and "nc:6" in out


@pytest.mark.parametrize("show", [0, 2])
def test_differing_lines_are_shown(show, capsys):
    found = [Answers("Keras", list("abc"), 1.0), Answers("other", list("xyz"), 2.0)]
    assert not verify.compare(found, None, "none", show)
    out = capsys.readouterr().out
    assert out.count("Keras: ") == show and "nrefs" not in out


@pytest.mark.slow
def test_all_exports(exported, capsys):
    pytest.importorskip("keras_luong_edge")
    words = ["--reference", exported / "reference.txt", "--bleu_tokenize", "none"]
    words += ["--saved_model", exported / "model" / "1", "--batch_size", "2"]
    words += ["--tflite", exported / "x.tflite", exported / "x.int8.tflite"]
    run("verify", exported / "run", exported / "in.txt", *words)
    out = capsys.readouterr().out
    names = [row[0] for row in table(out)]
    assert names == ["Keras", "SavedModel,", "x.tflite,", "x.int8.tflite,"]
    assert "All agree." in out
    files = [exported / "x.tflite", exported / "other.tflite"]
    with pytest.raises(SystemExit):
        run("verify", exported / "run", exported / "in.txt", "--tflite", *files)
    out = capsys.readouterr().out
    assert "THEY DO NOT AGREE." in out and "other.tflite, LiteRT: " in out


@pytest.mark.slow
@pytest.mark.skipif(c_client.compiler() is None, reason="there is no C compiler")
def test_the_script_also_runs_it_in_c(exported):
    words = [exported / "run", exported / "in.txt"]
    words += ["--saved_model", exported / "model" / "1"]
    command = [sys.executable, EXPORT / "verify.py", *words]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = table(done.stdout)
    assert [row[1] for row in rows[1:]] == ["Python", "C"]
    assert [row[2] for row in rows[1:]] == ["0", "0"]
    done = subprocess.run([*map(str, command[:4])], capture_output=True, text=True)
    assert done.returncode == 2 and "Nothing to compare" in done.stderr


def test_wrong_calls(whole, tmp_path):
    path, _, _ = whole

    def refuse(error, message, *words):
        with pytest.raises(error, match=message):
            run("verify", "no/run", path / "in.txt", *words)

    refuse(ValueError, "Nothing to compare")
    short = written(tmp_path / "short", ["one"])
    words = ["--saved_model", "x", "--reference", short]
    refuse(ValueError, "in.txt has 5 lines and .*short has 1", *words)
    words = ["--saved_model", "x", "--bleu_tokenize", "13b"]
    refuse(ValueError, "--bleu_tokenize.*13b", *words)
    refuse(FileNotFoundError, "no/run", "--saved_model", "x")


def test_the_edge_is_a_distribution_of_its_own(whole, monkeypatch):
    """Which is told before anything is translated."""
    monkeypatch.setitem(sys.modules, "keras_luong_edge", None)
    monkeypatch.setattr(translators, "load_translator", None)
    path, _, _ = whole
    with pytest.raises(ModuleNotFoundError, match="--tflite needs keras-luong-edge"):
        run("verify", path / "run", path / "in.txt", "--tflite", "x.tflite")
