"""BLEU of a run, on its own held-out splits or on any files."""

from __future__ import annotations

import codecs
import gzip

import pytest
from commands import options, run
from small_translator import word_translator, written_run

from keras_luong.cli import evaluate
from keras_luong.cli.translators import load_translator
from keras_luong.decoding import BeamSearch
from keras_luong.evaluation.bleu import bleu
from keras_luong.evaluation.chrf import chrf
from keras_luong.files import write_json
from keras_luong.runs.record import read_record

SOURCES = ["the red dog", "the cat is the dog", "", "is is the red cat", "x"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A run, and its data: of the test set it says just the references."""
    directory = tmp_path_factory.mktemp("runs")
    translator = word_translator(BeamSearch(2, max_length=7, min_length=6))
    said = [t.text for t in translator.translate(SOURCES)]
    for split, references in (("train", said), ("val", said[::-1]), ("test_a", said)):
        for side, lines in (("en", SOURCES), ("de", references)):
            (directory / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    settings = {"data": str(directory), "source": "en", "target": "de"}
    settings["bleu_tokenize"] = "none"
    return written_run(directory / "run", translator, settings).path


@pytest.fixture(scope="module")
def loaded(path):
    """The run's translator, whose trace is what takes long."""
    return load_translator(options("evaluate", path))


@pytest.fixture
def traced(loaded, monkeypatch):
    monkeypatch.setattr(evaluate, "load_translator", lambda options: loaded)
    return loaded


@pytest.fixture
def said(loaded):
    return [t.text for t in loaded.translate(SOURCES)]


def test_the_runs_own_splits(path, said, capsys):
    run("evaluate", path)
    validation, letters, test, _ = capsys.readouterr().out.splitlines()
    assert validation == f"{'validation':12} {bleu(said, said[::-1], 'none')}"
    assert letters == f"{'':12} {chrf(said, said[::-1])}, 5 sentences"
    assert test.startswith("test_a       BLEU 100.00 (")
    assert "tok:none" in validation and "tok:none" in test


@pytest.mark.usefixtures("traced")
def test_another_tokenisation_and_data(path, capsys):
    words = ["--data", path.parent, "--bleu_tokenize", "char"]
    run("evaluate", path, *words)
    assert capsys.readouterr().out.count("tok:char") == 2


def test_files_however_they_were_written(path, traced, said, tmp_path, capsys):
    source, reference = tmp_path / "news.en", tmp_path / "news.de"
    source.write_bytes(codecs.BOM_UTF8 + "\r\n".join(SOURCES).encode())
    text = "".join(f"{line}\n" for line in said).encode()
    reference.write_bytes(gzip.compress(codecs.BOM_UTF8 + text))
    run("evaluate", path, "--test", source, reference)
    out = capsys.readouterr().out
    assert out.startswith("news.en      BLEU 100.00 (") and "5 sentences" in out


@pytest.mark.usefixtures("traced")
def test_translations_are_kept_and_shown(path, said, tmp_path, capsys):
    run("evaluate", path, "--output", tmp_path / "new", "--show", "1")
    names = {file.name for file in (tmp_path / "new").iterdir()}
    assert names == {"validation.translated", "test_a.translated"}
    kept = (tmp_path / "new" / "test_a.translated").read_bytes()
    assert kept.decode() == "".join(f"{text}\n" for text in said)
    out = capsys.readouterr().out
    assert out.count("source       the red dog\n") == 2
    assert f"reference    {said[0]}\ntranslation  {said[0]}\n" in out
    assert "the cat is" not in out


class TestRefusals:
    @pytest.fixture(autouse=True)
    def not_loaded(self, monkeypatch):
        """Mistakes are found before the run is loaded."""
        monkeypatch.delattr(evaluate, "load_translator")

    def refuse(self, path, message, *words, error=ValueError):
        with pytest.raises(error, match=message):
            run("evaluate", path, *words)

    @pytest.mark.parametrize(
        "names, message",
        [(["a"], "--test needs a value"), (["a", "b", "c"], "Nothing takes c")],
    )
    def test_not_two_files(self, path, names, message, capsys):
        self.refuse(path, "2", "--test", *names, error=SystemExit)
        assert message in capsys.readouterr().err

    def test_files_that_cannot_be_read(self, path, tmp_path):
        one, two, bad = (tmp_path / name for name in ("one", "two", "bad"))
        one.write_text("a\n")
        two.write_text("b\nc\n")
        bad.write_bytes(b"d\n\xff\n")
        message = "two has 2 lines and .*one has 1: line 2 of .*two has no translation"
        self.refuse(path, message, "--test", one, two)
        message = "bad is not UTF-8: line 2 has the byte 0xff"
        self.refuse(path, message, "--test", two, bad)
        words = ["--test", one, tmp_path / "nowhere"]
        self.refuse(path, "nowhere", *words, error=FileNotFoundError)

    def test_a_file_where_translations_should_go(self, path, tmp_path):
        file = tmp_path / "file"
        file.touch()
        message = "--output is the directory .* Received a file: .*/file"
        self.refuse(path, message, "--output", file, error=NotADirectoryError)

    def test_tokenisations_that_there_are_not(self, path):
        self.refuse(path, "--bleu_tokenize.*'13b'.*'13a'", "--bleu_tokenize", "13b")

    def test_a_run_that_does_not_say_its_data(self, path, tmp_path):
        other = tmp_path / "run"
        other.mkdir()
        record = read_record(path)
        write_json(other / "run.json", {**record, "settings": {}})
        self.refuse(other, "give --data, --source, --target")
        self.refuse("nowhere", "nowhere", error=FileNotFoundError)
