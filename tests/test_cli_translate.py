"""Translating and scoring lines: one line in is one line out."""

import codecs
import dataclasses
import gzip
import io
import math
import os
import re
import sys
import threading
import warnings
from types import SimpleNamespace

import pytest
from commands import options
from commands import run_checked as run
from small_training import write_corpus
from small_translator import word_translator, written_run

import keras_luong as kl
from keras_luong.cli import translators
from keras_luong.cli.lines import LineTranslator, columns
from keras_luong.cli.main import main
from keras_luong.cli.translators import corpus_of, load_translator, with_options
from keras_luong.evaluation import plots
from keras_luong.files import read_lines, write_json
from keras_luong.models import build
from keras_luong.runs.run import read_record
from keras_luong.text.corpora import load_corpus
from keras_luong.text.survey import survey

LINES = [b"a b", b"", b"  ", b"c \xff d", b"b\r", b"a" * 5000, b"d d d d d d d d d d d"]


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    """A run directory of random weights, large enough to say different things."""
    model = kl.Seq2Seq(kl.Seq2SeqConfig(8, 9, units=8))
    for weight in model.trainable_variables:
        weight.assign(4.0 * weight)
    words = kl.TokenizerPair(*map(kl.WordTokenizer, (list("abcd"), list("ABCDE"))))
    search = kl.BeamSearch(2, max_length=6)
    directory = tmp_path_factory.mktemp("run")
    return written_run(directory, kl.Translator(model, words, search, 10)).path


@pytest.fixture(scope="session")
def loaded(path):
    """The run's translator, as the command makes it; its trace is what takes long."""
    translator = load_translator(options("translate", path))
    translator.translate(["a"])
    return translator


@pytest.fixture
def traced(loaded, monkeypatch):
    """Gives commands a translator that need not be traced."""

    def with_search(n_best):
        return loaded if n_best == 1 else loaded.with_search(n_best=n_best)

    ready = SimpleNamespace(with_search=with_search, score_stream=loaded.score_stream)
    for name in ("source_tokenizer", "target_tokenizer", "max_source_length"):
        setattr(ready, name, getattr(loaded, name))
    ready.max_target_length = loaded.max_target_length
    monkeypatch.setattr(translators, "load_translator", lambda options: ready)
    return loaded


