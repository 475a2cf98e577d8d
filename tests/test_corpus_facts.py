"""What is measured of a corpus."""

from __future__ import annotations

import bz2
import random

import pytest

from keras_luong.text import load_corpus
from keras_luong.text.survey import corpus_facts


@pytest.fixture
def corpus(tmp_path):
    """Three short pairs, and one of which a side is long."""
    lines = {"xx": ["ab", "é", "c", "d " * 300], "yy": ["x", "y", "漢字", "z"]}
    for language, texts in lines.items():
        for split in ("train", "val"):
            text = "\n".join(texts) + "\n"
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    return load_corpus(tmp_path, "xx", "yy")


def test_what_repeats_itself_is_little_content(tmp_path):
    rng = random.Random(0)
    lines = [" ".join(rng.choices("abcdefghij", k=20)) for _ in range(500)]
    contents = []
    for name, text in {"new": lines, "old": lines[:25] * 20}.items():
        (tmp_path / name).mkdir()
        for file in ("train.xx", "train.yy", "val.xx", "val.yy"):
            (tmp_path / name / file).write_text("\n".join(text) + "\n")
        contents.append(corpus_facts(load_corpus(tmp_path / name, "xx", "yy")).content)
    assert contents[1] < contents[0] / 5


def test_counts_bytes_and_characters(corpus):
    facts = corpus_facts(corpus, coverage=1.0)
    assert facts.pairs == 4
    assert facts.content == len(bz2.compress("x\ny\n漢字\nz".encode()))
    # of the longer side; 599 if the reader strips lines
    assert facts.long_line in (599, 600)
    assert facts.characters == len(set("abécd xyz漢字"))


def test_a_document_in_one_line_is_not_measured_whole(tmp_path):
    """It is not trained on, and no reason for a larger model."""
    rng, sizes = random.Random(0), []
    words = [str(rng.random()) for _ in range(50_000)]
    for length in (1000, 50_000):
        lines = [*words[:100], " ".join(words[:length])]
        for file in ("train.xx", "train.yy", "val.xx", "val.yy"):
            (tmp_path / file).write_text("\n".join(lines) + "\n")
        sizes.append(corpus_facts(load_corpus(tmp_path, "xx", "yy")).content)
    assert sizes[0] == sizes[1]


def test_counts_what_is_trained_on(corpus):
    facts = corpus_facts(corpus, limit=3)
    assert (facts.pairs, facts.long_line) == (3, 6)


def test_rare_characters_need_not_be_covered(corpus):
    assert corpus_facts(corpus, coverage=0.9).characters == 2  # "d" and space
