"""How probable given translations are."""

from __future__ import annotations

import codecs
import gzip
import math
import os
import re

import pytest
from commands import options
from commands import run_checked as run
from small_translator import word_translator, written_run

from keras_luong.cli import translators
from keras_luong.cli.main import main
from keras_luong.cli.translators import load_translator
from keras_luong.decoding import BeamSearch

SOURCES = [b"the red dog", b"", b"cat \xff", "\u2028the dog".encode(), b"is is the"]
TARGETS = [b"der Hund", b"ist", b"Hund \xc3", b"", b"ist ist ist der"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    translator = word_translator(BeamSearch(2, max_length=6))
    return written_run(tmp_path_factory.mktemp("run"), translator).path


@pytest.fixture(scope="module")
def loaded(path):
    """The run's translator, whose trace is what takes long."""
    return load_translator(options("score", path, "a", "b"))


@pytest.fixture
def traced(loaded, monkeypatch):
    monkeypatch.setattr(translators, "load_translator", lambda options: loaded)
    return loaded


def written(path, lines, end=b"\n"):
    path.write_bytes(b"".join(line + end for line in lines))
    return path


@pytest.fixture
def files(tmp_path):
    return written(tmp_path / "in", SOURCES), written(tmp_path / "out", TARGETS)


def perplexity(found):
    tokens = sum(len(t.tokens) for t in found)
    number = math.exp(-sum(t.score for t in found) / tokens)
    return f"perplexity {number:.2f} of {tokens:,} tokens"


@pytest.mark.slow
def test_what_is_cut_is_counted_over_the_whole_input(path, traced, tmp_path, capsys):
    sources = written(tmp_path / "in", [b"the", b"the " * 20, b"the"] * 2)
    targets = written(tmp_path / "out", [b"der", b"der", b"der " * 40] * 2)
    main(["score", str(path), str(sources), str(targets), "--window", "2"])
    notes = [x for x in capsys.readouterr().err.splitlines() if "max_" in x]
    assert notes == [
        "note: 2 of 6 texts have more than max_source_length=10 tokens: only their "
        "beginnings were read.",
        "note: 2 of 6 targets have more than max_target_length=30 tokens: only their "
        "beginnings were read.",
    ]


@pytest.mark.parametrize("sizes", [[], ["--window", "2", "--batch_size", "1"]])
def test_scores_are_the_translators(path, traced, files, capsys, sizes):
    run("score", path, *files, *sizes)
    out, err = capsys.readouterr()
    found = traced.score(SOURCES, TARGETS)
    assert [float(x) for x in out.splitlines()] == pytest.approx(
        [t.score for t in found], abs=1e-4
    )
    assert out.splitlines()[1] == "0.0000"  # of nothing
    assert err.splitlines()[-1] == perplexity(found)


@pytest.mark.slow
def test_the_command_loads_the_run(path, files, tmp_path, loaded, capsys):
    """And writes to a file, where it is asked to."""
    output = tmp_path / "scores.gz"
    run("score", path, *files, "--alignments", "--output", output)
    out, err = capsys.readouterr()
    assert not out and "perplexity" in err
    lines = gzip.decompress(output.read_bytes()).decode().splitlines()
    fields = [line.split(" ||| ") for line in lines]
    scores = [t.score for t in loaded.score(SOURCES, TARGETS)]
    assert [float(x) for x, _ in fields] == pytest.approx(scores, abs=1e-4)
    assert re.fullmatch(r"\d-\d( \d-\d)*", fields[0][1]) and fields[1][1] == ""


@pytest.mark.parametrize(
    "content",
    [
        codecs.BOM_UTF8 + b"the red dog\ncat\n",
        b"the red dog\r\ncat\r\n",
        b"the red dog\ncat",
        gzip.compress(codecs.BOM_UTF8 + b"the red dog\r\ncat", mtime=0),
    ],
)
def test_files_however_they_were_written(path, traced, tmp_path, capsys, content):
    source = tmp_path / "in"
    source.write_bytes(content)
    target = written(tmp_path / "out", [b"der Hund", b"Hund"], b"\r\n")
    run("score", path, source, target)
    found = traced.score(["the red dog", "cat"], ["der Hund", "Hund"])
    lines = [f"{t.score:.4f}" for t in found]
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    "lines, said",
    [
        ([], "note: .*/text is empty: there is nothing to score"),
        ([b"", b" "], "note: all lines of .*/text are blank: there is no perplexity"),
    ],
)
def test_nothing_at_all(path, tmp_path, capsys, lines, said):
    text = written(tmp_path / "text", lines)
    run("score", path, text, text)
    out, err = capsys.readouterr()
    assert out == "0.0000\n" * len(lines)
    assert re.fullmatch(said, err.splitlines()[-1])


class TestRefusals:
    """Before the run is loaded."""

    @pytest.fixture
    def refuse(self, path):
        def refuse(error, message, *words):
            with pytest.raises(error, match=message):
                run("score", path, *words)

        return refuse

    def test_another_number_of_lines(self, refuse, files, tmp_path):
        source, _ = files
        short = written(tmp_path / "short", TARGETS[:3])
        message = "in has 5 lines and .*short has 3: line 4"
        refuse(ValueError, message, source, short)

    def test_files_that_are_none(self, refuse, files, tmp_path):
        source, target = files
        refuse(FileNotFoundError, "nowhere", source, "nowhere")
        refuse(IsADirectoryError, "is a directory", tmp_path, target)
        os.mkfifo(tmp_path / "pipe")  # which cannot be read twice
        refuse(FileNotFoundError, "no file .*pipe", tmp_path / "pipe", target)

    def test_damaged_gzip(self, refuse, files, tmp_path):
        bad = tmp_path / "bad.gz"
        bad.write_bytes(gzip.compress(b"a\n" * 9)[:-4])
        refuse(ValueError, "bad.gz .*is damaged", files[0], bad)

    def test_an_output_that_is_an_input(self, refuse, files):
        source, target = files
        before = target.read_bytes()
        refuse(ValueError, "overwrite", source, target, "--output", target)
        assert target.read_bytes() == before
