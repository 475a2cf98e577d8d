"""A column of texts in Parquet: read in order, and written with further columns.

And text that is read again is the same text, or refused.
"""

from __future__ import annotations

import pytest

from keras_luong.runs.shards import ParquetTexts, is_parquet, survey, unchanged

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

LINES = [b"a", b"", b"\xef\xbb\xbfb", b"c\rd\r", b"\x1f\x8be", b"\xff\xfef", b"\0"]
TEXTS = ["a b", None, "", "c\r\nd", "\u2028e\ufeff", "f"]


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns).replace_schema_metadata({"by": "somebody"})
    pq.write_table(table, path, row_group_size=2)
    return path


def test_the_same_text_is_taken_as_it_is():
    assert survey(LINES)[::2] == (7, 2)
    assert survey([b"ab", b""]).digest != survey([b"a", b"b"]).digest
    assert [*unchanged(iter(LINES), survey(LINES).digest)] == LINES
    assert [*unchanged([], survey([]).digest)] == []


@pytest.mark.parametrize("now", [LINES[::-1], LINES[:-1], [*LINES, b""], []])
def test_another_text_is_refused_at_its_end(now):
    lines = unchanged(now, survey(LINES).digest)
    assert [next(lines) for _ in now] == now
    with pytest.raises(OSError, match="changed meanwhile"):
        next(lines)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_a_file(tmp_path, kind):
    path = write(tmp_path / "in.parquet", id=[*range(6)], text=pa.array(TEXTS, kind))
    texts = ParquetTexts(path)
    read = ["a b", "", "", "c d", "\u2028e\ufeff", "f"]
    assert [line.decode() for line in texts.lines()] == read and texts.column == "text"
    values = ((line.decode().upper(), -1.5) for line in texts.lines())
    types = {"translation": "string", "score": "float64"}
    digest = survey(texts.lines()).digest
    texts.write(tmp_path / "new" / "out.parquet", values, types, digest)
    out = pq.read_table(tmp_path / "new" / "out.parquet")
    assert out.column_names == ["id", "text", "translation", "score"]
    said = ["A B", None, "", "C D", "\u2028E\ufeff", "F"]
    assert out["translation"].to_pylist() == said
    assert out["score"].to_pylist() == [-1.5, None, -1.5, -1.5, -1.5, -1.5]
    assert out.select(["id", "text"]).equals(pq.read_table(path))
    assert out.schema.metadata[b"by"] == b"somebody"


def test_a_folder(tmp_path):
    for name, texts in {"b/1": ["c"], "a": ["a", "b"], "empty": []}.items():
        write(tmp_path / f"in/{name}.parquet", text=pa.array(texts, pa.string()))
    texts = ParquetTexts(tmp_path / "in")
    assert [*texts.lines()] == [b"a", b"b", b"c"]
    values = ((x.decode(),) for x in texts.lines())
    digest = survey(texts.lines()).digest
    texts.write(tmp_path / "out", values, {"t": "string"}, digest)
    for name, said in {"b/1": ["c"], "a": ["a", "b"], "empty": []}.items():
        table = pq.read_table(tmp_path / f"out/{name}.parquet")
        assert table["t"].to_pylist() == said
    assert texts.is_written(tmp_path / "out", ["t"])
    assert not texts.is_written(tmp_path / "out", ["t", "score"])
    assert not texts.is_written(tmp_path / "none", ["t"])
    write(tmp_path / "out/a.parquet", text=["a"], t=["a"])
    assert not texts.is_written(tmp_path / "out", ["t"])


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize(
    "now, values", [*((x, 3) for x in ("cba", "bc", "", "abcd", "abx")), ("abc", 2)]
)
def test_texts_that_are_others_are_refused(now, values, folder, tmp_path):
    """And each text has a value, and each value a text."""
    path = write(tmp_path / "in" / "a.parquet", text=pa.array(["a", "b", "c"]))
    texts = ParquetTexts(path.parent if folder else path)
    digest, said = survey(texts.lines()).digest, iter([("A",)] * values)
    write(path, text=pa.array([*now], pa.string()))
    with pytest.raises(OSError, match="was changed meanwhile"):
        texts.write(tmp_path / "out.parquet", said, {"t": "string"}, digest)
    with pytest.raises(OSError, match="was changed meanwhile"):
        said = iter([("A",)] * (len(now) + 1))
        texts.write(tmp_path / "out.parquet", said, {"t": "string"}, digest)
    assert [x.name for x in tmp_path.iterdir()] == ["in"]


def test_what_a_folder_hides_is_left_out(tmp_path):
    texts = pa.array(["a"])
    write(tmp_path / "in.parquet/_day=1/part-0.snappy.parquet", text=texts)
    for name in ("_temporary/0/part-1.parquet", ".part-0.parquet", "_metadata.parquet"):
        write(tmp_path / "in.parquet" / name, text=texts)
    (tmp_path / "in.parquet" / "_SUCCESS").touch()
    found = ParquetTexts(tmp_path / "in.parquet")
    assert [*found.lines()] == [b"a"]
    (tmp_path / "no.parquet").mkdir()
    with pytest.raises(ValueError, match="no.parquet holds no Parquet files"):
        ParquetTexts(tmp_path / "no.parquet")


def test_which_column(tmp_path):
    path = write(tmp_path / "in.parquet", de=["a"], en=["b"], n=[1])
    assert [*ParquetTexts(path, "en").lines()] == [b"b"]
    with pytest.raises(ValueError, match=r"one column of strings.*\['de', 'en'\]"):
        ParquetTexts(path)
    with pytest.raises(ValueError, match="no column of strings 'n'"):
        ParquetTexts(path, "n")
    with pytest.raises(ValueError, match="a column 'de' already"):
        ParquetTexts(path, "en").check_new_columns(["translation", "de"])


def test_what_is_parquet(tmp_path):
    path = tmp_path / "in" / "a.parquet"
    path.parent.mkdir()
    assert not is_parquet(path.parent)
    path.write_bytes(b"no")
    assert is_parquet(path) and is_parquet(path.parent) and not is_parquet("in.en")
    with pytest.raises(ValueError, match="is not Parquet, or damaged"):
        ParquetTexts(path)
