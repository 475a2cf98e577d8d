"""A corpus with a teacher's translations."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import tensorflow as tf

from keras_luong.serving import Translation
from keras_luong.text import corpora
from keras_luong.training import distillation

PAIRS = {
    "train": [("a b", "A"), ("", "nothing"), ("c\nd", "C\u2028D"), ("é", "É")],
    "validation": [("v", "V")],
    "test": [("t", "T\n")],
}


class Corpus:
    """Pairs in memory, with ends of lines that no text file can hold."""

    name, source_language, target_language = "memory", "xx", "yy"
    splits = tuple(PAIRS)

    def pairs(self, split):
        sources, targets = zip(*PAIRS[split], strict=True)
        return tf.data.Dataset.from_tensor_slices(
            {"source": list(sources), "target": list(targets)}
        )


class Teacher:
    """Says every source backwards, and remembers how far it has read."""

    def __init__(self):
        self.read = 0

    def stream(self, texts, batch_size):
        for text in texts:
            self.read += 1
            yield Translation(text[::-1], 0.0, [], [], None, False, ())


def lines(path):
    return path.read_bytes().decode().split("\n")


def test_every_source_stands_twice_and_other_splits_once(tmp_path):
    out = distillation.write_distilled(Corpus(), Teacher(), tmp_path / "new" / "d")
    assert lines(out / "train.xx") == "a b|a b|||c d|c d|é|é|".split("|")
    assert lines(out / "train.yy") == "A|b a|nothing||C D|d c|É|é|".split("|")
    assert lines(out / "test.yy") == ["T", ""]
    assert sorted(path.name for path in out.parent.iterdir()) == ["d"]


def test_is_a_corpus(tmp_path):
    out = distillation.write_distilled(Corpus(), Teacher(), tmp_path / "d")
    corpus = corpora.load(out, "xx", "yy")
    assert corpus.splits == ("train", "validation", "test")
    pairs = [
        (pair["source"].decode(), pair["target"].decode())
        for pair in corpus.pairs("train").as_numpy_iterator()
    ]
    assert pairs[:2] == [("a b", "A"), ("a b", "b a")] and len(pairs) == 8


def test_reads_no_further_than_the_teacher(tmp_path):
    """A corpus may be larger than memory."""
    endless = (("a", "A") for _ in iter(int, 1))
    teacher = Teacher()
    pairs = distillation.twice(endless, teacher)
    assert [next(pairs) for _ in range(4)] == [("a", "A"), ("a", "a")] * 2
    assert teacher.read == 2


def test_a_teacher_that_loses_a_sentence_is_found_out(tmp_path):
    forgetful = SimpleNamespace(stream=lambda texts, size: Teacher().stream("a", size))
    with pytest.raises(ValueError, match="shorter"):
        distillation.write_distilled(Corpus(), forgetful, tmp_path / "d")
    assert not list(tmp_path.iterdir())  # and nothing is left


def test_what_is_there_stays(tmp_path):
    (tmp_path / "d").mkdir()
    with pytest.raises(FileExistsError, match="d exists; give the name"):
        distillation.write_distilled(Corpus(), Teacher(), tmp_path / "d")


def test_shows_how_far_it_is(tmp_path, capsys):
    distillation.write_distilled(Corpus(), Teacher(), tmp_path / "d", progress=True)
    assert "4/4" in capsys.readouterr().out
