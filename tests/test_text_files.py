import gzip
import os

import pytest
import tensorflow as tf
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from keras_luong.files import read_lines
from keras_luong.text.corpora import TextFiles


def write(path, content):
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def texts(corpus, split):
    return [
        (pair["source"].decode(), pair["target"].decode())
        for pair in corpus.pairs(split).as_numpy_iterator()
    ]


@pytest.fixture
def pair_of_files(tmp_path):
    def make(source, target, suffix=""):
        return (
            write(tmp_path / f"a.en{suffix}", source),
            write(tmp_path / f"a.de{suffix}", target),
        )

    return make


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_are_streamed_in_order(pair_of_files, suffix):
    files = pair_of_files("one\ntwo\nthree", "eins\nzwei\ndrei\n", suffix)
    corpus = TextFiles({"train": files}, "en", "de")
    expected = [("one", "eins"), ("two", "zwei"), ("three", "drei")]
    assert texts(corpus, "train") == expected
    assert texts(corpus, "train") == expected
    assert (corpus.source_language, corpus.target_language) == ("en", "de")


def test_gzip_of_several_members(tmp_path):
    source = tmp_path / "a.en.gz"
    source.write_bytes(
        gzip.compress(b"one\ntwo\n", mtime=0) + gzip.compress(b"three\n")
    )
    target = write(tmp_path / "a.de", "eins\nzwei\ndrei\n")
    corpus = TextFiles({"train": (source, target)}, "en", "de")
    assert [source for source, _ in texts(corpus, "train")] == ["one", "two", "three"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("between", [gzip.compress(b"", mtime=0), bytes(4), bytes(512)])
def test_all_is_read_that_was_counted(tmp_path, between, suffix):
    """An empty member, and zeros, are where TensorFlow's own reader stops."""
    one, two = (gzip.compress(x, mtime=0) for x in (b"one\ntwo\n", b"three\n"))
    path = tmp_path / f"a.en{suffix}"
    path.write_bytes(one + between + two)
    corpus = TextFiles({"train": (path, path)}, "en", "de")
    assert [x for x, _ in texts(corpus, "train")] == ["one", "two", "three"]
    assert corpus.fingerprint("train").pairs == 3


@pytest.mark.parametrize("zeros", [1, 4, 8, 4096])
def test_gzip_that_is_filled_up_with_zeros(tmp_path, zeros):
    """As tapes and block devices do; TensorFlow takes it for damage."""
    source = tmp_path / "a.en.gz"
    source.write_bytes(gzip.compress(b"one\n", mtime=0) + bytes(zeros))
    corpus = TextFiles({"train": (source, write(tmp_path / "a.de", "eins"))}, "x", "y")
    assert texts(corpus, "train") == [("one", "eins")]


def test_only_line_feeds_end_lines(pair_of_files):
    odd = "a\u2028b\x0bc\x0cd\x85e\u2029f\0g"
    corpus = TextFiles({"train": pair_of_files(odd + "\r\nx", odd + "\nx")}, "en", "de")
    assert texts(corpus, "train") == [(odd, odd), ("x", "x")]


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.sampled_from(["a", "\n", "\r", "\u2028", " ", "ä"]), min_size=1))
def test_lines_are_those_of_the_reader(tmp_path_factory, characters):
    content = "x" + "".join(characters)
    inside = content.rstrip("\r\n")
    assume("\n" in inside or "\r" not in inside)  # one line, of old Macs as it seems
    path = write(tmp_path_factory.getbasetemp() / "counted.txt", content)
    corpus = TextFiles({"train": (path, path)}, "en", "de")
    read = list(read_lines(path))
    assert [source for source, _ in texts(corpus, "train")] == read
    assert len(read) == len(list(tf.data.TextLineDataset(str(path))))
    assert corpus.fingerprint("train").pairs == len(read)


def test_more_lines_than_are_read_at_once(tmp_path):
    path = write(tmp_path / "a.en", "".join(f"{i}\n" for i in range(3000)))
    corpus = TextFiles({"train": (path, path)}, "en", "de")
    assert [x for x, _ in texts(corpus, "train")] == [str(i) for i in range(3000)]


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
    ],
)
def test_spoilt_files_are_refused(pair_of_files, source, target, message):
    corpus = TextFiles({"train": pair_of_files(source, target)}, "en", "de")
    with pytest.raises(ValueError, match=message):
        corpus.pairs("train")


@pytest.mark.parametrize(
    "content", [b"1\n", gzip.compress(b"1\n" * 1000, mtime=0)[:-12], b""]
)
def test_damaged_gzip_is_refused(tmp_path, content):
    path = tmp_path / "a.en.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.en\.gz is (not gzip|damaged gzip|empty)"):
        TextFiles({"train": (path, path)}, "en", "de").pairs("train")


def test_gzip_by_another_name(tmp_path):
    path = tmp_path / "a.en"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    corpus = TextFiles({"train": (path, path)}, "en", "de")
    assert texts(corpus, "train") == [("one", "one"), ("two", "two")]


def test_missing_file_is_named(tmp_path):
    source = write(tmp_path / "a.en", "1\n")
    with pytest.raises(FileNotFoundError, match=r"a\.de"):
        TextFiles({"train": (source, tmp_path / "a.de")}, "en", "de")


def test_no_files_are_refused():
    with pytest.raises(ValueError, match="at least one split"):
        TextFiles({}, "en", "de")


def test_unknown_split_is_refused(pair_of_files):
    corpus = TextFiles({"test": pair_of_files("1\n", "1\n")}, "en", "de", name="mine")
    with pytest.raises(ValueError, match=r"mine has no split 'train'; it has \['test'"):
        corpus.pairs("train")


@pytest.mark.parametrize("validation", ["val", "valid", "validation", "dev"])
def test_directory(tmp_path, validation):
    directory = tmp_path / "news"
    directory.mkdir()
    for stem in ("test_b", "test", validation, "train", "test.2016"):
        write(directory / f"{stem}.en", f"{stem}\n")
        write(directory / f"{stem}.de.gz", f"{stem}\n")
        write(directory / f"{stem}.fr", "other\n")
    write(directory / "training.en", "not a split\n")
    corpus = TextFiles.from_directory(directory, "en", "de")
    assert corpus.splits == ("train", "validation", "test", "test.2016", "test_b")
    assert corpus.name == "news"
    assert texts(corpus, "validation") == [(validation, validation)]
    swapped = TextFiles.from_directory(str(directory), "de", "en")
    assert swapped.files["train"] == (directory / "train.de.gz", directory / "train.en")


def test_missing_directory_and_equal_languages_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no directory .*none"):
        TextFiles.from_directory(tmp_path / "none", "en", "de")
    with pytest.raises(ValueError, match="same: 'en'"):
        TextFiles.from_directory(tmp_path, "en", "en")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_byte_order_mark_is_no_part_of_the_text(pair_of_files, suffix):
    files = pair_of_files("\ufeffone\n\ufefftwo\n", "\ufeffeins\nzwei\n", suffix)
    corpus = TextFiles({"train": files}, "en", "de")
    assert texts(corpus, "train") == [("one", "eins"), ("\ufefftwo", "zwei")]


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        (("a",), ValueError, r"train split must have two files.*\('a',\)"),
        ("ab", ValueError, "train split must have two files.*'ab'"),
        ((1, 2), TypeError, "file of the train split must be a path.*1"),
    ],
)
def test_a_split_is_two_paths(files, error, message):
    with pytest.raises(error, match=message):
        TextFiles({"train": files}, "en", "de")


def test_text_that_changes_is_told(tmp_path, pair_of_files):
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
