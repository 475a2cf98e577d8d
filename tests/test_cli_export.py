"""Exporting a run, and trying the export out."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf
from commands import options, run
from small_translator import word_translator, written_run

from keras_luong.cli import export
from keras_luong.decoding import BeamSearch
from keras_luong.export import saved_model, tflite, web
from keras_luong.files import write_json
from keras_luong.runs.run import RunDirectory, read_record

FIRST = "the red dog"  # of the validation data


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A translator, and its run that knows its data."""
    path = tmp_path_factory.mktemp("runs")
    for split in ("train", "val"):
        for side, lines in (("en", f"{FIRST}\ncat\n"), ("de", "der Hund\nist\n")):
            (path / f"{split}.{side}").write_text(lines)
    settings = {"data": str(path), "source": "en", "target": "de"}
    translator = word_translator(BeamSearch(3, n_best=3, max_length=6))
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
def test_a_saved_model_that_was_tried_out(whole, tmp_path, capsys):
    translator, path = whole
    run("export", path, tmp_path / "model", "--warmup")
    version = tmp_path / "model" / "1"
    (expected,) = (t.text for t in translator.translate([FIRST]))
    out = capsys.readouterr().out
    assert out.startswith(f"{version}: {FIRST!r} -> {expected!r}\n")
    about = json.loads((version / "assets.extra" / "keras_luong.json").read_text())
    assert about["run"]["settings"] == read_record(path)["settings"]
    assert "beam_width=3" in about["search"] and about["precision"] == "float32"
    extra = {file.name for file in (version / "assets.extra").iterdir()}
    assert extra == {"keras_luong.json", "crc32.json"}  # no warm-up texts
    # What it says to paste.
    model = tf.saved_model.load(str(version))
    said = model.signatures["serving_default"](text=tf.constant([FIRST]))
    assert said["translation"].numpy()[0].decode() == expected


def test_options_of_a_saved_model(path, asked, tmp_path):
    out = tmp_path / "model"
    translator, given = asked(path, out, "--warmup")
    assert given.pop("metadata")["precision"] == "float32"
    assert given == dict(version=1, overwrite=False, max_batch_size=256, warmup=())
    words = "--version 3 --overwrite --max_batch_size 9 --precision mixed_bfloat16"
    words += " --beam_width 2 --warmup a"
    translator, given = asked(path, out, *words.split(), "b c")
    assert given.pop("metadata")["precision"] == "mixed_bfloat16"
    assert translator.model.dtype_policy.name == "mixed_bfloat16"
    assert translator.search == BeamSearch(2, n_best=2, max_length=6)
    assert given == dict(
        version=3, overwrite=True, max_batch_size=9, warmup=("a", "b c")
    )


@pytest.mark.parametrize("has_apis", [True, False])
def test_warm_up_by_the_checked_text_where_it_can_be_written(
    path, asked, tmp_path, monkeypatch, has_apis, capsys
):
    monkeypatch.setattr(
        export.importlib.util, "find_spec", lambda name: object() if has_apis else None
    )
    _, given = asked(path, tmp_path / "model")
    assert given["warmup"] == ((FIRST,) if has_apis else ())
    assert ("pip install tensorflow-serving-api" in capsys.readouterr().out) != has_apis
    _, given = asked(path, tmp_path / "model", "--check", "cat")
    assert given["warmup"] == (("cat",) if has_apis else ())


def test_options_of_a_tflite_file(path, asked, tmp_path):
    out = tmp_path / "x.tflite"
    translator, given = asked(path, out)
    assert given.pop("metadata")["precision"] == "float32"
    assert given == {"quantize": None, "source_length": None}
    assert translator.search.n_best == 3  # the run's
    words = "--quantize int8 --source_length 9 --n_best 1 --max_source_length 8"
    translator, given = asked(path, out, *words.split())
    del given["metadata"]
    assert given == {"quantize": "int8", "source_length": 9}
    assert translator.search.n_best == 1 and translator.max_source_length == 8


def test_options_of_a_page(path, asked, tmp_path):
    out = tmp_path / "site"
    translator, given = asked(path, "--web", out)
    assert given.pop("metadata")["precision"] == "float32"
    assert given == {"quantize": None, "source_length": 64, "overwrite": False}
    assert translator.search.n_best == translator.search.beam_width == 3
    words = "--quantize int8 --source_length 9 --n_best 1 --beam_width 4 --overwrite"
    translator, given = asked(path, "--web", out, *words.split())
    del given["metadata"]
    assert given == {"quantize": "int8", "source_length": 9, "overwrite": True}
    assert translator.search.n_best == 1
    translator, _ = asked(path, "--web", out, "--beam_width", "4")
    assert translator.search.n_best == 4


@pytest.mark.parametrize("words", ["run", "run x --web y"])
def test_one_place_to_write_to(words, capsys):
    with pytest.raises(SystemExit):
        options("export", *words.split())
    said = capsys.readouterr().err
    assert "Give one of OUT, a directory or a file whose name ends in .tflite" in said


@pytest.mark.parametrize(
    "words, message",
    [
        ("x.tflite --version 2", "--version is for a SavedModel.*2, x.tflite"),
        ("x.tflite --max_batch_size 9", "--max_batch_size is for a SavedModel"),
        ("x.tflite --warmup", "--warmup is for a SavedModel"),
        ("x.tflite --precision float32", "--precision is for a SavedModel.*float32"),
        (
            "x --quantize int8",
            "--quantize is for a .tflite file or a page. Received: int8",
        ),
        ("x --source_length 9", "--source_length is for a .tflite file"),
        ("x --n_best 2", "--n_best is for a .tflite file"),
        ("--web x --version 2", "--version is for a SavedModel.*2, --web x"),
        ("--web x --warmup", "--warmup is for a SavedModel"),
    ],
)
def test_options_of_the_other_kind(words, message):
    with pytest.raises(ValueError, match=message):
        run("export", "no/run", *words.split())


