"""The corpus of a run."""

from __future__ import annotations

import argparse

import pytest
from small_training import write_corpus
from small_translator import word_translator, written_run

from keras_luong.files import write_json
from keras_luong.runs import corpus as run_corpus
from keras_luong.runs.record import read_record


@pytest.fixture
def run(tmp_path):
    """A run that was trained on text files."""
    run = written_run(tmp_path / "run", word_translator())
    data = tmp_path / "data"
    data.mkdir()
    write_corpus(data, train=3, val=2)
    record = read_record(run.path)
    record["settings"] = {"data": str(data), "source": "xx", "target": "yy"}
    write_json(run.record, record)
    return run


def parse(*argv):
    parser = argparse.ArgumentParser()
    run_corpus.add_corpus_flags(parser)
    return parser.parse_args([str(text) for text in argv])


def test_is_the_runs_own(run):
    corpus = run_corpus.corpus_of(parse(), run.path)
    assert corpus.splits == ("train", "validation")
    assert (corpus.source_language, corpus.target_language) == ("xx", "yy")


def test_flags_come_first(run):
    turned = run_corpus.corpus_of(parse("--source", "yy", "--target", "xx"), run.path)
    pair = next(turned.pairs("train").as_numpy_iterator())
    assert pair["source"].isupper() and not pair["target"].isupper()


def test_a_run_that_does_not_say(run):
    record = read_record(run.path)
    del record["settings"]["data"], record["settings"]["target"]
    write_json(run.record, record)
    with pytest.raises(ValueError, match="not name its data: give --data, --target"):
        run_corpus.corpus_of(parse(), run.path)


def test_no_run_at_all(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run_corpus.corpus_of(parse(), tmp_path / "nowhere")
