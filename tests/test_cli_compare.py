"""The table of runs."""

import json
import shutil

import pytest
from commands import run

from keras_luong import BeamSearch, Seq2Seq, Seq2SeqConfig
from keras_luong.cli.compare import HEADER
from keras_luong.files import write_json
from keras_luong.runs.run import RunDirectory, write_record

EPOCHS = [
    {"epoch": 1, "seconds": 90.0, "val_perplexity": 5.0, "val_bleu": 31.0},
    {"epoch": 2, "seconds": 30.0, "val_perplexity": 6.0, "val_bleu": 33.25},
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One with results, one that is being trained, one that has just begun."""
    parent = tmp_path_factory.mktemp("runs")
    model = Seq2Seq(Seq2SeqConfig(9, 9, units=4))
    for name, epochs, settings in (
        ("a", EPOCHS, {"seed": 1, "dropout": 0.1, "data": "x"}),
        ("b", EPOCHS[:1], {"seed": 1, "attention": None, "data": "x", "beta_2": None}),
        ("c", [], {"seed": 1, "data": "x"}),
    ):
        run = RunDirectory(parent / name)
        write_record(run.path, model, BeamSearch(), 20, settings)
        run.history.write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))
    results = {"validation": {"bleu": 35.5, "chrf": 60.25}, "test": {"bleu": 99.0}}
    write_json(RunDirectory(parent / "a").results, results)
    return parent


def cells(line):
    return [text.strip() for text in line.strip("|").split("|")]


def test_shows_what_differs_and_what_was_reached(runs, capsys):
    text = run("compare", *(runs / name for name in "acb"))
    told = capsys.readouterr()
    assert told.out == text + "\n"
    assert told.err.startswith("note: of c nothing is known yet, as it has finished no")
    header, _, begun, first, second = text.splitlines()
    assert cells(begun) == ["c", "", "0", "0", "", "", "", ""]
    assert cells(header) == list(HEADER)
    assert cells(first) == ["b", "attention none", "1", "2", "5.00", "31.00", "", ""]
    scores = ["33.25", "35.50", "60.25"]
    assert cells(second) == ["a", "dropout 0.1", "2", "2", "5.00", *scores]
    assert "99" not in text  # never the test set


def test_shows_the_settings_that_are_asked_for(runs):
    text = run("compare", runs / "a", "--flags", "seed", "dropout")
    assert cells(text.splitlines()[2])[1] == "seed 1, dropout 0.1"


def test_passes_over_what_is_no_run_and_infinities(runs, tmp_path):
    (tmp_path / "notes").mkdir()
    shutil.copytree(runs / "b", tmp_path / "b")
    (tmp_path / "b" / "history.jsonl").write_text(
        json.dumps({**EPOCHS[0], "val_perplexity": None}) + "\n"
    )
    text = run("compare", tmp_path / "notes", tmp_path / "b")
    assert cells(text.splitlines()[2])[4] == "inf"


def test_says_when_there_is_nothing_yet(runs):
    assert "| c " in run("compare", runs / "c")
    with pytest.raises(ValueError, match="no run directory among .*nowhere"):
        run("compare", runs / "nowhere")
    with pytest.raises(ValueError, match="No run has a setting drop_out"):
        run("compare", runs / "a", "--flags", "seed", "drop_out")