def written(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


@pytest.fixture
def translated(path, traced, capfdbinary, monkeypatch):
    """Translates what standard input has: -> what is written, in lines."""

    def translated(content, *words):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        run("translate", path, *words)
        return capfdbinary.readouterr().out.decode().split("\n")

    return translated


@pytest.mark.filterwarnings("ignore:.*max_source_length")
def test_one_line_in_is_one_line_out(translated, traced):
    content = b"\n".join(LINES) + b"\n"
    *lines, rest = translated(content, "--window", "3", "--batch_size", "2")
    clean = [line.rstrip(b"\r") for line in LINES]
    assert lines == [t.text for t in traced.translate(clean)] and rest == ""
    assert lines[1] == lines[2] == ""
    for content, lines in ((b"", 0), (b"a", 1), (b"\n\n", 2)):
        found = translated(content)
        assert len(found) == lines + 1 and found[-1] == ""
    translation = SimpleNamespace(text="A\u2028 B", score=-1.0)
    asked = options("translate", "x", "--scores")
    assert list(columns(translation, asked)) == ["A  B", "-1.0000"]


def test_lines_that_are_not_utf8_are_counted(path, traced, tmp_path, capsys):
    source = written(tmp_path / "in", [b"a", "\ufffd".encode(), b"\xff b", b"\xed\xa0"])
    run("translate", path, "--input", source, "--output", tmp_path / "out.txt")
    assert "note: lines that are not UTF-8: 2, " in capsys.readouterr().err
    assert (tmp_path / "out.txt").read_bytes().count(b"\n") == 4


@pytest.mark.usefixtures("traced")
def test_what_is_cut_is_counted_over_the_whole_input(path, tmp_path, capsys):
    sources = written(tmp_path / "in", [b"a", b"a " * 20, b"a " * 11] * 2)
    targets = written(tmp_path / "out", [b"A", b"B", b"A " * 40] * 2)
    told = ["4 of 6 texts have more than max_source_length=10"]
    for words in (["translate", "--input", sources], ["score", sources, targets]):
        if words[0] == "score":
            told.append("2 of 6 targets have more than max_target_length=30")
        main([words[0], str(path), *map(str, words[1:]), "--window", "2"])
        notes = [x for x in capsys.readouterr().err.splitlines() if "max_" in x]
        end = " tokens: only their beginnings were read."
        assert notes == [f"note: {x}{end}" for x in told]


def test_files_plain_and_gzip_and_pipes(path, traced, tmp_path):
    texts = [t.text for t in traced.translate(["a b", "c"])]
    names = "in.gz", "in.txt", "pipe", "in.jsonl"
    packed, plain, pipe, rows = (tmp_path / name for name in names)
    packed.write_bytes(gzip.compress(codecs.BOM_UTF8 + b"a b\r\nc\r\n"))
    plain.write_bytes(b"a b\nc")
    rows.write_bytes(b'{"n": 1, "text": "a\\nb"}\n{"text": "c"}\n')
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a b\nc\n",))
    writer.start()
    outs = {packed: "out.txt", plain: "out.gz", pipe: "out.gz", rows: "out.jsonl"}
    for source, name in outs.items():
        run("translate", path, "--input", source, "--output", tmp_path / name)
        assert [*read_lines(tmp_path / name)] == texts
    writer.join()


@pytest.mark.slow
def test_columns(translated, traced):
    *lines, _ = translated(b"a b\n\nc d\n", "--n_best", "2", "--alignments")
    two = traced.with_search(n_best=2)
    found = two.translate(["a b", "", "c d"], n_best=True)
    fields = [line.split(" ||| ") for line in lines]
    assert [row[:3] for row in fields] == [
        [str(number), t.text, f"{t.score:.4f}"]
        for number, several in enumerate(found)
        for t in several
    ]
    for _, text, _, links in fields:
        for i, j in (map(int, link.split("-")) for link in links.split()):
            assert i < 2 and j < len(text.split())


def test_pictures_of_lines_that_have_words(translated, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    folder, drawn = tmp_path / "new" / "pictures", []
    words = ("--pictures", folder)
    translated(b"a b\n\nc d\n", *words)
    pictures = {path.name: path.read_bytes()[1:4] for path in folder.iterdir()}
    assert pictures == {"1.png": b"PNG", "3.png": b"PNG"}
    monkeypatch.setattr(plots, "save_attention", lambda *x: drawn.append(x))
    for pieces in (False, True):
        translated(b"\na b\n", *words, *["--pieces"] * pieces)
        file, weights, source, target, *rest = drawn.pop()
        assert (file, *rest) == (folder / "2.png", "line 2", pieces) and not drawn
        assert weights.shape == (len(target), len(source))


def test_no_pictures_without_attention(path, loaded, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    model = build("sutskever2014", 8, 9, units=4, num_layers=1)
    other = kl.Translator(model, loaded.tokenizers, loaded.search)
    monkeypatch.setattr(translators, "load_translator", lambda options: other)
    with pytest.raises(ValueError, match="--pictures needs a model with attention"):
        run("translate", path, "--pictures", tmp_path / "pictures")
    assert not (tmp_path / "pictures").exists()
    with pytest.raises(ValueError, match="--pieces .* needs --pictures FOLDER"):
        run("translate", path, "--pieces")


def test_more_translations_than_beams(path, traced, tmp_path):
    output = tmp_path / "out"
    output.write_bytes(b"kept\n")
    with pytest.raises(ValueError, match="n_best must be at most beam_width.*9"):
        run("translate", path, "--n_best", "9", "--output", output)
    assert output.read_bytes() == b"kept\n"


@pytest.mark.usefixtures("traced")
def test_files_need_no_standard_streams(path, tmp_path, monkeypatch):
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"a b\nc\n")
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    run("translate", path, "--input", source, "--output", output)
    assert output.read_bytes().count(b"\n") == 2
    with pytest.raises(ValueError, match="Standard input is closed"):
        run("translate", path, "--output", output)
    with pytest.raises(ValueError, match="Standard output is closed"):
        run("translate", path, "--input", source)


@pytest.mark.usefixtures("traced")
def test_who_reads_may_have_read_enough(path, monkeypatch):
    """As `head` does; what is left to write goes nowhere."""
    reader, writer = os.pipe()
    os.close(reader)
    out = SimpleNamespace(buffer=open(writer, "wb"), fileno=lambda: writer)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\nb\n")))
    run("translate", path)
    out.buffer.close()


class Slow(io.RawIOBase):
    """Has one line at a time, and remembers what was written before each."""

    def __init__(self, lines, written):
        self.lines, self.written, self.seen = list(lines), written, []

    def readable(self):
        return True

    def readinto(self, buffer):
        self.seen.append(self.written.getvalue().count(b"\n"))
        line = self.lines.pop(0) if self.lines else b""
        buffer[: len(line)] = line
        return len(line)


@pytest.mark.usefixtures("traced")
def test_what_is_ready_is_written_before_the_next_window_is_read(path, monkeypatch):
    """As somebody who writes a line and waits for its translation expects."""
    slow = Slow([b"a b\n"] * 3, raw := io.BytesIO())
    out = io.BufferedWriter(raw, 1 << 16)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=slow))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))
    run("translate", path, "--window", "1")
    assert slow.seen[:4] == [0, 1, 2, 3]


