"""A corpus with a teacher's translations."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from small_corpus import PAIRS, Backwards, Corpus, lines

from keras_luong import progress
from keras_luong.runs import synthetic as distillation
from keras_luong.text import load_corpus


def test_every_source_stands_twice_and_other_splits_once(tmp_path):
    litter = tmp_path / "new" / ".123-0123abcd.d"  # of a process that was killed
    litter.mkdir(parents=True)
    (litter / "train.zz").touch()
    out = distillation.write_distilled(Corpus(), Backwards(), tmp_path / "new" / "d")
    assert lines(out / "train.xx") == "a b|a b|||c d|c d|é|é|".split("|")
    assert lines(out / "train.yy") == "A|b a|nothing||C\u2028D|d c|É|é|".split("|")
    assert lines(out / "test.yy") == ["T ", ""]
    assert [path.name for path in out.parent.iterdir()] == ["d"]
    names = {path.name for path in out.iterdir()}
    assert names == {f"{split}.{side}" for split in PAIRS for side in ("xx", "yy")}


def test_is_a_corpus(tmp_path):
    out = distillation.write_distilled(Corpus(), Backwards(), tmp_path / "d")
    corpus = load_corpus(out, "xx", "yy")
    assert corpus.splits == ("train", "validation", "test")
    pairs = [
        (pair["source"].decode(), pair["target"].decode())
        for pair in corpus.pairs("train").as_numpy_iterator()
    ]
    assert pairs[:2] == [("a b", "A"), ("a b", "b a")] and len(pairs) == 8


def test_reads_no_further_than_the_teacher(tmp_path):
    """A corpus may be larger than memory."""

    def endless():
        yield from [("a", "A")] * 9
        pytest.fail("read to the end")

    teacher = Backwards()
    pairs = distillation.twice(distillation.Rereadable(endless), teacher)
    assert [next(pairs) for _ in range(4)] == [("a", "A"), ("a", "a")] * 2
    assert teacher.read == 2


def test_a_teacher_that_loses_a_sentence_is_found_out(tmp_path):
    forgetful = SimpleNamespace(
        stream=lambda _, *sizes: Backwards().stream("a", *sizes)
    )
    with pytest.raises(ValueError, match="shorter"):
        distillation.write_distilled(Corpus(), forgetful, tmp_path / "d")
    assert not list(tmp_path.iterdir())  # and nothing is left


def test_what_is_there_stays(tmp_path):
    (tmp_path / "d").mkdir()
    with pytest.raises(FileExistsError, match="d exists; give the name"):
        distillation.write_distilled(Corpus(), Backwards(), tmp_path / "d")


def test_a_dangling_link_is_there_too(tmp_path):
    (tmp_path / "d").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="d exists"):
        distillation.write_distilled(Corpus(), Backwards(), tmp_path / "d")


def test_spoilt_files_are_refused_before_anything_is_translated(tmp_path):
    for file, text in (("train", "a\n"), ("val", "a\n")):
        for side in ("xx", "yy"):
            (tmp_path / f"{file}.{side}").write_text(text)
    (tmp_path / "val.xx").write_bytes(b"\xff\n")
    teacher = Backwards()
    with pytest.raises(ValueError, match="val.xx is not UTF-8"):
        distillation.write_distilled(
            load_corpus(tmp_path, "xx", "yy"), teacher, tmp_path / "d"
        )
    assert teacher.read == 0 and not (tmp_path / "d").exists()


def test_says_how_far_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", -1)  # after every sentence
    distillation.write_distilled(Corpus(), Backwards(), tmp_path / "d", progress=True)
    assert "4 of 4 texts" in capsys.readouterr().err


def test_k2_what_is_left_is_told_by_whole_windows():
    """The first of many translations that come at once has taken the time of all."""
    told = []
    bar = SimpleNamespace(add=told.append)
    list(distillation.twice([("a", "A")] * 2500, Backwards(), bar))
    assert told == [1024, 1024, 452]
