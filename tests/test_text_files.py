"""Pairs of sentences in two files: streamed, and refused where they are spoilt."""

import gzip
import os

import pytest
import tensorflow as tf

from keras_luong.text.corpora import TextFiles


def packed(content):
    return gzip.compress(content, mtime=0)


def in_members(content):
    middle = content.index(b"\n") + 1
    return packed(content[:middle]) + packed(b"") + packed(content[middle:]) + bytes(64)


def texts(corpus, split):
    return [
        (pair["source"].decode(), pair["target"].decode())
        for pair in corpus.pairs(split).as_numpy_iterator()
    ]


@pytest.fixture
def pair_of_files(tmp_path):
    def make(source, target, suffix="", pack=bytes):
        paths = tmp_path / f"a.en{suffix}", tmp_path / f"a.de{suffix}"
        for path, content in zip(paths, (source, target), strict=True):
            path.write_bytes(
                pack(content.encode() if isinstance(content, str) else content)
            )
        return paths

    return make


@pytest.mark.parametrize(
    "suffix, pack", [("", bytes), ("", packed), (".gz", packed), (".gz", in_members)]
)
def test_files_are_streamed_in_order_again_and_again(pair_of_files, suffix, pack):
    """All lines, which are more than are read at once."""
    lines = ["one", "a\u2028b\x0bc\x0cd\x85e\u2029f\0g", "\ufefftwo", "", "h\ri"]
    lines += map(str, range(2100))
    source = "\ufeff" + "".join(f"{line}\r\n" for line in lines)
    target = "\n".join(line.upper() for line in lines)
    files = pair_of_files(source, target, suffix, pack)
    corpus = TextFiles({"train": files}, "en", "de")
    expected = [(line, line.upper()) for line in lines]
    assert texts(corpus, "train") == expected == texts(corpus, "train")
    assert corpus.fingerprint("train").pairs == len(lines)
    assert (corpus.source_language, corpus.target_language) == ("en", "de")


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("1\n2\n3\n", "1\n2\n", r"a\.en has 3 lines and .*a\.de has 2: line 3 of .*en"),
        ("1\n2", "1\n2\n3\n4", r"a\.de has 4 lines and .*a\.en has 2: line 3 of .*de"),
        ("", "1\n", r"a\.de has 1 lines and .*a\.en has 0: line 1 of .*de has no tra"),
        ("", "", r"a\.en is empty"),
        ("1\n2\n3", "\n \n\t\n", r"a\.de has 3 lines, all blank"),
        (b"1\n2\n\xff\n", "1\n2\n3\n", r"a\.en is not UTF-8: line 3 has the byte 0xff"),
        ("1\n2", b"1\n2\xc3", r"a\.de is not UTF-8: line 2 has the byte 0xc3"),
        ("1\n".encode("utf-16"), "1\n", r"a\.en is UTF-16"),
        (packed(b"1\n" * 1000)[:-12], "1\n", r"a\.en is damaged gzip"),
    ],
)
def test_spoilt_files_are_refused(pair_of_files, source, target, message):
    corpus = TextFiles({"train": pair_of_files(source, target)}, "en", "de")
    with pytest.raises(ValueError, match=message):
        corpus.pairs("train")


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({"train": ("a",)}, ValueError, r"train split must have two files.*\('a',\)"),
        ({"train": "ab"}, ValueError, "train split must have two files.*'ab'"),
        ({"train": (1, 2)}, TypeError, "file of the train split must be a path.*1"),
        ({"train": (__file__, "a.de")}, FileNotFoundError, r"a\.de"),
        ({}, ValueError, "at least one split"),
    ],
)
def test_a_split_is_two_paths(files, error, message):
    with pytest.raises(error, match=message):
        TextFiles(files, "en", "de")


def test_unknown_split_is_refused(pair_of_files):
    corpus = TextFiles({"test": pair_of_files("1\n", "1\n")}, "en", "de", name="mine")
    with pytest.raises(ValueError, match=r"mine has no split 'train'; it has \['test'"):
        corpus.pairs("train")


def test_text_that_changes_is_told(pair_of_files):
    """Whoever reads it again would read something else than what was counted."""
    source, target = pair_of_files("one\ntwo\n", "eins\nzwei\n")
    corpus = TextFiles({"train": (source, target)}, "en", "de")
    pairs = corpus.pairs("train")
    assert len(list(pairs)) == 2
    target.write_text("eins\nzwei\n")  # a copy of the same text
    os.utime(target, (1, 1))
    assert len(list(pairs)) == len(list(corpus.pairs("train"))) == 2
    target.write_text("zwei\neins\n")
    told = (
        "a.en and .*a.de, the train split, changed.* had 2 pairs, and has 2, of which"
    )
    for _ in range(2):
        with pytest.raises(OSError, match=told):
            corpus.pairs("train")
    with pytest.raises(tf.errors.OpError, match=told):
        list(pairs)
    target.write_text("eins\n")
    with pytest.raises(ValueError, match="a.en has 2 lines and .*a.de has 1"):
        corpus.pairs("train")
    target.write_text("eins\nzwei\n")
    assert len(list(pairs)) == 2
