"""How good runs are: on any text, beside each other, and by which search."""

import gzip
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from commands import run_checked as run
from small_training import write_corpus
from small_translator import word_translator, written_run

import keras_luong as kl
from keras_luong.cli import translators
from keras_luong.cli.compare import HEADER
from keras_luong.evaluation import plots, scores
from keras_luong.evaluation.judgement import judge
from keras_luong.evaluation.report import text_report
from keras_luong.evaluation.scores import bleu
from keras_luong.files import write_json
from keras_luong.runs import load_save
from keras_luong.runs.run import RunDirectory, read_record, write_record
from keras_luong.text import load_corpus
from keras_luong.text.corpus import fingerprint

SOURCES = ["the red dog", "the cat is the dog", "", "is is the red cat", "x"]


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A translator, and its run and data: of the test set it says the references."""
    directory = tmp_path_factory.mktemp("runs")
    keras.utils.set_random_seed(0)
    translator = word_translator(kl.BeamSearch(2, max_length=7, min_length=6))
    said = [t.text for t in translator.translate(SOURCES)]
    for split, references in (("train", said), ("val", said[::-1]), ("test_a", said)):
        for side, lines in (("en", SOURCES), ("de", references)):
            (directory / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    settings = {"data": str(directory), "source": "en", "target": "de"}
    settings["bleu_tokenize"] = "none"
    return translator, written_run(directory / "run", translator, settings).path


@pytest.fixture
def loaded(whole):
    """The translator, whose trace is what takes long."""
    return whole[0]


@pytest.fixture
def path(whole):
    return whole[1]


@pytest.fixture
def traced(loaded, monkeypatch):
    """Gives commands the translator: -> the options that they ask for it with."""
    asked = []
    load = lambda options: asked.append(options) or loaded  # noqa: E731
    monkeypatch.setattr(translators, "load_translator", load)
    return asked


@pytest.fixture
def said(loaded):
    return [t.text for t in loaded.translate(SOURCES)]


def changed(path, to, **settings):
    """A run with other settings: just its record."""
    record = read_record(path)
    settings = {**record["settings"], **settings}
    write_json(to / "run.json", {**record, "settings": settings})
    return to


@pytest.mark.usefixtures("eagerly")
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
def test_translations_are_kept_and_shown(path, said, tmp_path, capsys):
    words = ["--output", tmp_path / "new", "--show", "1", "--worst", "0"]
    run("evaluate", path, *words, "--data", path.parent, "--bleu_tokenize", "char")
    names = {file.name for file in (tmp_path / "new").iterdir()}
    assert names == {"validation.translated", "test_a.translated"}
    kept = (tmp_path / "new" / "test_a.translated").read_bytes()
    assert kept.decode() == "".join(f"{text}\n" for text in said)
    out = capsys.readouterr().out
    assert out.count("source       the red dog\n") == out.count("tok:char") == 2
    assert f"reference    {said[0]}\ntranslation  {said[0]}\n" in out
    assert "the cat is" not in out and "worst" not in out


def written(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def files(tmp_path, said):
    """Sources and references."""
    return written(tmp_path / "a.en", SOURCES), written(tmp_path / "a.zh", said)


def test_two_runs_and_a_file_are_compared(path, traced, files, said, tmp_path, capsys):
    """The other run has the same search options, and no ensemble."""
    other = shutil.copytree(path, tmp_path / "other")
    worse = written(tmp_path / "worse.zh", ["x"] * 5)
    told = tmp_path / "all.json"
    words = ["--against", other, "--hypotheses", worse, "--json", told]
    words += ["--ensemble", path, "--beam_width", "3"]
    run("evaluate", path, "--test", *files, *words)
    asked = [(x.run_dir, x.ensemble, x.beam_width) for x in traced]
    assert asked == [(path, (path,), 3), (other, (), 3)]
    [test] = json.loads(told.read_text())["tests"]
    systems = {"run": said, "other": said, "worse.zh": ["x"] * 5}
    expected = judge("a.en", SOURCES, said, systems, "none")
    assert test == expected.as_json(3)
    assert capsys.readouterr().out == f"{text_report(expected, 3)}\n\n"


def test_files_are_scored_without_a_run(files, said, tmp_path, monkeypatch, capsys):
    monkeypatch.delattr(translators, "load_translator")
    one = written(tmp_path / "one.zh", said)
    two = tmp_path / "two.zh.gz"
    two.write_bytes(gzip.compress(b"x\n" * 5))
    run("evaluate", "--test", *files, "--hypotheses", one, two)
    out = capsys.readouterr().out
    assert "| one.zh    | 100.00 ± 0.00 " in out and "| two.zh.gz | " in out
    assert "tok:zh" in out and "asian:yes" in out  # the reference's name ends in .zh
    text = shutil.copy(files[1], tmp_path / "a.zh.txt")
    for reference, words, tokenize in (
        (files[1], ["--bleu_tokenize", "none", "--worst", "0"], "tok:none"),
        (files[1], ["--target", "de"], "tok:13a"),
        (text, [], "tok:zh"),
    ):
        words = ["--test", files[0], reference, "--hypotheses", two, one, *words]
        run("evaluate", *words)
        assert tokenize in capsys.readouterr().out


@pytest.mark.usefixtures("traced")
def test_the_report_has_the_pictures(path, files, tmp_path, monkeypatch, capsys):
    """If there is matplotlib."""
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

    def missing():
        raise ImportError("Drawing needs matplotlib")

    monkeypatch.setattr(plots, "check_matplotlib", missing)
    run("evaluate", path, "--test", *files, "--report", page)
    assert "note: the report has no pictures. Drawing" in capsys.readouterr().err
    assert "<article>" in page.read_text() and "<img" not in page.read_text()


class Noting:
    """Knows two tags, and keeps what it was asked to translate."""

    source_tokenizer = kl.WordTokenizer(["a", "<news>", "<old>"])

    def __init__(self):
        self.asked = []

    def translate(self, texts, batch_size, progress):
        self.asked.append([*texts])
        no = np.zeros([0, 0]), False, np.zeros([0])
        return [kl.Translation("x y", 0.0, [], [], *no) for _ in texts]


TAGGED = [
    ({"tag": "old"}, ["--tag", "news"], "news"),
    ({"tag": "old"}, [], "old"),
    ({"tag": "old"}, ["--data", "{data}"], None),
    ({"tag": "old"}, ["--test", "{data}/val.en", "{data}/val.de"], None),
    ({}, ["--test", "{data}/val.en", "{data}/val.de", "--tag", "news"], "news"),
]


@pytest.mark.parametrize("own, words, expected", TAGGED)
def test_the_tag_in_front(own, words, expected, path, tmp_path, monkeypatch, capsys):
    changed(path, tmp_path, **own)
    noting = Noting()
    monkeypatch.setattr(translators, "load_translator", lambda options: noting)
    words = [word.format(data=path.parent) for word in words]
    run("evaluate", tmp_path, *words)
    begin = f"<{expected}> " if expected else ""
    texts = [begin + text if text else text for text in SOURCES]
    asked = [x.decode() if isinstance(x, bytes) else x for x in noting.asked[0]]
    assert asked == texts
    told = capsys.readouterr().out
    assert "<news>" not in told and ("<old>: --tag old" in told) == (expected is None)
    with pytest.raises(ValueError, match="trained with: news, old. Received: bt"):
        run("evaluate", tmp_path, "--tag", "bt")


@pytest.mark.parametrize("words", [[], ["--tag", "news"]])
def test_a_run_beside_it_that_knows_no_tag(words, path, tmp_path, monkeypatch, capsys):
    """As the one that it was fine-tuned from: it reads the same text without."""
    changed(path, tmp_path, tag="news")
    runs = {tmp_path: Noting(), path: Noting()}
    runs[path].source_tokenizer = kl.WordTokenizer(["a"])
    monkeypatch.setattr(translators, "load_translator", lambda x: runs[x.run_dir])
    run("evaluate", tmp_path, "--against", path, *words)
    assert f"note: {path} reads the sources without <news>" in capsys.readouterr().out
    assert runs[tmp_path].asked[0][0] == f"<news> {SOURCES[0]}".encode()
    assert runs[path].asked[0] == SOURCES
    run("evaluate", path, "--against", tmp_path, *words)
    without = path if words else tmp_path  # whose tag is not that of the data
    said = capsys.readouterr().out
    assert f"note: {without} reads the sources without <news>" in said
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


def test_a_run_that_names_no_languages_may_have_any(path, tmp_path, monkeypatch):
    changed(path, tmp_path, source=None, target=None)
    monkeypatch.delattr(translators, "load_translator")
    with pytest.raises(ImportError, match="load_translator"):
        run("evaluate", path, "--against", tmp_path)


EPOCHS = [
    {"epoch": 1, "seconds": 90.0, "val_perplexity": 5.0, "val_bleu": 31.0},
    {"epoch": 2, "seconds": 30.0, "val_perplexity": 6.0, "val_bleu": 33.25},
]


# The table of runs.


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One with results, one that is being trained, one that has just begun."""
    parent = tmp_path_factory.mktemp("runs")
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
    for name, epochs, settings in (
        ("a", EPOCHS, {"seed": 1, "dropout": 0.1}),
        ("b", EPOCHS[:1], {"seed": 1, "attention": None, "beta_2": None}),
        ("c", [], {"seed": 1}),
        ("mean", [], {"seed": 1, "average_of": ["x", "y"]}),
        ("odd", [{"epoch": 1, "val_perplexity": None}, EPOCHS[1]], {"vocab_size": 9}),
    ):
        run = RunDirectory(parent / name)
        write_record(run.path, model, kl.BeamSearch(), 20, {**settings, "data": "x"})
        run.history.write_text("".join(f"{json.dumps(x)}\n" for x in epochs))
    results = {"validation": {"bleu": 35.5, "chrf": 60.25}, "test": {"bleu": 99.0}}
    write_json(RunDirectory(parent / "a").results, results)
    (parent / "notes").mkdir()
    return parent


