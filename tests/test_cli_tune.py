"""Choosing a run's search on its validation data."""

from __future__ import annotations

import keras
import pytest
from commands import run
from small_translator import written_run

from keras_luong import Seq2Seq, Seq2SeqConfig, TokenizerPair, Translator, WordTokenizer
from keras_luong.decoding import BeamSearch
from keras_luong.evaluation.scores import bleu
from keras_luong.runs.load_save import load
from keras_luong.runs.run import read_record

WORDS = list("abcdefgh")


@pytest.fixture
def tuned(tmp_path):
    """A run with random weights; its sources, and the file of its references."""
    keras.utils.set_random_seed(0)
    model = Seq2Seq(Seq2SeqConfig(12, 12, units=8, init_scale=0.7))
    pair = TokenizerPair(WordTokenizer(WORDS), WordTokenizer(WORDS))
    data = tmp_path / "data"
    settings = {"data": str(data), "source": "x", "target": "y", "bleu_tokenize": "13a"}
    translator = Translator(model, pair, BeamSearch(2, max_length=9), 20)
    path = written_run(tmp_path / "run", translator, settings).path
    data.mkdir()
    sources = [f"{a} {b} {c}" for a in "abcd" for b in "efgh" for c in "aceg"]
    for split in ("train", "val"):
        for side in "xy":
            (data / f"{split}.{side}").write_text("\n".join(sources) + "\n")
    return path, sources, data / "val.y"


def texts(translator, sources, *search):
    width, penalty = search
    other = translator.with_search(beam_width=width, length_penalty=penalty)
    return [t.text for t in other.translate(sources)]


@pytest.mark.slow
def test_the_best_search_becomes_the_runs(tuned, capsys):
    path, sources, file = tuned
    references = texts(load(path), sources, 4, 3.0)
    file.write_text("\n".join(references) + "\n")
    words = ["--beam_widths", "1", "4", "--length_penalties", "0", "3"]
    best = run("tune", path, *words)
    assert best == (4, 3.0, pytest.approx(100), pytest.approx(100))
    translator = load(path)
    search = translator.search
    assert (search.beam_width, search.length_penalty) == (4, 3.0)
    assert search.max_length == 9  # the rest as it was
    assert [t.text for t in translator.translate(sources)] == references
    *lines, last = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines[1:-2]]
    pairs = [["2", "0"], ["1", "0"], ["1", "3"], ["4", "0"], ["4", "3"]]
    assert [row[:2] for row in rows] == pairs
    assert "tok:13a" in lines[-2] and "nc:6" in lines[-1]
    assert last.startswith(f"{path} translates with beam 4, length penalty 3 (before: ")
    other = bleu(texts(translator, sources, 1, 0.0), references).score
    assert float(rows[1][2]) == pytest.approx(other, abs=0.01) and other < 99


@pytest.mark.slow
def test_no_more_hypotheses_than_the_beam_has(tuned):
    path, sources, file = tuned
    file.write_text("\n".join(texts(load(path), sources, 1, 0.0)) + "\n")
    translator = load(path).with_search(n_best=2)
    written_run(path, translator, read_record(path)["settings"])
    run("tune", path, "--beam_widths", "1", "--length_penalties", "0")
    assert load(path).search == BeamSearch(1, n_best=1, max_length=9)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--data /no/such/folder", "/no/such/folder"),
        ("--bleu_tokenize foo", "--bleu_tokenize.*foo"),
        ("--source z", "z"),
    ],
)
def test_refuses(tuned, words, message):
    with pytest.raises((ValueError, OSError), match=message):
        run("tune", tuned[0], *words.split())
    assert load(tuned[0]).search.beam_width == 2
