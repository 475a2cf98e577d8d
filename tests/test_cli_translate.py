"""One line in is one line out."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import sys
import threading
from types import SimpleNamespace

import pytest
from commands import options
from commands import run_checked as run
from small_translator import written_run

from keras_luong import (
    BeamSearch,
    Seq2Seq,
    Seq2SeqConfig,
    TokenizerPair,
    Translator,
    WordTokenizer,
)
from keras_luong.cli import lines as line_translator
from keras_luong.cli import translators
from keras_luong.cli.lines import LineTranslator, columns
from keras_luong.cli.main import main
from keras_luong.cli.translators import load_translator, tell_tags
from keras_luong.evaluation import plots
from keras_luong.models import build

LINES = [b"a b", b"", b"  ", b"c \xff d", b"b\r", b"a" * 5000, b"d d d d d d d d d d d"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A run directory of random weights, large enough to say different things."""
    model = Seq2Seq(Seq2SeqConfig(8, 9, units=8))
    for weight in model.trainable_variables:
        weight.assign(4.0 * weight)
    words = TokenizerPair(WordTokenizer(list("abcd")), WordTokenizer(list("ABCDE")))
    search = BeamSearch(2, max_length=6)
    directory = tmp_path_factory.mktemp("run")
    return written_run(directory, Translator(model, words, search, 10)).path


@pytest.fixture(scope="module")
def loaded(path):
    """The run's translator, as the command makes it; its trace is what takes long."""
    return load_translator(options("translate", path))


@pytest.fixture
def traced(loaded, monkeypatch):
    """Gives the command a translator that need not be traced."""
    ready = SimpleNamespace(with_search=lambda n_best: loaded)
    monkeypatch.setattr(translators, "load_translator", lambda options: ready)
    return loaded


def translated(path, capfdbinary, monkeypatch, content, *words):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    run("translate", path, *words)
    return capfdbinary.readouterr().out.decode().split("\n")


@pytest.mark.parametrize(
    "window", ["3", *(pytest.param(x, marks=pytest.mark.slow) for x in ("1", "1024"))]
)
@pytest.mark.filterwarnings("ignore:.*max_source_length")
def test_one_line_in_is_one_line_out(path, loaded, capfdbinary, monkeypatch, window):
    content = b"\n".join(LINES) + b"\n"
    words = ("--window", window, "--batch_size", "2")
    *lines, rest = translated(path, capfdbinary, monkeypatch, content, *words)
    clean = [line.rstrip(b"\r") for line in LINES]
    assert lines == [t.text for t in loaded.translate(clean)] and rest == ""
    assert lines[1] == lines[2] == ""


@pytest.mark.parametrize("content, lines", [(b"", 0), (b"a", 1), (b"\n\n", 2)])
@pytest.mark.usefixtures("traced")
def test_ends_of_files(path, capfdbinary, monkeypatch, content, lines):
    assert len(translated(path, capfdbinary, monkeypatch, content)) == lines + 1


@pytest.mark.slow
def test_lines_that_are_not_utf8_are_counted(path, tmp_path, capsys):
    source = tmp_path / "in.txt"
    source.write_bytes("a\n\ufffd\n".encode() + b"\xff b\n\xed\xa0\x80\n")
    run("translate", path, "--input", source, "--output", tmp_path / "out.txt")
    assert "note: lines that are not UTF-8: 2, " in capsys.readouterr().err
    assert (tmp_path / "out.txt").read_bytes().count(b"\n") == 4


def test_a_directory_is_no_file(path, tmp_path):
    for words in (["--input", tmp_path], ["--input", tmp_path, "--output", "x"]):
        with pytest.raises(IsADirectoryError, match=f"{tmp_path} is a directory"):
            run("translate", path, *words)


def test_what_is_cut_is_counted_over_the_whole_input(
    path, traced, tmp_path, capsys, monkeypatch
):
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text(("a b\n" + "a " * 20 + "\n") * 4)
    main(
        ["translate", str(path), "--input", str(source), "--output", str(out)]
        + ["--window", "2"]
    )
    notes = [x for x in capsys.readouterr().err.splitlines() if "max_" in x]
    assert notes == [
        "note: 4 of 8 texts have more than max_source_length=10 tokens: only their "
        "beginnings were read."
    ]


def test_files_plain_and_gzip(path, traced, tmp_path):
    texts = [t.text for t in traced.translate(["a b", "c"])]
    packed, plain = tmp_path / "in.gz", tmp_path / "out.txt"
    packed.write_bytes(gzip.compress(codecs.BOM_UTF8 + b"a b\r\nc\r\n"))
    run("translate", path, "--input", packed, "--output", plain)
    assert plain.read_text().splitlines() == texts
    source, target = tmp_path / "in.txt", tmp_path / "out.gz"
    source.write_bytes(b"a b\nc")
    run("translate", path, "--input", source, "--output", target)
    assert gzip.decompress(target.read_bytes()).decode().splitlines() == texts


