"""The script that exports a run for the edge."""

from __future__ import annotations

import pytest
from export_scripts import export_script
from small_translator import word_translator, written_run

from keras_luong.decoding import BeamSearch

pytest.importorskip("ai_edge_litert.interpreter")
edge = pytest.importorskip("keras_luong_edge")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    translator = word_translator(BeamSearch(3, max_length=6))
    return translator, written_run(path / "run", translator)


@pytest.mark.parametrize(
    ("flags", "search", "source_length"),
    [
        ([], "beam_width=3", None),
        pytest.param(
            ["--quantize", "int8", "--source_length", "9", "--beam_width", "1"],
            "beam_width=1",
            9,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_it_exports_a_run(flags, search, source_length, run, tmp_path, capsys):
    translator, directory = run
    out = tmp_path / "x.tflite"
    argv = [str(directory.path), str(out), "--check", "the red dog", *flags]
    export_script("to_tflite").main(argv)
    on_edge = edge.EdgeTranslator(out)
    assert search in on_edge.metadata["search"]
    assert on_edge.metadata["source_length"] == source_length
    assert on_edge.metadata["run"]["settings"] == {"epochs": 3}
    assert on_edge.metadata["run"]["search"]["beam_width"] == 3
    assert on_edge.metadata["run"]["results"] is None  # nobody evaluated it
    (said,) = on_edge.translate(["the red dog"])
    assert f"'the red dog' -> {said.text!r}" in capsys.readouterr().out
    if not flags:
        assert said.text == translator.translate(["the red dog"])[0].text


@pytest.mark.slow
def test_what_a_run_says_of_itself_comes_along(run, tmp_path):
    directory = run[1]
    directory.results.write_text('{"test": {"bleu": 39.6, "signature": "nrefs:1"}}')
    argv = [str(directory.path), str(tmp_path / "x.tflite"), "--check", "cat"]
    export_script("to_tflite").main(argv)
    results = edge.EdgeTranslator(tmp_path / "x.tflite").metadata["run"]["results"]
    directory.results.unlink()
    assert results["test"] == {"bleu": 39.6, "signature": "nrefs:1"}


def test_wrong_options(run, tmp_path):
    directory = run[1]
    argv = [str(directory.path), str(tmp_path / "x.tflite")]
    script = export_script("to_tflite")
    with pytest.raises(ValueError, match="max_source_length must be at least 1.*: 0"):
        script.main([*argv, "--max_source_length", "0"])
    directory.results.write_text("{")
    with pytest.raises(ValueError, match="results.json is damaged: it is not JSON"):
        script.main(argv)
    directory.results.unlink()
    assert not list(tmp_path.iterdir())
