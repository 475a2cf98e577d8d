"""The script that learns a shortlist, and the scripts that use one."""

from __future__ import annotations

import importlib.util
import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from keras_luong.models.config import Seq2SeqConfig

from keras_luong.decoding import BeamSearch, Shortlist
from keras_luong.models.seq2seq import Seq2Seq
from keras_luong.runs.directory import RunDirectory
from keras_luong.runs.record import write_record
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

EXAMPLES = Path(__file__).parents[1] / "examples"


def script(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path):
    """An untrained run, and its training data: a to A and so on."""
    data = tmp_path / "data"
    data.mkdir()
    for side, lines in (("en", "a b\nb c\nd\n"), ("de", "A B\nB C\nD\n")):
        for split in ("train", "val", "test"):
            (data / f"{split}.{side}").write_text(lines)
    run = RunDirectory(tmp_path / "run")
    pair = TokenizerPair(WordTokenizer(list("abcd")), WordTokenizer(list("ABCDE")))
    pair.save(run.tokenizer)
    model = Seq2Seq(Seq2SeqConfig(8, 9, units=4))
    settings = {"data": str(data), "source": "en", "target": "de"}
    write_record(run.path, model, BeamSearch(3, max_length=4), 20, settings)
    model.save_weights(run.best_weights)
    return run.path


def test_learns_from_the_runs_own_data(run, capsys):
    path = script("make_shortlist").main([str(run), "--per_word", "3"])
    assert path == run / "shortlist.npz"
    assert "4 frequent words, 3 per source word, of 9" in capsys.readouterr().out
    learned = Shortlist.load(path)
    assert set(learned.frequent) == {4, 5, 6, 7}  # never E
    assert 8 not in learned.lexicon
    assert set(learned.lexicon[7]) <= {0, 7}  # d only ever met D


def test_other_data_and_fewer_of_it(run, tmp_path):
    out = tmp_path / "few.npz"
    flags = ["--limit_examples", "1", "--frequent", "1", "--out", str(out)]
    script("make_shortlist").main([str(run), *flags])
    assert set(Shortlist.load(out).frequent) == {4}


def test_translations_are_made_of_it(run, tmp_path, monkeypatch):
    Shortlist([8], [[0]] * 8, 9).save(tmp_path / "only_e.npz")
    out = SimpleNamespace(buffer=io.BytesIO(), fileno=lambda: 1)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a b\nc\n")))
    flags = ["--shortlist", str(tmp_path / "only_e.npz"), "--no_unknown"]
    script("translate").main([str(run), *flags, "--min_length", "3"])
    lines = out.buffer.getvalue().decode().splitlines()
    assert [set(line.split()) for line in lines] == [{"E"}, {"E"}]


def test_a_file_that_is_not_there(run):
    with pytest.raises(SystemExit):
        script("translate").main([str(run), "--shortlist", "nowhere.npz"])