def rows_of(*words):
    """The cells of the table's rows, without its line."""
    lines = run("compare", *words).splitlines()
    return [[x.strip() for x in line.strip("|").split("|")] for line in lines]


def test_shows_what_differs_and_what_was_reached(runs, capsys):
    header, _, *rows = rows_of(*(runs / name for name in "acb"))
    told = capsys.readouterr()
    assert header == list(HEADER)
    assert rows == [
        ["c", "", "0", "0", "", "", "", ""],
        ["b", "attention none", "1", "2", "5.00", "31.00", "", ""],
        ["a", "dropout 0.1", "2", "2", "5.00", "33.25", "35.50", "60.25"],
    ]  # never the test set
    assert told.out.splitlines()[2].startswith("| c ")
    reason = "it has finished no epoch"
    assert told.err == f"note: of c nothing is known yet, as {reason}.\n"


def test_shows_the_settings_that_are_asked_for(runs):
    rows = rows_of(runs / "a", "--flags", "seed", "dropout")
    assert rows[2][1] == "seed 1, dropout 0.1"


def test_every_path_gets_a_row_or_a_sentence(runs, capsys):
    rows = rows_of(runs / "notes", runs / "odd", runs / "mean")
    assert rows[2:] == [
        ["mean", "seed 1, average of 2", "0", "0", "", "", "", ""],
        ["odd", "vocab_size 9", "2", "0", "6.00", "33.25", "", ""],
    ]
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"note: {runs / 'notes'} is no run directory."
    assert "perplexity is of a token" in told[1]
    assert "note: of mean nothing is known yet, as an average is not" in told[2]
    (runs / "odd" / "history.jsonl").write_text('{"epoch": 1, "val_bleu": 7}\n')
    assert rows_of(runs / "odd")[2][2:6] == ["1", "0", "inf", "7.00"]