def test_what_is_asked_for_of_each_line(path, tmp_path, monkeypatch, capsys):
    """No term is found in a tag, as "news" would be in `<news> a b`."""
    read, words = [], ["--tag", "news", "--window", "9", "--output", tmp_path / "out"]
    for name, lines in {
        "input": [b"a b", b"news"],
        "constraints": [b"B\tE", b"A"],
        "prefixes": [b"C", b""],
        "terms": [b"news\tA", b"b\tE"],
    }.items():
        words += [f"--{name}", written(tmp_path / name, lines)]

    def stream(lines, *sizes, n_best, prefixes, constraints):
        for given in zip(lines, constraints, prefixes, strict=True):
            read.append((*given, *sizes, n_best))
            yield [SimpleNamespace(text="E", score=-1.0, unmet=["A"] * (len(read) - 1))]

    translator = SimpleNamespace(stream=stream, with_search=lambda n_best: translator)
    translator.source_tokenizer = kl.WordTokenizer(["a", "b", "news", "<news>"])
    translator.target_tokenizer = kl.WordTokenizer(list("ABCE"))
    monkeypatch.setattr(translators, "load_translator", lambda options: translator)
    run("translate", path, *words)
    first = (b"<news> a b", ["B", "E"], "C", 32, 9, True)  # E just once
    assert read == [first, (b"<news> news", ["A"], "", 32, 9, True)]
    assert (tmp_path / "out").read_text() == "E\nE\n"
    said = capsys.readouterr().err
    assert "line 1 lacks" not in said and "translation of line 2 lacks 'A'" in said


NEEDS = "in.txt, line 1, needs 'Z'. .*file has .*'Y' .line 1.*'Z' .line 3"
NOT_REQUIRED = [
    ("constraints", "E\n", "file must have a line for each.*1 .* 2"),
    ("constraints", "E\tÄ\n\n", "file asks for .*: 'Ä' .line 1"),
    ("prefixes", "E\n", "file must have a line for each.*1 .* 2"),
    ("prefixes", "E\nÄ\n", "file asks for .*: 'Ä' .line 2"),
    ("terms", "x\tY\n\nb\tZ\n", NEEDS),
]


@pytest.mark.parametrize("option, text, message", NOT_REQUIRED)
def test_what_cannot_be_required(option, text, message, path, traced, tmp_path):
    given, file = written(tmp_path / "in.txt", [b"a b", b"b"]), tmp_path / "file"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        run("translate", path, "--input", given, f"--{option}", file)


def test_terms_that_no_line_has_are_told(loaded, translated, tmp_path, capfdbinary):
    """What of standard input is missing is told as it is read."""
    given, terms = written(tmp_path / "in.txt", [b"a b"]), tmp_path / "terms.tsv"
    terms.write_text("x\tÄ\ny\tÖ Ö\nb\tE\n")
    words = ("translate", "x", "--input", given, "--terms", terms)
    LineTranslator(options(*words), loaded)
    said = capfdbinary.readouterr().err.decode()
    assert re.search(r"terms.tsv has phrases .* 'Ä' \(line 1\), 'Ö Ö' \(line 2\)", said)
    for content in ("A\n", "A\nA\nA\n"):
        terms.write_text(content)
        with pytest.raises(ValueError, match="one of `constraints` for each text"):
            translated(b"a\nb\n", "--constraints", terms)


