"""Parts that outlive a process: what is cut is whole again, and other work refused.

And texts in Parquet: read in order, and written with further columns.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_luong.files import write_lines
from keras_luong.runs import shards as module
from keras_luong.runs.shards import ParquetTexts, Shards, survey, unchanged
from keras_luong.text.rows import is_parquet

LINES = [b"a", b"", b"\xef\xbb\xbfb", b"c\rd\r", b"\x1f\x8be", b"\xff\xfef", b"\0"]
TEXT = [b"a", b"b", b"c", b"d", b"e"]


@given(lines=st.integers(0, 10**10), window=st.integers(1, 10**5))
def test_shards_are_of_whole_windows_and_not_too_many(lines, window):
    size = module.shard_size(lines, window)
    shards = Shards("x", lines, size)
    assert size % window == 0 and size >= window and len(shards.numbers) <= module.MOST
    assert size == window or lines > module.MOST * window


@given(
    lines=st.lists(st.binary(max_size=5).map(lambda x: x.replace(b"\n", b""))),
    size=st.integers(1, 5),
    data=st.data(),
)
def test_lines_come_back_as_they_were(lines, size, data, tmp_path_factory):
    shards = Shards(tmp_path_factory.mktemp("parts"), len(lines), size)
    todo = data.draw(st.sets(st.sampled_from([*shards.numbers, -1]))) - {-1}
    shards.cut(todo, **{"in": lines, "with": lines[::-1]})
    assert todo == {x for x in shards.numbers if shards.path(x, "in").exists()}
    lengths = [shards.length(number) for number in shards.numbers]
    assert sum(lengths) == len(lines) and all(lengths)
    assert lengths[:-1] == [size] * (len(lengths) - 1)
    for number in todo:
        part = slice(number * size, (number + 1) * size)
        assert [*shards.read(number, "in")] == lines[part]
        assert [*shards.read(number, "with")] == lines[::-1][part]


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


def work(shards, todo):
    for number in todo:
        shards.begin(number)
        lines = [line + b"!" for line in shards.read(number, "in")]
        shards.finish(number, lines, {"shard": number})


@pytest.fixture
def shards(tmp_path):
    return Shards(tmp_path / "parts", lines=5, size=2)


@pytest.mark.parametrize("lines", [[], TEXT[:4], [*TEXT, b"f"], TEXT[::-1]])
def test_text_that_is_another_when_it_is_read_again_is_refused(lines, shards):
    digest, another = survey(TEXT).digest, "is another one"
    with shards.begun({}) as todo, pytest.raises(OSError, match=another):
        shards.cut(todo, **{"in": unchanged(lines, digest)})
    with shards.begun({}) as todo:  # nothing of it is taken for the right text
        assert {x.name for x in shards.folder.iterdir()} == {"plan.json", ".lock"}
        shards.cut(todo, **{"in": unchanged(TEXT, digest)})
        assert [*shards.read(0, "in"), *shards.read(2, "in")] == [b"a", b"b", b"e"]
        shards.path(0, "in").unlink()
        with pytest.raises(OSError, match=another):  # behind all missing ones
            shards.cut([0], **{"in": unchanged([*TEXT[:4], b"x"], digest)})
        if len(lines) != len(TEXT):
            with pytest.raises(OSError, match=another):  # what goes with it is longer
                shards.cut(todo, **{"in": TEXT, "with": lines})


def test_what_is_done_is_not_done_again(tmp_path):
    shards = Shards(tmp_path / "parts", len(LINES), 2)
    with shards.begun({"a": 1}) as todo:
        assert todo == [0, 1, 2, 3]
        shards.cut(todo, **{"in": LINES})
        work(shards, [0, 2])
    (tmp_path / "parts" / ".1-half.000001.out").write_bytes(b"hal")
    with shards.begun({"a": 1}) as todo:
        assert todo == [1, 3] and not [*tmp_path.glob("parts/.1-*")]
        assert not shards.path(0, "in").exists()
        shards.path(3, "in").unlink()
        shards.cut(todo, **{"in": LINES})
        work(shards, todo)
    assert [*shards.results()] == [line + b"!" for line in LINES]
    assert [told["shard"] for told in shards.told()] == [0, 1, 2, 3]
    shards.remove()
    assert not shards.folder.exists()


def test_parts_that_are_half_removed_are_no_work_to_do(shards, tmp_path, monkeypatch):
    with shards.begun({}) as todo:
        shards.cut(todo, **{"in": TEXT})
        work(shards, todo)

    def killed(folder):
        assert not shards.folder.exists()
        (folder / "000000.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("keras_luong.runs.shards.remove", killed)
        shards.remove()
    assert [*tmp_path.iterdir()]
    with shards.begun({}) as todo:
        assert todo == [0, 1, 2]  # a new command's
    assert [*tmp_path.iterdir()] == [shards.folder]


def test_other_work_and_another_process_are_refused(shards):
    with shards.begun({"input": [1, 2], "beam_width": 5, "tag": (1,)}):
        with pytest.raises(OSError, match="Another process works in"), shards.begun({}):
            pass
    with pytest.raises(ValueError, match="differs in beam_width, input. .*begin anew"):
        with shards.begun({"input": [1, 3], "beam_width": 4, "tag": (1,)}):
            pass


def test_a_shard_that_kills_its_workers_is_given_up(shards):
    with shards.begun({}):
        for _ in range(module.TRIES):
            shards.begin(1)
        with pytest.raises(OSError, match="5 workers have died of the lines from 3 on"):
            shards.begin(1)
    with shards.begun({}):
        shards.begin(1)  # another command tries anew


def test_a_run_that_is_trained_on_is_another(tmp_path):
    for name in ("run.json", "tokenizer/source.vocab", "model.weights.h5"):
        write_lines(tmp_path / name, ["a"])
    before = module.run_digest(tmp_path)
    for name in ("last.weights.h5", "model.weights.h5"):
        write_lines(tmp_path / name, ["b"])
        assert (module.run_digest(tmp_path) == before) is (name == "last.weights.h5")


def test_a_worker_that_outlives_its_folder_does_nothing_in_the_next_one(shards):
    """What it writes after its command has ended is not trusted."""
    former = Shards(shards.folder, shards.lines, shards.size)
    of_other = pytest.raises(OSError, match="parts is of other work now")
    with former.begun({"beam_width": 5}):
        pass
    former.remove()
    with shards.begun({"beam_width": 1}) as todo:
        shards.cut(todo, **{"in": TEXT})

        def lines():  # of a worker that had begun before
            yield from former.read(0, "in")

        with of_other:
            former.finish(0, lines(), {})
        with of_other:
            former.begin(0)
        assert not [*shards.folder.glob("000000.[!i]*")]
        work(shards, todo)
    again = Shards(shards.folder, shards.lines, shards.size)
    with again.begun({"beam_width": 1}) as todo:  # who goes on is of the same folder
        assert todo == []
    shards.finish(1, [b"as right as ours"], {})
    shards.remove()
    with of_other:
        shards.begin(0)
    shards = Shards(shards.folder, lines=2, size=1)
    shards.finish(0, [b"of other work"], {})  # without a plan
    with shards.begun({"lines": 2}) as todo:
        assert todo == [0, 1]


TEXTS = ["a b", None, "", "c\r\nd", "\u2028e\ufeff", "f"]


def parquet(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns).replace_schema_metadata({"by": "somebody"})
    pq.write_table(table, path, row_group_size=2)
    return path


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_a_parquet_file(tmp_path, kind):
    columns = {"id": [*range(6)], "text": pa.array(TEXTS, kind)}
    path = parquet(tmp_path / "in.parquet", **columns)
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


def test_a_folder_of_parquet(tmp_path):
    """But for what it hides."""
    files = {"b=1/1": ["c"], "_a=2/part": ["a", "b"], "empty": []}
    hidden = ("_temporary/0/part-1", ".part-0", "_metadata")
    for name, texts in {**files, **dict.fromkeys(hidden, ["x"])}.items():
        parquet(tmp_path / f"in/{name}.parquet", text=pa.array(texts, pa.string()))
    (tmp_path / "in" / "_SUCCESS").touch()
    texts = ParquetTexts(tmp_path / "in")
    assert [*texts.lines()] == [b"a", b"b", b"c"]
    values = ((x.decode(),) for x in texts.lines())
    out, digest = tmp_path / "out", survey(texts.lines()).digest
    texts.write(out, values, {"t": "string"}, digest)
    for name, said in files.items():
        assert pq.read_table(out / f"{name}.parquet")["t"].to_pylist() == said
    assert texts.is_written(out, ["t"])
    assert not texts.is_written(out, ["t", "score"])
    assert not texts.is_written(tmp_path / "none", ["t"])
    parquet(out / "_a=2/part.parquet", text=["a"], t=["a"])
    assert not texts.is_written(out, ["t"])


OTHER_TEXTS = [*((x, 3) for x in ("cba", "bc", "", "abcd", "abx")), ("abc", 2)]


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("now, values", OTHER_TEXTS)
def test_other_texts_in_parquet_are_refused(now, values, folder, tmp_path):
    """And each text has a value, and each value a text."""
    path = parquet(tmp_path / "in" / "a.parquet", text=pa.array(["a", "b", "c"]))
    texts = ParquetTexts(path.parent if folder else path)
    digest = survey(texts.lines()).digest
    parquet(path, text=pa.array([*now], pa.string()))
    for number in (values, len(now) + 1):
        said = iter([("A",)] * number)
        with pytest.raises(OSError, match="was changed meanwhile"):
            texts.write(tmp_path / "out.parquet", said, {"t": "string"}, digest)
    assert [x.name for x in tmp_path.iterdir()] == ["in"]


def test_which_column_of_parquet(tmp_path):
    path = parquet(tmp_path / "in.parquet", de=["a"], en=["b"], n=[1])
    assert [*ParquetTexts(path, "en").lines()] == [b"b"]
    with pytest.raises(ValueError, match=r"one column of strings.*\['de', 'en'\]"):
        ParquetTexts(path)
    with pytest.raises(ValueError, match="no column of strings 'n'"):
        ParquetTexts(path, "n")
    with pytest.raises(ValueError, match="a column 'de' already"):
        ParquetTexts(path, "en").check_new_columns(["translation", "de"])


def test_what_is_parquet(tmp_path):
    path = tmp_path / "in" / "a.parquet"
    (tmp_path / "no.parquet").mkdir()
    with pytest.raises(ValueError, match="no.parquet holds no Parquet files"):
        ParquetTexts(tmp_path / "no.parquet")
    path.parent.mkdir()
    assert not is_parquet(path.parent)
    path.write_bytes(b"no")
    named = [is_parquet(x) for x in (path, path.parent, "in.en")]
    assert named == [True, True, False]
    with pytest.raises(ValueError, match="is not Parquet, or damaged"):
        ParquetTexts(path)