class Searched:
    """Translates every source as its search is called."""

    def __init__(self, beam_width=2, length_penalty=0.4, n_best=2):
        self.search = kl.BeamSearch(beam_width, n_best, length_penalty=length_penalty)

    def with_search(self, **changes):
        return Searched(**changes)

    def translate(self, sources, progress):
        text = f"{self.search.beam_width} {self.search.length_penalty:g}"
        return [SimpleNamespace(text=text) for _ in sources]


WAS = "beam 2, length penalty 0.4"
WITH = f"translates with beam {{}}, length penalty 1.4 (before: {WAS}; {{}} BLEU)"
AS_BEFORE = f"goes on translating with {WAS}: none is better"


# The best search becomes the run's.


TUNED = [
    ({"5 1.4": 31.25, "5 0": 31.24}, (5, 1.4, 2), WITH.format(5, "+1.2")),
    ({"5 1.4": 31.0, "1 1.4": 31.0}, (1, 1.4, 1), WITH.format(1, "+1")),
    ({"5 1.4": 30.0, "5 0": 29.0}, (2, 0.4, 2), AS_BEFORE),
]


@pytest.mark.parametrize(
    "figures, best, told", TUNED, ids=["better", "the narrower beam", "not better"]
)
def test_a_better_one_alone(figures, best, told, tmp_path, monkeypatch, capsys):
    write_corpus(tmp_path, train=9, val=4)
    settings = {"data": str(tmp_path), "source": "xx", "target": "yy"}
    translator = word_translator(kl.BeamSearch(2, n_best=2, length_penalty=0.4))
    path = written_run(tmp_path / "run", translator, settings).path
    figures = {"2 0.4": 30.0, **figures}

    def bleu(texts, *_):
        return SimpleNamespace(score=figures.get(texts[0], 0.0), signature="s")

    monkeypatch.setattr(load_save, "load", lambda _: Searched())
    monkeypatch.setattr(scores, "bleu", bleu)
    words = "--beam_widths 5 1 2 --length_penalties 0 0.4 1.4".split()
    found = run("tune", path, *words)
    head, *lines, last = capsys.readouterr().out.splitlines()
    tried = [" ".join(line.split()[:2]) for line in lines[:9]]
    pairs = [f"{width} {x}" for width in (5, 1, 2) for x in ("0", "0.4", "1.4")]
    assert tried == ["2 0.4", *(pair for pair in pairs if pair != "2 0.4")]
    assert "note: differences in BLEU of 4 sentences are mostly chance" in lines
    assert "4 sentences, 13a" in head and last == f"{path} {told}"
    search, names = read_record(path)["search"], "beam_width length_penalty n_best"
    assert tuple(search[name] for name in names.split()) == best
    assert found[:3] == (*best[:2], figures[f"{best[0]} {best[1]:g}"])