def test_a_run_with_tags_says_so_where_none_is_given(capsys):
    words = kl.WordTokenizer(["a", "<ui>", "<news>", "<bt>"])
    translator = SimpleNamespace(source_tokenizer=words)
    translators.tell_tags(translator, "ui")
    assert capsys.readouterr().err == ""
    translators.tell_tags(translator, None)
    assert "the tags ui, news:" in capsys.readouterr().err


SOURCES = [b"a b c", b"", b"b \xff", "\u2028a d".encode(), b"c c a"]
TARGETS = [b"A B", b"C", b"B \xc3", b"", b"C C C A"]


def test_scores_are_the_translators(path, traced, tmp_path, capsys):
    files = written(tmp_path / "in", SOURCES), written(tmp_path / "out", TARGETS)
    run("score", path, *files)
    out, err = capsys.readouterr()
    found = traced.score(SOURCES, TARGETS)
    scores = pytest.approx([t.score for t in found], abs=1e-4)
    assert [float(x) for x in out.splitlines()] == scores
    assert out.splitlines()[1] == "0.0000"  # of nothing
    tokens = sum(len(t.tokens) for t in found)
    number = math.exp(-sum(t.score for t in found) / tokens)
    assert err.splitlines()[-2:] == [
        "note: lines that are not UTF-8: 1, read with U+FFFD",
        f"perplexity {number:.2f} of {tokens:,} tokens",
    ]
    packed, output = tmp_path / "in.gz", tmp_path / "scores.gz"
    packed.write_bytes(gzip.compress(codecs.BOM_UTF8 + b"\r\n".join(SOURCES), mtime=0))
    words = ["--output", output, "--alignments", "--window", "2", "--batch_size", "1"]
    run("score", path, packed, files[1], *words)
    assert not capsys.readouterr().out
    lines = gzip.decompress(output.read_bytes()).decode().splitlines()
    fields = [line.split(" ||| ") for line in lines]
    assert [float(x) for x, _ in fields] == scores
    assert re.fullmatch(r"\d-\d( \d-\d)*", fields[0][1]) and fields[1][1] == ""


def test_nothing_to_score(path, traced, tmp_path, capsys):
    for lines, said in (
        ([], "note: .*/text is empty: there is nothing to score"),
        ([b"", b" "], "note: all lines of .*/text are blank: there is no perplexity"),
    ):
        text = written(tmp_path / "text", lines)
        run("score", path, text, text)
        out, err = capsys.readouterr()
        assert out == "0.0000\n" * len(lines)
        assert re.fullmatch(said, err.splitlines()[-1])


FRENCH = "Un homme en chemise bleue se tient sur une échelle et nettoie une fenêtre."
ENGLISH = "A man in a blue shirt is standing on a ladder and cleaning a window."


def test_says_which_side_is_in_another_language(path, tmp_path, capsys):
    languages = {"source": "fr", "target": "en"}
    run_dir = written_run(tmp_path / "run", word_translator(), languages).path
    french, english = ([f"{x}\n".encode() * 30] * 9 for x in (FRENCH, ENGLISH))
    swapped = "note: the sides look swapped: the source should be fr and reads like en"
    for lines, told in (
        ({"source": english, "target": french}, swapped),
        ({"target": french}, "note: the target should be en, and reads like fr.\n"),
        ({"source": french, "target": english}, ""),
    ):
        translators.tell_languages(run_dir, **lines)
        said = capsys.readouterr().err
        assert said.startswith(told) and (told or not said)
    assert [*translators.telling_language(run_dir, english)] == english
    expected = "note: the source should be fr, and reads like en.\n"
    assert capsys.readouterr().err == expected
    few = [ENGLISH.encode()] * 9
    assert [*translators.telling_language(run_dir, few)] == few
    assert not capsys.readouterr().err


def test_commands_look_at_their_text(path, traced, tmp_path, monkeypatch, capsys):
    told = []

    def tell(_, **sides):
        told.append({side: list(lines) for side, lines in sides.items()})

    monkeypatch.setattr(translators, "tell_languages", tell)
    one, two = written(tmp_path / "a", [b"a"]), written(tmp_path / "b", [b"B"])
    run("translate", path, "--input", one)
    run("score", path, one, two)
    with pytest.raises(AttributeError):  # as it cannot translate
        run("evaluate", path, "--test", one, two)
    pair = {"source": [b"a"], "target": [b"B"]}
    texts = {"source": ["a"], "target": ["B"]}
    assert told == [{"source": [b"a"]}, pair, texts]


