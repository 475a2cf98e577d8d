"""Exporting a run, trying the export out, and comparing it with the run elsewhere."""

import dataclasses
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from commands import options, run
from export_scripts import export_script
from small_translator import untraced, word_translator, written_run

import keras_luong as kl
from keras_luong.cli import export, translators, verify
from keras_luong.cli.verify import Answers
from keras_luong.export import saved_model, tflite, web
from keras_luong.files import write_json
from keras_luong.runs.run import RunDirectory, read_record

pytestmark = pytest.mark.usefixtures("eagerly")

versions = export_script("versions")
FIRST = "the red dog"  # of the validation data
TEXTS = [FIRST, "", "cat", "is is the red", "x"]
SEARCH = kl.BeamSearch(3, n_best=3, max_length=6, min_length=3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A translator, and its run that knows its data; and beside it what it says."""
    path = tmp_path_factory.mktemp("runs")
    translator = word_translator(SEARCH)
    with untraced():
        said = [t.text for t in translator.translate(TEXTS)]
    for name, lines in (("in.txt", TEXTS), ("reference.txt", said)):
        (path / name).write_text("\n".join(lines) + "\n")
    for split in ("train", "val"):
        for side, lines in (("en", f"{FIRST}\ncat\n"), ("de", "der Hund\nist\n")):
            (path / f"{split}.{side}").write_text(lines)
    settings = {"data": str(path), "source": "en", "target": "de"}
    return translator, written_run(path / "run", translator, settings).path


@pytest.fixture
def path(whole):
    return whole[1]


class Exported(Exception):
    """Stands for an export: what was asked for is known."""


@pytest.fixture
def asked(monkeypatch):
    """What is asked of an export, which then is not made: -> (translator, kwargs)."""

    def stop(translator, path, **arguments):
        raise Exported(translator, arguments)

    monkeypatch.setattr(saved_model, "export_saved_model", stop)
    monkeypatch.setattr(tflite, "export_tflite", stop)
    monkeypatch.setattr(web, "export_web", stop)

    def ask(*words):
        with pytest.raises(Exported) as stopped:
            run("export", *words)
        return stopped.value.args

    return ask


@pytest.mark.slow
def test_a_saved_model_that_was_tried_out(whole, tmp_path, capsys, monkeypatch):
    translator, path = whole
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
    run("export", path, tmp_path / "model")
    version = tmp_path / "model" / "1"
    (expected,) = (t.text for t in translator.translate([FIRST]))
    out = " ".join(capsys.readouterr().out.split())
    assert "No warm-up requests are written, so TensorFlow Serving compiles" in out
    assert f"{version}: {FIRST!r} -> {expected!r} " in out
    about = json.loads((version / "assets.extra" / "keras_luong.json").read_text())
    settings = read_record(path)["settings"]
    assert about["run"]["settings"] == settings | {"data": Path(settings["data"]).name}
    assert "beam_width=3" in about["search"] and about["precision"] == "float32"
    extra = {file.name for file in (version / "assets.extra").iterdir()}
    assert extra == {"keras_luong.json", "crc32.json"}  # no warm-up texts
    # What it says to paste.
    model = tf.saved_model.load(str(version))
    serve = model.signatures["serving_default"]
    said = serve(text=tf.constant([FIRST]))["translation"]
    assert said.numpy()[0].decode() == expected
    assert "first request to each signature compiles it" in out
    first = eval(out.split("done before: ")[1], {"serve": serve, "tf": tf})
    assert first["score"].shape == [1]


def test_options_of_a_saved_model(path, asked, tmp_path):
    out = tmp_path / "model"
    translator, given = asked(path, out, "--warmup")
    assert given.pop("metadata")["precision"] == "float32"
    expected = dict(version=1, overwrite=False, max_batch_size=256, warmup=())
    assert given == {**expected, "constrain": True}
    words = "--version 3 --overwrite --max_batch_size 9 --precision mixed_bfloat16"
    words += " --no_constrain --beam_width 2 --warmup a"
    words = [*words.split(), "b c"]
    translator, given = asked(path, out, *words)
    assert given.pop("metadata")["precision"] == "mixed_bfloat16"
    assert translator.model.dtype_policy.name == "mixed_bfloat16"
    search = dataclasses.replace(SEARCH, beam_width=2, n_best=2)
    assert translator.search == search
    texts = ("a", "b c")
    expected = dict(version=3, overwrite=True, max_batch_size=9, warmup=texts)
    assert given == {**expected, "constrain": False}


def test_warm_up_by_the_checked_text(path, asked, tmp_path, monkeypatch, capsys):
    for found in (True, None):
        monkeypatch.setattr(export.importlib.util, "find_spec", lambda _, x=found: x)
        for words, text in (([], FIRST), (["--check", "cat"], "cat")):
            _, given = asked(path, tmp_path / "model", *words)
            assert given["warmup"] == ((text,) if found else ())
            told = "pip install tensorflow-serving-api" in capsys.readouterr().out
            assert told == (not found)


def test_options_of_a_tflite_file_and_of_a_page(path, asked, tmp_path):
    file, page = [path, tmp_path / "x.tflite"], [path, "--web", tmp_path / "site"]
    small = "--quantize int8 --source_length 9 --n_best 1 --beam_width 4".split()
    wide = ["--beam_width", "4"]
    for words, quantize, length, more, n_best in (
        (file, None, None, {}, 3),  # the run's
        ([*file, *small], "int8", 9, {}, 1),
        (page, None, 64, {"overwrite": False}, 3),
        ([*page, *small, "--overwrite"], "int8", 9, {"overwrite": True}, 1),
        ([*page, *wide], None, 64, {"overwrite": False}, 4),  # as many as the beam has
    ):
        translator, given = asked(*words, "--max_source_length", "8")
        assert given.pop("metadata")["precision"] == "float32"
        assert given == {"quantize": quantize, "source_length": length, **more}
        beams = 4 if "--beam_width" in words else 3
        search = dataclasses.replace(SEARCH, beam_width=beams, n_best=n_best)
        assert translator.search == search
        assert translator.max_source_length == 8


def test_the_text_to_check_is_the_first_of_the_validation_data(whole, tmp_path):
    """It must be given where there is none, before anything is written."""
    translator, path = whole
    assert export.check_text(options("export", path, "x")) == FIRST
    assert export.check_text(options("export", path, "x", "--check", "cat")) == "cat"
    settings = {"data": "gone", "source": "en", "target": "de"}
    for name, changed, message in (
        ("a", settings, r"give --check TEXT\. \(.*gone.*not there\. Found"),
        ("b", {}, r"--check TEXT.*does not name its data\.\)$"),
    ):
        other = written_run(tmp_path / name, translator, changed).path
        with pytest.raises(ValueError, match=message):
            run("export", other, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_an_export_that_says_something_else(whole, capsys):
    translator, _ = whole
    (said,) = (t.text for t in translator.translate([FIRST]))
    export._compare("x", translator, FIRST, said)
    with pytest.raises(RuntimeError, match=f"x translates {FIRST!r} as 'no', the run"):
        export._compare("x", translator, FIRST, "no")
    export._compare("x", translator, FIRST, "no", exact=False)
    assert "Note: x translates" in capsys.readouterr().out


def test_metadata_names_all_runs(tmp_path):
    first, second, third = (
        written_run(tmp_path / name, word_translator(), {"seed": i}).path
        for i, name in enumerate("abc")
    )
    write_json(RunDirectory(third).results, {"test": {"bleu": 41.0}})
    words = ["--ensemble", second, f"--ensemble={third}"]
    about = export.origin(options("export", first, "x", *words), None)
    assert about["precision"] == "float32" and about["run"]["settings"] == {"seed": 0}
    assert [run["settings"]["seed"] for run in about["ensemble"]] == [1, 2]
    results = [run["results"] for run in about["ensemble"]]
    assert results == [None, {"test": {"bleu": 41.0}}]
    alone = export.origin(options("export", first, "x"), "mixed_bfloat16")
    assert alone.keys() == {"precision", "run"}
    assert alone["precision"] == "mixed_bfloat16"


@pytest.mark.slow
def test_a_file_for_the_edge_that_was_tried_out(whole, tmp_path, monkeypatch, capsys):
    """If there is the edge's package. What it says can be pasted."""
    pytest.importorskip("ai_edge_litert.interpreter")
    edge = pytest.importorskip("keras_luong_edge")
    translator, path = whole
    out, results = tmp_path / "my x.tflite", {"test": {"bleu": 39.6, "signature": "1"}}
    monkeypatch.setattr(export, "read_results", lambda _: results)
    run("export", path, out)
    on_edge = edge.EdgeTranslator(out)
    metadata = on_edge.metadata
    assert "beam_width=3" in metadata["search"] and metadata["source_length"] is None
    assert metadata["run"]["search"]["beam_width"] == 3
    assert metadata["run"]["results"] == results
    (said,) = on_edge.translate([FIRST])
    assert said.text == translator.translate([FIRST])[0].text
    told = capsys.readouterr().out
    assert f"{FIRST!r} -> {said.text!r}" in told
    assert f"\n  keras-luong-edge '{out}' < in.txt" in told
    monkeypatch.setattr(tflite, "export_tflite", lambda *_, **__: out)
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
    run("export", path, out)
    told = capsys.readouterr().out
    assert "It was not tried out, which needs keras-luong-edge" in told


REFERENCE = ["a dog runs in the park", "the cat is red"]
OTHER = ["a dog runs in the park", "the cat was red"]
SPACED = ["a dog runs in the park", "the cat is  red"]


#: What it says, whether it should be the same, and whether it agrees: by its BLEU.
VERIFIED = [(REFERENCE, True, True), (OTHER, True, False), (OTHER, False, False)]
VERIFIED += [(SPACED, False, True), (SPACED, True, False)]


# Comparing a run with its exports.


def table(said):
    rows = said.split("seconds\n")[1].split("nrefs")[0].splitlines()
    return [row.split() for row in rows if row and "agree" not in row.lower()]


def test_another_runtime(whole, monkeypatch, capsys):
    """As export/verify.py gives one in C."""
    translator, path = whole
    expected = path.with_name("reference.txt").read_text().splitlines()
    monkeypatch.setattr(translators, "load_translator", lambda _: translator)
    asked = options("verify", path, path.with_name("in.txt"))
    verify.run(asked, {"Parrot": lambda texts: expected})
    out = capsys.readouterr().out
    rows = [row[:2] for row in table(out)]
    assert rows == [["Keras", "0"], ["Parrot", "0"]] and "All agree." in out
    with pytest.raises(SystemExit) as stopped:
        verify.run(asked, {"Parrot": lambda texts: [*expected[:-1], "something"]})
    assert stopped.value.code == 1
    out = capsys.readouterr().out
    assert "THEY DO NOT AGREE." in out
    assert f"line 5\n  Keras: {expected[-1]}\n  Parrot: something" in out


@pytest.mark.parametrize("said, exact, agree", VERIFIED)
def test_what_is_quantized_may_differ(said, exact, agree, capsys):
    found = [Answers("Keras", REFERENCE, 1.0), Answers("other", said, 2.0, exact)]
    assert verify.compare(found, REFERENCE, "none", 3) == agree
    out = capsys.readouterr().out
    assert ("All agree" in out) == agree and "tok:none" in out
    assert ("quantization may change" in out) == (agree and said != REFERENCE)
    differ = str(sum(a != b for a, b in zip(said, REFERENCE, strict=True)))
    assert table(out)[1][:2] == ["other", differ] and "nc:6" in out


def test_differing_lines_are_shown(capsys):
    found = [Answers("Keras", list("abc"), 1.0), Answers("other", list("xyz"), 2.0)]
    for show in (0, 2):
        assert not verify.compare(found, None, "none", show)
        out = capsys.readouterr().out
        assert out.count("Keras: ") == show and "nrefs" not in out


@pytest.mark.slow
def test_all_exports(whole, tmp_path, capsys):
    """The last one is of a model that says other things."""
    pytest.importorskip("ai_edge_litert.interpreter")
    pytest.importorskip("keras_luong_edge")
    translator, path = whole[0], whole[1].parent
    version = kl.export_saved_model(translator, tmp_path / "model", max_batch_size=2)
    kl.export_tflite(translator, tmp_path / "x.tflite")
    kl.export_tflite(translator, tmp_path / "x.int8.tflite", "int8")
    other, rng = word_translator(SEARCH), np.random.default_rng(0)
    for weight in other.model.trainable_weights:
        weight.assign(rng.normal(size=weight.shape))
    kl.export_tflite(other, tmp_path / "other.tflite")
    words = ["verify", path / "run", path / "in.txt"]
    more = ["--reference", path / "reference.txt", "--bleu_tokenize", "none"]
    files = [tmp_path / "x.tflite", tmp_path / "x.int8.tflite"]
    more += ["--saved_model", version, "--tflite", *files]
    run(*words, *more)
    out = capsys.readouterr().out
    names = [row[0] for row in table(out)]
    assert names == ["Keras", "SavedModel,", "x.tflite,", "x.int8.tflite,"]
    assert "All agree." in out
    with pytest.raises(SystemExit):
        run(*words, "--tflite", tmp_path / "x.tflite", tmp_path / "other.tflite")
    out = capsys.readouterr().out
    assert "THEY DO NOT AGREE." in out and "other.tflite, LiteRT: " in out


def test_the_edge_is_a_distribution_of_its_own(path, monkeypatch):
    """Which is told before anything is translated."""
    monkeypatch.setitem(sys.modules, "keras_luong_edge", None)
    monkeypatch.setattr(translators, "load_translator", None)
    words = [path, path.with_name("in.txt"), "--tflite", "x.tflite"]
    needs = pytest.raises(ModuleNotFoundError, match="tflite needs keras-luong-e")
    with needs:
        run("verify", *words)


SAID = {"align": {"score": [-1.0, -2.0], "tokens": [["a", "b"]], "truncated": [False]}}


def test_what_a_saved_model_answers_elsewhere(tmp_path, monkeypatch):
    """By export/serving/versions.py: what is the same, and how far apart scores are."""

    def other(**changes):
        return {"align": {**SAID["align"], **changes}}

    for said, same, apart in (
        (SAID, 3, 0.0),
        (other(score=[-1.0, -2.5]), 3, 0.5),
        (other(score=[-1.0, math.nan]), 3, math.inf),
        (other(tokens=[["a", "c"]]), 2, 0.0),
        (other(truncated=[True]), 2, 0.0),
    ):
        assert versions.compare(SAID, said) == (3, same, apart)
    for said in ({}, {"others": {}}, other(tokens=[["a"]]), other(score=-1.0)):
        with pytest.raises(ValueError, match="differ in names or shape"):
            versions.compare(SAID, said)
    nothing = SimpleNamespace(create=lambda *_, **__: None)
    monkeypatch.setattr(versions, "venv", nothing)
    args = SimpleNamespace(work=tmp_path, version_dir=tmp_path, lines=tmp_path)
    row = versions.try_version("2.0", args, SAID)  # it has no Python
    assert row == "| 2.0 | | no | |"
