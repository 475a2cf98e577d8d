"""Files with tabs: which column is which, and what is refused."""

import gzip

import pytest

from keras_luong.files import write_lines
from keras_luong.text.corpora import TextFiles, load_corpus
from keras_luong.text.corpus import fingerprint, notes, sentences
from keras_luong.text.corpus_files import Table, read_table


@pytest.mark.parametrize(
    ("first", "languages", "expected"),
    [
        ("Go.\tGeh.", ("en", "de"), (0, 1, False)),
        ("Go.\tGeh.", ("de", "en"), (0, 1, False)),
        ("en\tde", ("en", "de"), (0, 1, True)),
        ("en\tde", ("de", "en"), (1, 0, True)),
        ("id\tDE\tattribution\t EN ", ("en", "de"), (3, 1, True)),
        ("no.\t\"fr\"\t'en'", ("en", "fr"), (2, 1, True)),
        ("por_BR\tzh_Hans", ("zh-hans", "pt-BR"), (1, 0, True)),
        ("Target\tSource", ("en", "de"), (1, 0, True)),
        ("source\ttarget\tscore", ("de", "en"), (0, 1, True)),
        ("deu\teng", ("en", "de"), (1, 0, True)),
        ("it\tthe", ("it", "en"), (0, 1, False)),  # one is no language
    ],
)
def test_which_column_is_which(first, languages, expected, tmp_path):
    write_lines(tmp_path / "train.tsv", [first, "a\tb\tc\td"])
    table = read_table(tmp_path / "train.tsv", *languages)
    assert table == (tmp_path / "train.tsv", *expected)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["fr\tit", "a\tb"], "fr and it, which are not en and de. Give --source fr --"),
        (["a b"], "Line 1 of .*a.tsv has no tab"),
        ([], "Line 1 of .*a.tsv is empty"),
        (["", "a\tb"], "Line 1 of .*a.tsv is empty: it should be two sent"),
        (["Go.\tGeh.\tCC-BY"] * 2, "has 3 columns, and names none en and de: it sho"),
        (["1.2\tGo.\tGeh.\ten\tde"] * 2, "has 5 columns, and names none en and de"),
    ],
)
def test_k1_a_table_of_something_else(lines, message, tmp_path):
    write_lines(tmp_path / "a.tsv", lines)
    with pytest.raises(ValueError, match=message):
        TextFiles.from_table(tmp_path / "a.tsv", "en", "de")


@pytest.mark.parametrize(
    ("lines", "fields", "message"),
    [
        (["a\tb", "c", "d\te"], {}, "Line 2 of .*a.tsv has 1 column and needs 2"),
        (
            ["a\tb\tc", "a\tb"],
            {"target": 2},
            "Line 2 of .*a.tsv has 2 columns and needs",
        ),
        (["a\tb", "c\td\te"], {}, "Line 2 of .* has 3 columns and the first one has 2"),
        (["a\tb"], {"target": 2}, "Line 1 of .*a.tsv has 2 columns and needs 3"),
        (["a\t", "b\t "], {}, "Column 2 of .*a.tsv has 2 lines, all blank"),
        (["en\tde"], {"has_header": True}, "Column 1 of .*a.tsv is empty"),
        ([], {}, "Column 1 of .*a.tsv is empty"),
    ],
)
def test_k1_lines_that_cannot_be_read(lines, fields, message, tmp_path):
    write_lines(tmp_path / "a.tsv", lines)
    corpus = TextFiles({"train": Table(tmp_path / "a.tsv", **fields)}, "en", "de")
    with pytest.raises(ValueError, match=message):
        corpus.pairs("train")


def test_bytes_that_are_no_utf8(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"a\tb\nc\t\xff\n")
    table = TextFiles({"train": Table(tmp_path / "a.tsv")}, "en", "de")
    message = "a.tsv is not UTF-8: line 2 has the byte 0xff"
    with pytest.raises(ValueError, match=message):
        table.pairs("train")


def test_k1_a_table_in_utf16(tmp_path):
    (tmp_path / "a.tsv").write_bytes("a\tb\n".encode("utf-16"))
    with pytest.raises(ValueError, match="is UTF-16.*iconv -f UTF-16 -t UTF-8"):
        TextFiles.from_table(tmp_path / "a.tsv", "en", "de")


def test_columns_of_ones_own_choice(tmp_path):
    write_lines(tmp_path / "a.tsv", ["x\ta\tb", "y\tc\td"])
    files = {"train": Table(tmp_path / "a.tsv", source=2, target=1)}
    read = sentences(TextFiles(files, "en", "de"), "train")
    assert read == (["b", "d"], ["a", "c"])


def test_languages_follow_from_a_header(tmp_path):
    write_lines(tmp_path / "a.tsv", ["fr\ten", "a\tb"])
    corpus = TextFiles.from_table(tmp_path / "a.tsv", "en")
    assert sentences(corpus, "train") == (["b"], ["a"])
    assert (corpus.source_language, corpus.target_language) == ("en", "fr")
    with pytest.raises(ValueError, match="has fr and en: which one.*--source fr --tar"):
        load_corpus(tmp_path / "a.tsv")
    write_lines(tmp_path / "b.tsv", [f"Englisch\t{'Deutsch' * 9}", "a\tb"])
    begins = f"; line 1 is a pair: Englisch | {('Deutsch' * 9)[:40]} ..."
    corpus = TextFiles.from_table(tmp_path / "b.tsv", "en", "de")
    assert notes(corpus)["columns"].endswith(begins)
    with pytest.raises(ValueError, match="names no languages: give both --source and"):
        load_corpus(tmp_path / "b.tsv")


def test_the_text_of_a_table_is_that_of_two_files(tmp_path):
    """Packed in whatever way, it is the same corpus to a run."""
    write_lines(tmp_path / "two" / "test.en", ["a", "", '"b"', "c\u2028d"])
    write_lines(tmp_path / "two" / "test.de", ["A", "", "B\\t", "C"])
    lines = ["\ufeffde\ten\tnote", "A\ta\tx", "", 'B\\t\t"b"', "C\tc\u2028d\t"]
    text = "".join(f"{line}\r\n" for line in lines)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "test.tsv.gz").write_bytes(gzip.compress(text.encode()))
    two, one = (load_corpus(tmp_path / x, "en", "de") for x in ("two", "one"))
    assert sentences(one, "test") == sentences(two, "test")
    assert fingerprint(one, "test") == fingerprint(two, "test")
    said = "test.tsv.gz: column 2 is en, column 1 is de, as the header says"
    assert notes(one)["columns"] == said and "columns" not in notes(two)


def test_splits_of_tables(tmp_path):
    for split in ("train", "valid", "test"):
        write_lines(tmp_path / f"{split}.tsv", [f"{split}\tb"])
    corpus = TextFiles.from_directory(tmp_path, "en", "de")
    assert corpus.splits == ("train", "validation", "test")
    assert notes(corpus)["columns"].count("column 1 is en") == 3
    one = TextFiles.from_table(tmp_path / "valid.tsv", "en", "de")
    assert sentences(one, "validation") == (["valid"], ["b"])
