"""How good a run is, on its own held-out splits or on any files."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import options
from commands import run_checked as run
from small_translator import word_translator, written_run

from keras_luong import Translation, WordTokenizer
from keras_luong.cli import evaluate, translators
from keras_luong.cli.evaluate import EvaluateOptions
from keras_luong.cli.translators import load_translator
from keras_luong.decoding import BeamSearch
from keras_luong.evaluation import plots
from keras_luong.evaluation.judgement import judge
from keras_luong.evaluation.report import text_report
from keras_luong.evaluation.scores import bleu
from keras_luong.files import write_json
from keras_luong.runs.run import read_record

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
    monkeypatch.setattr(translators, "load_translator", lambda options: loaded)
    return loaded


@pytest.fixture
def said(loaded):
    return [t.text for t in loaded.translate(SOURCES)]


def test_the_runs_own_splits(path, said, capsys):
    run("evaluate", path)
    out = capsys.readouterr().out
    told = [
        judge(name, SOURCES, references, {"run": said}, "none")
        for name, references in (("validation", said[::-1]), ("test_a", said))
    ]
    assert out == "".join(f"{text_report(judged, 3)}\n\n" for judged in told)
    score = bleu(said, said[::-1], "none")
    assert f"| run    | {score.score:.2f}" in out and score.signature in out
    assert out.count("tok:none") == 2 and out.count("The worst of run") == 2


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
    run("evaluate", path, "--test", source, reference, "--worst", 0)
    out = capsys.readouterr().out
    assert out.startswith("news.en: 5 sentences\n\n")
    assert "| run    | 100.00 |" in out and "worst" not in out


@pytest.mark.usefixtures("traced")
def test_translations_are_kept_and_shown(path, said, tmp_path, capsys):
    words = ["--output", tmp_path / "new", "--show", "1", "--worst", "0"]
    run("evaluate", path, *words)
    names = {file.name for file in (tmp_path / "new").iterdir()}
    assert names == {"validation.translated", "test_a.translated"}
    kept = (tmp_path / "new" / "test_a.translated").read_bytes()
    assert kept.decode() == "".join(f"{text}\n" for text in said)
    out = capsys.readouterr().out
    assert out.count("source       the red dog\n") == 2
    assert f"reference    {said[0]}\ntranslation  {said[0]}\n" in out
    assert "the cat is" not in out


def written(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def files(tmp_path, said):
    """Sources and references."""
    return written(tmp_path / "a.en", SOURCES), written(tmp_path / "a.zh", said)


@pytest.mark.usefixtures("traced")
def test_two_runs_and_a_file_are_compared(path, files, said, tmp_path, capsys):
    other = shutil.copytree(path, tmp_path / "other")
    worse = written(tmp_path / "worse.zh", ["x"] * 5)
    told = tmp_path / "all.json"
    words = ["--against", other, "--hypotheses", worse, "--json", told]
    run("evaluate", path, "--test", *files, *words)
    [test] = json.loads(told.read_text())["tests"]
    first, same, file = test["systems"]
    names = [system["name"] for system in test["systems"]]
    assert names == ["run", "other", "worse.zh"]
    systems = dict(zip(names, [said, said, ["x"] * 5], strict=True))
    expected = judge("a.en", SOURCES, said, systems, "none")
    assert test == expected.as_json(3)
    assert first["scores"]["BLEU"]["p_value"] is None
    assert same["scores"]["TER"]["p_value"] == 1
    assert file["scores"]["chrF"]["score"] < first["scores"]["chrF"]["score"]
    assert capsys.readouterr().out == f"{text_report(expected, 3)}\n\n"


def test_what_the_other_run_is_loaded_with(path, monkeypatch, loaded, tmp_path):
    """The same search options, and an ensemble of the first run alone."""
    asked = []
    load = lambda options: asked.append(options) or loaded  # noqa: E731
    monkeypatch.setattr(translators, "load_translator", load)
    shutil.copy(path / "run.json", tmp_path)
    words = ["--against", tmp_path, "--ensemble", "third", "--beam_width", "3"]
    words += ["--data", "other"]
    list(evaluate._systems(options("evaluate", path, *words)))
    one, two = asked
    assert (one.run_dir, one.ensemble) == (path, (type(path)("third"),))
    assert (two.run_dir, two.ensemble) == (tmp_path, ())
    assert one.beam_width == two.beam_width == 3


def test_files_are_scored_without_a_run(files, said, tmp_path, monkeypatch, capsys):
    monkeypatch.delattr(translators, "load_translator")
    one = written(tmp_path / "one.zh", said)
    two = tmp_path / "two.zh.gz"
    two.write_bytes(gzip.compress(b"x\n" * 5))
    run("evaluate", "--test", *files, "--hypotheses", one, two)
    out = capsys.readouterr().out
    assert "| one.zh    | 100.00 ± 0.00 " in out and "| two.zh.gz | " in out
    assert "tok:zh" in out and "asian:yes" in out  # the reference's name ends in .zh
    words = ["--hypotheses", two, one, "--bleu_tokenize", "none", "--worst", "0"]
    run("evaluate", "--test", *files, *words)
    assert "tok:none" in capsys.readouterr().out
    run("evaluate", "--test", *files, "--hypotheses", one, "--target", "de")
    assert "tok:13a" in capsys.readouterr().out
    reference = written(tmp_path / "a.zh.txt", said)
    run("evaluate", "--test", files[0], reference, "--hypotheses", one)
    assert "tok:zh" in capsys.readouterr().out


def test_the_report_has_the_pictures(path, traced, files, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    page = tmp_path / "new" / "report.html"
    run("evaluate", path, "--test", *files, "--worst", "1", "--report", page)
    text = page.read_text(encoding="utf-8")
    assert "How good is run?" in text and "a.en: 5 sentences" in text
    assert text.count("<article>") == text.count("data:image/png;base64,iVBOR") == 2
    run("evaluate", path, "--report", page, "--worst", "0")
    text = page.read_text(encoding="utf-8")
    assert "validation: 5 sentences" in text and "test_a: 5 sentences" in text
    assert "<article>" not in text


@pytest.mark.usefixtures("traced")
def test_a_report_without_matplotlib_has_no_pictures(
    path, files, tmp_path, monkeypatch, capsys
):
    def missing():
        raise ImportError("Drawing needs matplotlib")

    monkeypatch.setattr(plots, "check_matplotlib", missing)
    page = tmp_path / "report.html"
    run("evaluate", path, "--test", *files, "--report", page)
    assert "note: the report has no pictures. Drawing" in capsys.readouterr().err
    assert "<article>" in page.read_text() and "<img" not in page.read_text()


class Noting:
    """Knows two tags, and keeps what it was asked to translate."""

    source_tokenizer = WordTokenizer(["a", "<news>", "<old>"])

    def __init__(self):
        self.asked = []

    def translate(self, texts, batch_size, progress):
        self.asked.append([*texts])
        no = np.zeros([0, 0]), False, np.zeros([0])
        return [Translation("x y", 0.0, [], [], *no) for _ in texts]


@pytest.mark.parametrize(
    "own, words, expected",
    [
        ({}, ["--tag", "news"], "news"),
        ({"tag": "old"}, ["--tag", "news"], "news"),
        ({"tag": "old"}, [], "old"),
        ({"tag": "old"}, ["--data", "{data}"], None),
        ({"tag": "old"}, ["--data", "{data}", "--tag", "old"], "old"),
        ({"tag": "old"}, ["--test", "{data}/val.en", "{data}/val.de"], None),
        ({}, ["--test", "{data}/val.en", "{data}/val.de", "--tag", "news"], "news"),
    ],
)
def test_the_tag_in_front_of_what_is_read(
    own, words, expected, path, tmp_path, monkeypatch, capsys
):
    record = read_record(path)
    settings = {**record["settings"], **own}
    write_json(tmp_path / "run.json", {**record, "settings": settings})
    noting = Noting()
    monkeypatch.setattr(translators, "load_translator", lambda options: noting)
    words = [word.format(data=path.parent) for word in words]
    run("evaluate", tmp_path, *words)
    begin = f"<{expected}> " if expected else ""
    texts = [begin + text if text else text for text in SOURCES]
    asked = [x.decode() if isinstance(x, bytes) else x for x in noting.asked[0]]
    assert asked == texts
    assert "<" not in capsys.readouterr().out  # what people read is the text itself


def test_a_tag_that_the_run_does_not_know(path, monkeypatch):
    monkeypatch.setattr(translators, "load_translator", lambda options: Noting())
    with pytest.raises(ValueError, match="trained with: news, old. Received: bt"):
        run("evaluate", path, "--tag", "bt")


@pytest.mark.parametrize("words", [[], ["--tag", "news"]])
def test_a_run_beside_it_that_knows_no_tag(words, path, tmp_path, monkeypatch, capsys):
    """As the one that it was fine-tuned from: it reads the same text without."""
    record = read_record(path)
    settings = {**record["settings"], "tag": "news"}
    write_json(tmp_path / "run.json", {**record, "settings": settings})
    runs = {tmp_path: Noting(), path: Noting()}
    runs[path].source_tokenizer = WordTokenizer(["a"])
    monkeypatch.setattr(translators, "load_translator", lambda x: runs[x.run_dir])
    run("evaluate", tmp_path, "--against", path, *words)
    assert f"note: {path} reads the sources without <news>." in capsys.readouterr().out
    assert runs[tmp_path].asked[0][0] == f"<news> {SOURCES[0]}".encode()
    assert runs[path].asked[0] == SOURCES
    run("evaluate", path, "--against", tmp_path, *words)
    without = path if words else tmp_path  # whose tag is not that of the data
    said = capsys.readouterr().out
    assert f"note: {without} reads the sources without <news>." in said
    assert runs[path].asked[-1] == SOURCES
    assert (runs[tmp_path].asked[-1] == SOURCES) == (not words)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="there are no pipes by name")
def test_sources_of_a_pipe_are_read_once(tmp_path, capsys):
    for name in ("reference", "mine"):
        (tmp_path / name).write_text("ein Hund\neine Katze\n")
    end, begin = os.pipe()
    with open(begin, "w") as pipe:
        pipe.write("a dog\na cat\n")
    with open(end):
        place = [f"/dev/fd/{end}", tmp_path / "reference"]
        run("evaluate", "--test", *place, "--hypotheses", tmp_path / "mine")
    assert "2 sentences" in capsys.readouterr().out


class TestRefusals:
    @pytest.fixture(autouse=True)
    def not_loaded(self, monkeypatch):
        """Mistakes are found before the run is loaded."""
        monkeypatch.delattr(translators, "load_translator")

    def refuse(self, path, message, *words, error=ValueError):
        with pytest.raises(error, match=message):
            run("evaluate", path, *words)

    @pytest.mark.parametrize(
        "names, message",
        [(["a"], "--test needs 2 values"), (["a", "b", "c"], "Nothing takes c")],
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
        self.refuse(path, "There is no file .*nowhere", *words, error=FileNotFoundError)
        words = ["--test", tmp_path, one]
        self.refuse(path, "is a directory", *words, error=IsADirectoryError)

    def test_data_that_is_gone(self, path, tmp_path):
        record = read_record(path)
        settings = {**record["settings"], "data": "gone"}
        write_json(tmp_path / "run.json", {**record, "settings": settings})
        self.refuse(tmp_path, "names 'gone' as its data, which is not there; .*--data")

    def test_a_file_where_translations_should_go(self, path, tmp_path):
        file = tmp_path / "file"
        file.touch()
        message = "--output must be a directory to write to. Received a file: .*/file"
        self.refuse(path, message, "--output", file, error=NotADirectoryError)

    def test_options_that_do_not_fit(self, path, capsys):
        for words, message in (
            (["--test", "a", "b"], "RUN_DIR is missing: give a run, or --hypotheses"),
            (["x", "--hypotheses", "c"], "--hypotheses needs --test"),
            (
                ["--test", "a", "b", "--hypotheses", "c", "--beam_width", "3"],
                "--beam_width needs RUN_DIR",
            ),
            (
                ["--test", "a", "b", "--hypotheses", "c", "--against", "d"],
                "--against needs RUN_DIR",
            ),
            (
                ["--test", "a", "b", "--hypotheses", "c", "--tag", "d"],
                "--tag needs RUN_DIR",
            ),
            (["x", "--test", "a", "b", "--data", "d"], "At most one of --test, --data"),
        ):
            with pytest.raises(SystemExit):
                options("evaluate", *words)
            assert message in capsys.readouterr().err
        with pytest.raises(ValueError, match="output needs RUN_DIR"):
            a, b, c = map(type(path), "abc")
            EvaluateOptions(test=(a, b), hypotheses=(c,), output=c)

    def test_places_that_cannot_be(self, path, tmp_path):
        self.refuse(path, "ends in .html. Received: .*x.pdf", "--report", "x.pdf")
        folder = tmp_path / "x.html"
        folder.mkdir()
        wrong = IsADirectoryError
        self.refuse(path, "Received a directory", "--report", folder, error=wrong)
        self.refuse(path, "Received a directory", "--json", tmp_path, error=wrong)

    def test_systems_that_cannot_be_compared(self, path, tmp_path):
        a = written(tmp_path / "a", ["x"])
        b = written(tmp_path / "b", ["x", "y"])
        words = ["--test", a, a, "--hypotheses"]
        self.refuse(path, "b has 2 lines and .*a has 1", *words, b)
        self.refuse(path, "There is no", *words, "nowhere", error=FileNotFoundError)
        self.refuse(path, "Two of .* are the same", *words, a, a)
        self.refuse(path, "Two of .* are the same", "--against", path)
        record = read_record(path)
        turned = {**record["settings"], "source": "de", "target": "en"}
        (tmp_path / "turned").mkdir()
        write_json(tmp_path / "turned" / "run.json", {**record, "settings": turned})
        message = "run translates en into de. Received: .*, which translates de into en"
        self.refuse(path, message, "--against", tmp_path / "turned")
        (tmp_path / "saved").mkdir()  # names no languages, and may have any
        write_json(tmp_path / "saved" / "run.json", {**record, "settings": {}})
        words = ["--against", tmp_path / "saved"]
        self.refuse(path, "load_translator", *words, error=ImportError)
        self.refuse(path, "nowhere", "--against", "nowhere", error=FileNotFoundError)

    def test_tokenisations_that_there_are_not(self, path):
        self.refuse(path, "--bleu_tokenize.*'13b'.*'13a'", "--bleu_tokenize", "13b")

    def test_a_run_that_does_not_say_its_data(self, path, tmp_path):
        other = tmp_path / "run"
        other.mkdir()
        record = read_record(path)
        write_json(other / "run.json", {**record, "settings": {}})
        self.refuse(other, "give --data, --source, --target")
        self.refuse("nowhere", "nowhere", error=FileNotFoundError)