def test_an_ensemble_in_another_precision(tmp_path):
    """What a command needs comes before what is asked for."""
    paths = tmp_path / "a", tmp_path / "b"
    first, other = (written_run(x, word_translator()).path for x in paths)
    words = ["--ensemble", other, "--precision", "mixed_bfloat16"]
    asked = options("score", first, "a", "b", *words)
    for given, expected in ((None, "mixed_bfloat16"), ("float32", "float32")):
        models = load_translator(asked, given).model.models
        assert [model.dtype_policy.name for model in models] == [expected] * 2


def searched(search, *words):
    """A translator with the search of a command line."""
    return with_options(word_translator(search), options("translate", "x", *words))


def test_the_search_is_the_runs_with_what_options_change(tmp_path):
    search = kl.BeamSearch(4, 3, 6, length_penalty=0.6, forbidden=(5,))
    found = searched(search)
    assert found.search == search and found.max_source_length == 10
    words = "--beam_width 2 --average 0.7 --no_unknown --coverage_penalty 0.2"
    words += " --max_length 9 --min_length 2 --no_repeat_ngram 3 --max_source_length 7"
    found = searched(search, *words.split())
    average, forbidden = found.search.length_penalty, found.search.forbidden
    assert average.kind == "average" and set(forbidden) == {1, 5}
    assert found.max_source_length == 7
    changes = {"coverage_penalty": 0.2, "max_length": 9, "min_length": 2}
    changes |= {"no_repeat_ngram": 3, "beam_width": 2, "n_best": 2}  # no more than are
    changes |= {"length_penalty": average, "forbidden": forbidden}
    assert found.search == dataclasses.replace(search, **changes)
    assert searched(search, "--length_penalty", "0").search.length_penalty == 0
    greedy = kl.GreedySearch(max_length=8)  # a beam of one
    assert searched(greedy).search == kl.BeamSearch(1, max_length=8)
    expected = kl.BeamSearch(4, max_length=8)
    assert searched(greedy, "--beam_width", "4").search == expected
    kl.Shortlist([4, 5], [[0]] * 9, 7).save(tmp_path / "s.npz")
    found = searched(kl.BeamSearch(2), "--shortlist", tmp_path / "s.npz")
    assert set(found.search.shortlist.frequent) == {4, 5}


# The corpus of a run, or the one that options name.


def test_options_come_before_the_runs(tmp_path):
    write_corpus(tmp_path, train=3, val=2)

    def seen(settings, *words):
        run = written_run(tmp_path / "run", word_translator(), settings).path
        return corpus_of(options("tune", run, *words), run)

    settings = {"data": str(tmp_path), "source": "xx", "target": "yy"}
    corpus = seen(settings)
    assert corpus.splits == ("train", "validation")
    assert (corpus.source_language, corpus.target_language) == ("xx", "yy")
    turned = seen(settings, "--source", "yy", "--target", "xx")
    pair = next(turned.pairs("train").as_numpy_iterator())
    assert pair["source"].isupper() and not pair["target"].isupper()
    with pytest.raises(ValueError, match="not name its data: give --data, --tar"):
        seen({"source": "xx"})
    words = ["--data", tmp_path, "--target", "yy"]
    assert seen({"source": "xx"}, *words).name == tmp_path.name
    with pytest.raises(FileNotFoundError, match="nowhere"):
        corpus_of(options("tune", "x"), tmp_path / "nowhere")


@pytest.fixture
def known(tmp_path):
    """A run that knows its text, and the text."""
    data = tmp_path / "data"
    data.mkdir()
    write_corpus(data, train=30)
    settings = {"data": str(data), "source": "xx", "target": "yy", "tag": "news"}
    run = written_run(tmp_path / "run", word_translator(), settings).path
    texts = survey(load_corpus(data, "xx", "yy")).texts
    write_json(run / "run.json", {**read_record(run), "corpus": texts})
    return run, data


def test_text_that_was_not_there_is_told(known):
    """Pairs that are held out now may have been trained on."""
    run, data = known
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for with_tag in (True, False):
            corpus_of(options("tune", run), run, with_tag)
        write_corpus(data, train=60)  # it begins as before
        for words in (["--data", data], ["--source", "yy", "--target", "xx"]):
            corpus_of(options("tune", run, *words), run)
    with pytest.warns(UserWarning, match="validation text of .*data is another"):
        corpus_of(options("tune", run), run)
