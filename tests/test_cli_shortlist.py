"""Learning a shortlist, and translating with it."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from commands import run
from small_translator import written_run

from keras_luong import Seq2Seq, Seq2SeqConfig, TokenizerPair, Translator, WordTokenizer
from keras_luong.decoding import BeamSearch, Shortlist


@pytest.fixture
def path(tmp_path):
    """An untrained run, and its training data: a to A and so on."""
    data = tmp_path / "data"
    data.mkdir()
    for side, lines in (("en", "a b\nb c\nd\n"), ("de", "A B\nB C\nD\n")):
        for split in ("train", "val", "test"):
            (data / f"{split}.{side}").write_text(lines)
    pair = TokenizerPair(WordTokenizer(list("abcd")), WordTokenizer(list("ABCDE")))
    model, search = Seq2Seq(Seq2SeqConfig(8, 9, units=4)), BeamSearch(3, max_length=4)
    settings = {"data": str(data), "source": "en", "target": "de"}
    translator = Translator(model, pair, search, 20)
    return written_run(tmp_path / "run", translator, settings).path


def test_learns_from_the_runs_own_data(path, capsys):
    run("shortlist", path, "--per_word", "3")
    file = path / "shortlist.npz"
    said = capsys.readouterr().out
    assert f"{file}: " in said and "4 frequent words, 3 per source word, of 9" in said
    learned = Shortlist.load(file)
    assert set(learned.frequent) == {4, 5, 6, 7}  # never E
    assert 8 not in learned.lexicon
    assert set(learned.lexicon[7]) <= {0, 7}  # d only ever met D


@pytest.mark.slow
def test_other_data_and_fewer_of_it(path, tmp_path):
    out = tmp_path / "few.npz"
    words = ["--limit_examples", "1", "--frequent", "1", "--out", out]
    run("shortlist", path, *words)
    assert set(Shortlist.load(out).frequent) == {4}


@pytest.mark.slow
def test_translations_are_made_of_it(path, tmp_path, monkeypatch):
    Shortlist([8], [[0]] * 8, 9).save(tmp_path / "only_e.npz")
    out = SimpleNamespace(buffer=io.BytesIO(), fileno=lambda: 1)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a b\nc\n")))
    words = ["--shortlist", tmp_path / "only_e.npz", "--no_unknown"]
    run("translate", path, *words, "--min_length", "3")
    lines = out.buffer.getvalue().decode().splitlines()
    assert [set(line.split()) for line in lines] == [{"E"}, {"E"}]