@pytest.mark.usefixtures("traced")
def test_pairs_that_were_learned_or_are_left_out_are_told(path, said, tmp_path, capsys):
    data, pairs = path.parent, zip([*SOURCES[:2], "x"], [*said[:2], ""], strict=True)
    po = written(tmp_path / "m.po", (f'msgid "{x}"\nmsgstr "{y}"\n' for x, y in pairs))
    tuned = changed(path, tmp_path / "tuned", data="gone", init_from=str(path))
    moved = changed(path, tmp_path / "moved", data="gone")
    test = ["--test", data / "test_a.en", data / "test_a.de"]
    for run_dir, words, known in (
        (path, test, "4 of 5 pairs of test_a.en are in the training text of"),
        (tuned, ["--data", data], "4 of 5 pairs of test_a are in the training text of"),
        (path, ["--data", po, "--against", moved], "2 of 2 pairs of m.po are in the"),
        (moved, ["--data", po], ""),
    ):
        run("evaluate", run_dir, *words, "--worst", "0")
        told = capsys.readouterr().err
        assert f"note: {known}" in told and ("training text of" in told) == (known > "")
        assert ("left out: units of m.po: 1 untranslated" in told) == (po in words)
        assert f"text of {moved}" not in told


@pytest.mark.usefixtures("traced")
def test_all_of_a_file_is_judged_unless_it_was_learned(path, said, tmp_path, capsys):
    """A training would hold pairs out of it."""
    pairs = zip(9 * SOURCES, 9 * [*said], strict=True)
    rows = [f"{x} {n}\t{y} {n}" for n, (x, y) in enumerate(pairs)]
    table, *_ = [written(tmp_path / f"{x}.tsv", rows) for x in ("client", "train")]
    words = ["--data", table, "--source", "en", "--target", "zh", "--worst", "0"]
    run("evaluate", path, *words)
    assert f"client.tsv: {9 * len(SOURCES)} sentences" in capsys.readouterr().out
    written(tmp_path / "test.tsv", rows[:2])
    run("evaluate", path, "--data", tmp_path, *words[2:])  # a folder, with a test split
    out = capsys.readouterr().out
    assert out.startswith("test: 2 sentences") and out.count("| run ") == 1
    digest = fingerprint(load_corpus(table, "en", "zh").whole, "train").digest
    record = read_record(path)
    learned = {"train": {"digest": "1", "whole": {"digest": digest}}}
    write_json(tmp_path / "run" / "run.json", {**record, "corpus": learned})
    later = changed(path, tmp_path / "later", init_from=str(tmp_path / "run"))
    for run_dir in (tmp_path / "run", later):
        run("evaluate", run_dir, *words)
        out = capsys.readouterr().out
        assert "validation: " in out and "client" not in out
