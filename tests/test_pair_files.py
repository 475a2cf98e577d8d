import pytest

from keras_luong.files import write_lines
from keras_luong.text.corpus_files import Table, TextFiles


def corpus(path, *lines, **fields):
    write_lines(path, lines)
    return TextFiles({"train": Table(path, **fields)}, "en", "de")


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
def test_k1_tables_that_cannot_be_read(lines, fields, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        corpus(tmp_path / "a.tsv", *lines, **fields).pairs("train")


def test_bytes_that_are_no_utf8(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"a\tb\nc\t\xff\n")
    table = TextFiles({"train": Table(tmp_path / "a.tsv")}, "en", "de")
    with pytest.raises(
        ValueError, match="a.tsv is not UTF-8: line 2 has the byte 0xff"
    ):
        table.pairs("train")


def test_k1_a_table_in_utf16(tmp_path):
    (tmp_path / "a.tsv").write_bytes("a\tb\n".encode("utf-16"))
    with pytest.raises(ValueError, match="is UTF-16.*iconv -f UTF-16 -t UTF-8"):
        TextFiles.from_table(tmp_path / "a.tsv", "en", "de")


def test_columns_of_ones_own_choice(tmp_path):
    table = corpus(tmp_path / "a.tsv", "x\ta\tb", "y\tc\td", source=2, target=1)
    read = [*table.pairs("train").as_numpy_iterator()]
    assert read == [{"source": b"b", "target": b"a"}, {"source": b"d", "target": b"c"}]