def test_wrong_options(path, tmp_path, capsys):
    for out in ("x", "x.tflite"):
        with pytest.raises(SystemExit):
            run("export", path, tmp_path / out, "--max_source_length", "0")
        said = capsys.readouterr().err
        assert "--max_source_length must be at least 1. Received: 0" in said
        with pytest.raises(ValueError, match="n_best must be at most beam_width"):
            run("export", path, "x.tflite", "--n_best", "4", "--check", "cat")
    assert not list(tmp_path.iterdir())


class TestTextToCheck:
    def test_is_the_first_of_the_validation_data(self, path):
        assert export.check_text(options("export", path, "x")) == FIRST
        asked = options("export", path, "x", "--check", "cat")
        assert export.check_text(asked) == "cat"

    @pytest.mark.parametrize("out", ["model", "x.tflite"])
    def test_must_be_given_where_there_is_none(self, out, whole, tmp_path):
        """Before anything is written."""
        if out.endswith("tflite"):
            pytest.importorskip("keras_luong_edge")
        settings = {"data": "gone", "source": "en", "target": "de"}
        other = written_run(tmp_path / "run", whole[0], settings).path
        with pytest.raises(ValueError, match=r"give --check TEXT\. \(.*gone"):
            run("export", other, tmp_path / out)
        write_json(other / "run.json", {**read_record(other), "settings": {}})
        with pytest.raises(ValueError, match="--check TEXT.*does not name its data"):
            run("export", other, tmp_path / out)
        assert not (tmp_path / out).exists()


def test_an_export_that_says_something_else(whole, capsys):
    translator, _ = whole
    (said,) = (t.text for t in translator.translate([FIRST]))
    export._compare("x", translator, FIRST, said)
    with pytest.raises(RuntimeError, match=f"x translates {FIRST!r} as 'no', the run"):
        export._compare("x", translator, FIRST, "no")
    export._compare("x", translator, FIRST, "no", exact=False)
    assert "Note: x translates" in capsys.readouterr().out


class TestOrigin:
    def test_names_all_runs(self, tmp_path):
        first, second, third = (
            written_run(tmp_path / name, word_translator(), {"seed": i}).path
            for i, name in enumerate("abc")
        )
        write_json(RunDirectory(third).results, {"test": {"bleu": 41.0}})
        words = f"--ensemble {second} --ensemble={third}".split()
        asked = options("export", first, "x", *words)
        about = export.origin(asked, None)
        assert [run["settings"] for run in about["ensemble"]] == [
            {"seed": 1},
            {"seed": 2},
        ]
        results = [run["results"] for run in about["ensemble"]]
        assert results == [None, {"test": {"bleu": 41.0}}]
        alone = export.origin(options("export", first, "x"), "mixed_bfloat16")
        assert alone.keys() == {"precision", "run"}
        assert [about["precision"], alone["precision"]] == ["float32", "mixed_bfloat16"]

    def test_a_damaged_file(self, tmp_path, asked):
        path = written_run(tmp_path / "a", word_translator()).path
        RunDirectory(path).results.write_text("{")
        for out in ("x", "x.tflite"):
            with pytest.raises(ValueError, match="results.json is damaged: it is not"):
                run("export", path, tmp_path / out, "--check", "cat")


class TestOnTheEdge:
    @pytest.fixture
    def edge(self):
        pytest.importorskip("ai_edge_litert.interpreter")
        return pytest.importorskip("keras_luong_edge")

    @pytest.mark.parametrize(
        "words, search, source_length",
        [
            ("", "beam_width=3", None),
            pytest.param(
                "--quantize int8 --source_length 9 --beam_width 1 --check cat",
                "beam_width=1",
                9,
                marks=pytest.mark.slow,
            ),
        ],
    )
    def test_it_exports_a_run(
        self, edge, words, search, source_length, whole, tmp_path, capsys
    ):
        translator, path = whole
        out = tmp_path / "x.tflite"
        run("export", path, out, *words.split())
        on_edge = edge.EdgeTranslator(out)
        assert search in on_edge.metadata["search"]
        assert on_edge.metadata["source_length"] == source_length
        assert on_edge.metadata["run"]["settings"] == read_record(path)["settings"]
        assert on_edge.metadata["run"]["search"]["beam_width"] == 3
        assert on_edge.metadata["run"]["results"] is None  # nobody evaluated it
        text = "cat" if words else FIRST
        (said,) = on_edge.translate([text])
        assert f"{text!r} -> {said.text!r}" in capsys.readouterr().out
        if not words:
            assert said.text == translator.translate([text])[0].text

    @pytest.mark.slow
    def test_results_come_along(self, edge, whole, tmp_path):
        directory = RunDirectory(whole[1])
        directory.results.write_text('{"test": {"bleu": 39.6, "signature": "nrefs:1"}}')
        run("export", directory.path, tmp_path / "x.tflite", "--check", "cat")
        metadata = edge.EdgeTranslator(tmp_path / "x.tflite").metadata
        directory.results.unlink()
        bleu = {"bleu": 39.6, "signature": "nrefs:1"}
        assert metadata["run"]["results"]["test"] == bleu

    @pytest.mark.slow
    def test_where_it_cannot_be_tried_out(self, path, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
        run("export", path, tmp_path / "x.tflite")
        said = capsys.readouterr().out
        assert "It was not tried out, which needs keras-luong-edge" in said
