"""One line in is one line out."""

from __future__ import annotations

import dataclasses
import gzip
import importlib.util
import io
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from keras_luong import BeamSearch, Seq2Seq, Seq2SeqConfig, TokenizerPair, WordTokenizer
from keras_luong.models import build
from keras_luong.runs.directory import RunDirectory
from keras_luong.runs.loading import load
from keras_luong.runs.record import write_record

SCRIPT = Path(__file__).parent.parent / "examples" / "translate.py"
SPEC = importlib.util.spec_from_file_location("translate", SCRIPT)
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

LINES = [b"a b", b"", b"  ", b"c \xff d", b"b\r", b"a" * 5000, b"d d d d d d d d d d d"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run directory of random weights, large enough to say different things."""
    path = tmp_path_factory.mktemp("run")
    model = Seq2Seq(Seq2SeqConfig(8, 9, units=8))
    for weight in model.trainable_variables:
        weight.assign(4.0 * weight)
    write_record(path, model, BeamSearch(2, max_length=6), 10, {})
    source, target = WordTokenizer(list("abcd")), WordTokenizer(list("ABCDE"))
    TokenizerPair(source, target).save(RunDirectory(path).tokenizer)
    model.save_weights(RunDirectory(path).best_weights)
    return path


@pytest.fixture(scope="module")
def loaded(run):
    """The run's translator, as the script makes it; its trace is what takes long."""
    return script.make_translator(script.parse([str(run)]))


@pytest.fixture
def traced(loaded, monkeypatch):
    """Gives the script a translator that need not be traced."""
    monkeypatch.setattr(script, "make_translator", lambda args: loaded)
    return loaded


def translated(run, capfdbinary, monkeypatch, content, *flags):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    script.main([str(run), *flags])
    return capfdbinary.readouterr().out.decode().split("\n")


@pytest.mark.parametrize(
    "window", ["3", *(pytest.param(x, marks=pytest.mark.slow) for x in ("1", "1024"))]
)
@pytest.mark.filterwarnings("ignore:.*max_source_length")
def test_one_line_in_is_one_line_out(run, loaded, capfdbinary, monkeypatch, window):
    content = b"\n".join(LINES) + b"\n"
    flags = ("--window", window, "--batch_size", "2")
    *lines, rest = translated(run, capfdbinary, monkeypatch, content, *flags)
    clean = [line.rstrip(b"\r") for line in LINES]
    assert lines == [t.text for t in loaded.translate(clean)] and rest == ""
    assert lines[1] == lines[2] == ""


@pytest.mark.parametrize("content, lines", [(b"", 0), (b"a", 1), (b"\n\n", 2)])
@pytest.mark.usefixtures("traced")
def test_ends_of_files(run, capfdbinary, monkeypatch, content, lines):
    assert len(translated(run, capfdbinary, monkeypatch, content)) == lines + 1


def test_files_plain_and_gzip(run, traced, tmp_path):
    source, target = tmp_path / "in.gz", tmp_path / "out.txt"
    source.write_bytes(gzip.compress(b"a b\nc\n"))
    script.main([str(run), "--input", str(source), "--output", str(target)])
    texts = [t.text for t in traced.translate(["a b", "c"])]
    assert target.read_text().splitlines() == texts


def test_columns(run, capfdbinary, monkeypatch):
    flags = ("--n_best", "2", "--alignments")
    *lines, _ = translated(run, capfdbinary, monkeypatch, b"a b\n\nc d\n", *flags)
    fields = [line.split(" ||| ") for line in lines]
    assert [row[0] for row in fields] == ["0", "0", "1", "2", "2"]
    assert all(len(row) == 4 for row in fields)
    assert float(fields[0][2]) >= float(fields[1][2])
    for link in fields[0][3].split():
        i, j = map(int, link.split("-"))
        assert i < 2 and j < len(fields[0][1].split())


@pytest.mark.usefixtures("traced")
def test_pictures_of_lines_that_have_words(run, capfdbinary, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    folder = tmp_path / "new" / "pictures"
    flags = ("--pictures", str(folder))
    translated(run, capfdbinary, monkeypatch, b"a b\n\nc d\n", *flags)
    pictures = {path.name: path.read_bytes()[1:4] for path in folder.iterdir()}
    assert pictures == {"1.png": b"PNG", "3.png": b"PNG"}


def test_no_pictures_without_attention(run, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    translator = load(run)
    model = build("sutskever2014", 9, 9, units=4, num_layers=1)
    monkeypatch.setattr(translator, "model", model)
    monkeypatch.setattr(script, "make_translator", lambda args: translator)
    with pytest.raises(SystemExit, match="--pictures needs a model with attention"):
        script.main([str(run), "--pictures", str(tmp_path / "pictures")])
    assert not (tmp_path / "pictures").exists()


def test_the_search_is_the_runs_with_what_flags_change(run):
    args = script.parse([str(run)])
    assert script.make_translator(args).search == BeamSearch(2, max_length=6)
    flags = "--beam_width 3 --average 0.7 --no_unknown --coverage_penalty 0.2"
    search = script.make_translator(script.parse([str(run), *flags.split()])).search
    assert (search.beam_width, search.forbidden) == (3, (1,))
    assert search.length_penalty.kind == "average" and search.coverage_penalty == 0.2


def test_a_missing_file_is_named(run, capsys):
    with pytest.raises(SystemExit):
        script.parse([str(run), "--input", "nowhere.txt"])
    assert "nowhere.txt" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["n_best", "batch_size", "window"])
def test_sizes_below_one_are_named(run, capsys, flag, tmp_path):
    output = tmp_path / "out"
    output.write_bytes(b"kept\n")
    with pytest.raises(SystemExit):
        script.main([str(run), f"--{flag}", "0", "--output", str(output)])
    assert f"--{flag} must be at least 1. Received: 0" in capsys.readouterr().err
    assert output.read_bytes() == b"kept\n"


def test_more_translations_than_beams(run):
    with pytest.raises(SystemExit, match="n_best must be at most beam_width.*9"):
        script.main([str(run), "--n_best", "9"])


@pytest.mark.usefixtures("traced")
def test_a_pipe_is_a_file_too(run, tmp_path):
    pipe, output = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a b\nc\n",))
    writer.start()
    script.main([str(run), "--input", str(pipe), "--output", str(output), "--progress"])
    writer.join()
    assert output.read_bytes().count(b"\n") == 2


@pytest.mark.usefixtures("traced")
def test_files_need_no_standard_streams(run, tmp_path, monkeypatch, capsys):
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"a b\nc\n")
    monkeypatch.setattr(sys, "stdin", None)
    script.main([str(run), "--input", str(source), "--output", str(output)])
    assert output.read_bytes().count(b"\n") == 2
    with pytest.raises(SystemExit):
        script.main([str(run)])
    assert "--input is needed" in capsys.readouterr().err


@pytest.mark.usefixtures("traced")
def test_a_bar_on_standard_error(run, capfdbinary, monkeypatch):
    content = b"a\nb\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    script.main([str(run), "--progress"])
    out, err = capfdbinary.readouterr()
    assert out.count(b"\n") == 2 and b"line" in err


def test_the_input_is_not_overwritten(run, tmp_path, capsys):
    path = tmp_path / "text"
    path.write_bytes(b"a b\n")
    with pytest.raises(SystemExit):
        script.main([str(run), "--input", str(path), "--output", str(path)])
    assert "overwrite" in capsys.readouterr().err
    assert path.read_bytes() == b"a b\n"


def test_only_one_length_penalty(run, capsys):
    with pytest.raises(SystemExit):
        script.parse([str(run), "--average", "1", "--length_penalty", "1"])
    assert "not allowed with" in capsys.readouterr().err


def test_what_is_ready_is_written_before_the_next_window_is_read(run, loaded):
    """As somebody who writes a line and waits for its translation expects."""
    seen, out = [], io.BufferedWriter(raw := io.BytesIO(), 1 << 16)

    def lines():
        for _ in range(3):
            seen.append(raw.getvalue().count(b"\n"))
            yield b"a b\n"

    args = script.parse([str(run), "--window", "1"])
    script.write(loaded, lines(), out, args)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("ended", [True, False])
def test_the_last_word_of_a_cut_translation_keeps_its_link(ended):
    tokens = ["A", "B", *["</s>"] * ended]
    translation = SimpleNamespace(
        text="A B",
        score=-1.0,
        tokens=tokens,
        source_tokens=["a", "b", "</s>"],
        alignment=np.eye(len(tokens), 3),
    )
    args = SimpleNamespace(scores=False, n_best=1, alignments=True)
    assert list(script.columns(translation, args)) == ["A B", "0-0 1-1"]


def test_no_unknown_adds_to_what_is_forbidden(run, monkeypatch):
    translator = load(run)
    translator.search = dataclasses.replace(translator.search, forbidden=(7,))
    monkeypatch.setattr(script.run_directory, "load", lambda path: translator)
    made = script.make_translator(script.parse([str(run), "--no_unknown"]))
    assert set(made.search.forbidden) == {7, 1}