@pytest.mark.slow
def test_columns(path, capfdbinary, monkeypatch):
    words = ("--n_best", "2", "--alignments")
    *lines, _ = translated(path, capfdbinary, monkeypatch, b"a b\n\nc d\n", *words)
    fields = [line.split(" ||| ") for line in lines]
    assert [row[0] for row in fields] == ["0", "0", "1", "2", "2"]
    assert all(len(row) == 4 for row in fields)
    assert float(fields[0][2]) >= float(fields[1][2])
    for link in fields[0][3].split():
        i, j = map(int, link.split("-"))
        assert i < 2 and j < len(fields[0][1].split())


@pytest.mark.usefixtures("traced")
def test_pictures_of_lines_that_have_words(path, capfdbinary, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "pictures"
    words = ("--pictures", folder)
    translated(path, capfdbinary, monkeypatch, b"a b\n\nc d\n", *words)
    pictures = {path.name: path.read_bytes()[1:4] for path in folder.iterdir()}
    assert pictures == {"1.png": b"PNG", "3.png": b"PNG"}


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("pieces", [False, True])
def test_what_pictures_show(path, pieces, capfdbinary, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(plots, "save_attention", lambda *x: drawn.append(x))
    words = ["--pictures", tmp_path, *["--pieces"] * pieces]
    translated(path, capfdbinary, monkeypatch, b"\na b\n", *words)
    [(file, weights, source, target, title, by_pieces)] = drawn
    assert (file, title, by_pieces) == (tmp_path / "2.png", "line 2", pieces)
    assert weights.shape == (len(target), len(source))


@pytest.mark.usefixtures("traced")
def test_pieces_are_of_pictures(path):
    with pytest.raises(ValueError, match="--pieces .* needs --pictures FOLDER"):
        run("translate", path, "--pieces")


def test_no_pictures_without_attention(path, loaded, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    model = build("sutskever2014", 8, 9, units=4, num_layers=1)
    other = Translator(model, loaded.tokenizers, loaded.search)
    monkeypatch.setattr(translators, "load_translator", lambda options: other)
    with pytest.raises(ValueError, match="--pictures needs a model with attention"):
        run("translate", path, "--pictures", tmp_path / "pictures")
    assert not (tmp_path / "pictures").exists()


@pytest.mark.usefixtures("traced")
def test_pictures_need_a_folder(path, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="--pictures must be a directory"):
        run("translate", path, "--pictures", tmp_path / "file")


def test_a_missing_file_is_named(path):
    with pytest.raises(FileNotFoundError, match="no file nowhere.txt"):
        run("translate", path, "--input", "nowhere.txt")


@pytest.mark.parametrize("option", ["n_best", "batch_size", "window"])
def test_sizes_below_one_are_named(path, capsys, option, tmp_path):
    output = tmp_path / "out"
    output.write_bytes(b"kept\n")
    with pytest.raises(SystemExit):
        run("translate", path, f"--{option}", "0", "--output", output)
    assert f"--{option} must be at least 1. Received: 0" in capsys.readouterr().err
    assert output.read_bytes() == b"kept\n"


def test_more_translations_than_beams(path, tmp_path):
    output = tmp_path / "out"
    output.write_bytes(b"kept\n")
    with pytest.raises(ValueError, match="n_best must be at most beam_width.*9"):
        run("translate", path, "--n_best", "9", "--output", output)
    assert output.read_bytes() == b"kept\n"


@pytest.mark.usefixtures("traced")
def test_a_pipe_is_a_file_too(path, tmp_path):
    pipe, output = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a b\nc\n",))
    writer.start()
    run("translate", path, "--input", pipe, "--output", output)
    writer.join()
    assert output.read_bytes().count(b"\n") == 2


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


def test_the_input_is_not_overwritten(path, tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"a b\n")
    (tmp_path / "link").symlink_to(text)
    with pytest.raises(ValueError, match="overwrite"):
        run("translate", path, "--input", text, "--output", tmp_path / "link")
    assert text.read_bytes() == b"a b\n"


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


def test_a_translation_is_one_line():
    translation = SimpleNamespace(text="A\u2028 B", score=-1.0)
    asked = options("translate", "x", "--scores")
    assert list(columns(translation, asked)) == ["A  B", "-1.0000"]


def test_no_term_is_found_in_a_tag(tmp_path, monkeypatch):
    """As "news" would be in `<news> a b`, for which "A" is not meant."""
    monkeypatch.setattr(line_translator, "check_tag", lambda *given: None)
    monkeypatch.setattr(line_translator, "unwritable", lambda *given: [])
    (tmp_path / "terms.tsv").write_text("news\tA\nb\tE\n")
    read = []

    def stream(lines, *sizes, n_best, prefixes, constraints):
        for pair in zip(lines, constraints, strict=True):
            read.append(pair)
            yield []

    asked = ("--tag", "news", "--terms", str(tmp_path / "terms.tsv"))
    translator = SimpleNamespace(stream=stream, target_tokenizer=None)
    translator.source_tokenizer = None
    found = LineTranslator(options("translate", "x", *asked), translator)
    assert [x.line for x in found([b"a b", b"news"])] == [b"<news> a b", b"<news> news"]
    assert read == [(b"<news> a b", ["E"]), (b"<news> news", ["A"])]


@pytest.mark.slow
def test_what_translations_must_contain(path, tmp_path, capfd):
    given, out = tmp_path / "in.txt", tmp_path / "out.txt"
    given.write_text("a b\nb\n\nd d\n")
    lines, terms = tmp_path / "must.tsv", tmp_path / "terms.tsv"
    lines.write_text("E D\tC\n\nA\nA\n")
    terms.write_text("b\tE E\nd\tA\n")
    words = ("--input", given, "--output", out, "--window", "2")
    run("translate", path, *words, "--constraints", lines, "--terms", terms)
    first, second, third, fourth = out.read_text().split("\n")[:-1]
    assert "E D" in first and "C" in first and "E E" in first
    assert "E E" in second and third == "" and "A" in fourth
    assert "the translation of line 3 lacks 'A'" in capfd.readouterr().err
    lines.write_text("A\n")
    with pytest.raises(ValueError, match="must.tsv must have a line for each.*1 .* 4"):
        run("translate", path, *words, "--constraints", lines)
    terms.write_text("x\tY\n\nb\tZ\n")
    match = "in.txt, line 1, needs 'Z'. .*terms.tsv has .*'Y' .line 1.*'Z' .line 3"
    with pytest.raises(ValueError, match=match):
        run("translate", path, *words, "--terms", terms)
    with pytest.raises(FileNotFoundError, match="none.tsv"):
        run("translate", path, *words, "--constraints", tmp_path / "none.tsv")


@pytest.mark.parametrize("content", [b"A\n", b"A\nA\nA\n"])
def test_constraints_of_another_length_than_standard_input(
    path, tmp_path, capfdbinary, monkeypatch, content
):
    must = tmp_path / "must.tsv"
    must.write_bytes(content)
    with pytest.raises(ValueError, match="one of `constraints` for each text"):
        translated(path, capfdbinary, monkeypatch, b"a\nb\n", "--constraints", must)


def test_c9_terms_that_no_line_has_are_told_and_no_more(path, tmp_path, capsys):
    """All of them at once, with their lines in the glossary."""
    given, terms = tmp_path / "in.txt", tmp_path / "terms.tsv"
    given.write_text("a b\n")
    terms.write_text("x\tÄ\ny\tÖ Ö\nb\tE\n")
    run("translate", path, "--input", given, "--terms", terms)
    said = capsys.readouterr().err
    assert (
        "terms.tsv has phrases with words" in said
        and "'Ä' (line 1), 'Ö Ö' (line 2)" in said
    )
    must = tmp_path / "must.tsv"
    must.write_text("E\tÄ\n")
    with pytest.raises(ValueError, match="must.tsv asks for .*: 'Ä' .line 1"):
        run("translate", path, "--input", given, "--constraints", must)


def test_translations_begin_as_a_file_says(path, tmp_path, capsys):
    given, begin = tmp_path / "in.txt", tmp_path / "begin.txt"
    given.write_text("a b\nb\n")
    begin.write_text("E\n\n")
    run("translate", path, "--input", given, "--prefixes", begin)
    assert capsys.readouterr().out.startswith("E")
    begin.write_text("E\n")
    with pytest.raises(ValueError, match="begin.txt must have a line for each"):
        run("translate", path, "--input", given, "--prefixes", begin)
    begin.write_text("E\nÄ\n")
    with pytest.raises(ValueError, match="begin.txt asks for .*: 'Ä' .line 2"):
        run("translate", path, "--input", given, "--prefixes", begin)


def test_c8_a_run_with_tags_says_so_where_none_is_given(capsys):
    words = WordTokenizer(["a", "<ui>", "<news>", "<bt>"])
    translator = SimpleNamespace(source_tokenizer=words)
    tell_tags(translator, "ui")
    assert capsys.readouterr().err == ""
    tell_tags(translator, None)
    assert "the tags ui, news:" in capsys.readouterr().err
