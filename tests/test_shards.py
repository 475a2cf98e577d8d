"""Parts that outlive a process: what is cut is whole again, and other work refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_luong.files import write_lines
from keras_luong.runs import shards as module
from keras_luong.runs.shards import MOST, TRIES, Shards, shard_size, survey, unchanged

LINES = [b"a", b"", b"\xef\xbb\xbfb", b"c\rd\r", b"\x1f\x8be", b"\xff\xfef", b"\0"]


@given(lines=st.integers(0, 10**10), window=st.integers(1, 10**5))
def test_shards_are_of_whole_windows_and_not_too_many(lines, window):
    size = shard_size(lines, window)
    shards = Shards("x", lines, size)
    assert size % window == 0 and size >= window and len(shards.numbers) <= MOST
    assert size == window or lines > MOST * window


@given(lines=st.integers(0, 300), size=st.integers(1, 40))
def test_each_line_is_of_one_shard(lines, size):
    shards = Shards("x", lines, size)
    lengths = [shards.length(number) for number in shards.numbers]
    assert sum(lengths) == lines and all(lengths)
    assert lengths[:-1] == [size] * (len(lengths) - 1)


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
    for number in todo:
        part = slice(number * size, (number + 1) * size)
        assert [*shards.read(number, "in")] == lines[part]
        assert [*shards.read(number, "with")] == lines[::-1][part]


def work(shards, todo):
    for number in todo:
        shards.begin(number)
        lines = [line + b"!" for line in shards.read(number, "in")]
        shards.finish(number, lines, {"shard": number})


TEXT = [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("lines", [[], TEXT[:4], [*TEXT, b"f"], TEXT[::-1]])
def test_text_that_is_another_when_it_is_read_again_is_refused(lines, tmp_path):
    shards = Shards(tmp_path / "parts", lines=5, size=2)
    digest = survey(TEXT).digest
    with shards.begun({}) as todo, pytest.raises(OSError, match="is another one"):
        shards.cut(todo, **{"in": unchanged(lines, digest)})
    with shards.begun({}) as todo:  # nothing of it is taken for the right text
        assert {x.name for x in shards.folder.iterdir()} == {"plan.json", ".lock"}
        shards.cut(todo, **{"in": unchanged(TEXT, digest)})
        assert [*shards.read(0, "in"), *shards.read(2, "in")] == [b"a", b"b", b"e"]
        shards.path(0, "in").unlink()
        with pytest.raises(OSError, match="is another one"):  # behind all missing ones
            shards.cut([0], **{"in": unchanged([*TEXT[:4], b"x"], digest)})


@pytest.mark.parametrize("lines", [4, 6])
def test_a_side_of_another_length_is_refused(lines, tmp_path):
    shards = Shards(tmp_path / "parts", lines=5, size=2)
    with shards.begun({}) as todo, pytest.raises(OSError, match="is another one"):
        shards.cut(todo, **{"in": TEXT, "with": [b"a"] * lines})


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


def test_parts_that_are_half_removed_are_no_work_to_do(tmp_path, monkeypatch):
    shards = Shards(tmp_path / "parts", len(LINES), 2)
    with shards.begun({}) as todo:
        shards.cut(todo, **{"in": LINES})
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
        assert todo == [0, 1, 2, 3]  # a new command's
    assert [*tmp_path.iterdir()] == [shards.folder]


def test_other_work_is_refused(tmp_path):
    shards = Shards(tmp_path / "parts", 2, 1)
    with shards.begun({"input": [1, 2], "beam_width": 5, "tag": (1,)}):
        pass
    with pytest.raises(ValueError, match="differs in beam_width, input. .*begin anew"):
        with shards.begun({"input": [1, 3], "beam_width": 4, "tag": (1,)}):
            pass


def test_two_processes_do_not_share_a_folder(tmp_path):
    shards = Shards(tmp_path / "parts", 2, 1)
    with shards.begun({}), pytest.raises(OSError, match="Another process works in"):
        with shards.begun({}):
            pass


def test_a_shard_that_kills_its_workers_is_given_up(tmp_path):
    shards = Shards(tmp_path, 2, 1)
    for _ in range(TRIES):
        shards.begin(1)
    with pytest.raises(OSError, match="have died of the lines from 2 on"):
        shards.begin(1)
    with shards.begun({}):
        shards.begin(1)  # another command tries anew


def test_an_error_half_way_leaves_no_part(tmp_path):
    def lines():
        yield b"a"
        raise RuntimeError("half-way")

    shards = Shards(tmp_path, 2, 2)
    with pytest.raises(RuntimeError, match="half-way"):
        shards.finish(0, lines(), {})
    assert not [*tmp_path.iterdir()]


def test_a_run_that_is_trained_on_is_another(tmp_path):
    for name in ("run.json", "tokenizer/source.vocab", "model.weights.h5"):
        write_lines(tmp_path / name, ["a"])
    before = module.run_digest(tmp_path)
    write_lines(tmp_path / "last.weights.h5", ["b"])
    assert module.run_digest(tmp_path) == before
    write_lines(tmp_path / "model.weights.h5", ["b"])
    assert module.run_digest(tmp_path) != before


def test_parts_without_a_plan_are_not_trusted(tmp_path):
    """A worker that was cut off may write after its command has ended."""
    shards = Shards(tmp_path / "parts", lines=2, size=1)
    shards.finish(0, [b"of other work"], {})
    with shards.begun({"lines": 2}) as todo:
        assert todo == [0, 1]


def test_a_worker_that_outlives_its_folder_does_nothing_in_the_next_one(tmp_path):
    former, shards = (Shards(tmp_path / "parts", lines=2, size=1) for _ in range(2))
    with former.begun({"beam_width": 5}):
        pass
    former.remove()
    with shards.begun({"beam_width": 1}) as todo:
        shards.cut(todo, **{"in": [b"a", b"b"]})

        def lines():  # of a worker that had begun before
            yield from former.read(0, "in")

        with pytest.raises(OSError, match="parts is of other work now"):
            former.finish(0, lines(), {})
        with pytest.raises(OSError, match="parts is of other work now"):
            former.begin(0)
        assert not [*shards.folder.glob("000000.[!i]*")]
        work(shards, todo)
    shards.remove()
    with pytest.raises(OSError, match="parts is of other work now"):
        shards.begin(0)


def test_who_goes_on_is_of_the_same_folder(tmp_path):
    former, shards = (Shards(tmp_path / "parts", lines=1, size=1) for _ in range(2))
    with former.begun({}):
        pass
    with shards.begun({}):
        former.finish(0, [b"as right as ours"], {})
    assert shards.is_done(0)
