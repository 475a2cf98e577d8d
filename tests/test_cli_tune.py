"""The script that chooses a run's search on validation data."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import keras
import pytest

from keras_luong import Seq2Seq, Seq2SeqConfig
from keras_luong.decoding import BeamSearch
from keras_luong.evaluation.bleu import bleu
from keras_luong.runs.directory import RunDirectory
from keras_luong.runs.loading import load
from keras_luong.runs.record import write_record
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

PATH = Path(__file__).parents[1] / "examples" / "tune_search.py"
SPEC = importlib.util.spec_from_file_location("tune_search", PATH)
tune_search = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tune_search)
WORDS = list("abcdefgh")


@pytest.fixture
def run(tmp_path):
    """A run with random weights; its sources, and the file of its references."""
    keras.utils.set_random_seed(0)
    run = RunDirectory(tmp_path / "run")
    TokenizerPair(WordTokenizer(WORDS), WordTokenizer(WORDS)).save(run.tokenizer)
    model = Seq2Seq(Seq2SeqConfig(12, 12, units=8, init_scale=0.7))
    data = tmp_path / "data"
    settings = {"data": str(data), "source": "x", "target": "y", "bleu_tokenize": "13a"}
    write_record(run.path, model, BeamSearch(2, max_length=9), 20, settings)
    model.save_weights(run.best_weights)
    data.mkdir()
    sources = [f"{a} {b} {c}" for a in "abcd" for b in "efgh" for c in "aceg"]
    for split in ("train", "val"):
        for side in "xy":
            (data / f"{split}.{side}").write_text("\n".join(sources) + "\n")
    return run.path, sources, data / "val.y"


@pytest.mark.slow
def test_the_best_search_becomes_the_runs(run, capsys):
    run, sources, file = run
    references = tune_search.translate(load(run), sources, 4, 3.0)
    file.write_text("\n".join(references) + "\n")
    flags = ["--beam_widths", "1", "4", "--length_penalties", "0", "3"]
    best = tune_search.main([str(run), *flags])
    assert best == (4, 3.0, pytest.approx(100))
    translator = load(run)
    search = translator.search
    assert (search.beam_width, search.length_penalty) == (4, 3.0)
    assert search.max_length == 9  # the rest as it was
    texts = [t.text for t in translator.translate(sources)]
    assert texts == references
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:5]]
    assert [row[:2] for row in rows] == [
        ["1", "0"],
        ["1", "3"],
        ["4", "0"],
        ["4", "3"],
    ]
    other = bleu(tune_search.translate(translator, sources, 1, 0.0), references).score
    assert float(rows[0][2]) == pytest.approx(other, abs=0.01) and other < 99


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--beam_widths 0", "--beam_widths.*0"),
        ("--length_penalties -1", "--length_penalties.*-1"),
        ("--data /no/such/folder", "/no/such/folder"),
        ("--bleu_tokenize foo", "--bleu_tokenize.*foo"),
    ],
)
def test_refuses(run, flags, message, capsys):
    with pytest.raises((SystemExit, ValueError)) as error:
        tune_search.main([str(run[0]), *flags.split()])
    assert re.search(message, f"{error.value} {capsys.readouterr().err}")
    assert load(run[0]).search.beam_width == 2
