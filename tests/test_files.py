"""Reading lines; writing files and directories beside, then renamed."""

import gc
import io
import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from export_scripts import export_script
from hypothesis import assume, given
from hypothesis import strategies as st
from odd_rows import packed

from keras_luong import files
from keras_luong.files import read_lines, read_raw_lines, write_lines
from keras_luong_edge import lines as edge_lines

serving = export_script("lines")  # of the clients and the scripts
READERS = {"files": read_raw_lines, "edge": edge_lines.read_lines}
READERS["serving"] = serving.read_lines
every_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)
BOM = "\ufeff".encode()


LINES = [
    (b"", []),
    (b"\n", [b""]),
    (b"a\n\nb", [b"a", b"", b"b"]),
    (b"a\r\nb\r\n", [b"a", b"b"]),
    (b"a\rb\n", [b"a\rb"]),
    (b"a\rb\rc\r\nd", [b"a\rb\rc", b"d"]),
    (b"a\r\r\n", [b"a"]),  # as a program writes that changes CR LF once more
    (b"\r\r", []),
    (b"a\n\r", [b"a"]),  # as TensorFlow counts
    (BOM, []),
    (BOM + b"a\r\n" + BOM + b"b\n", [b"a", BOM + b"b"]),
    (BOM + BOM + b"a\n", [BOM + b"a"]),
    (b"\xff\n\0\r\n", [b"\xff", b"\0"]),  # raw lines may be anything
    (b"\0\0\0\0\na", [b"\0\0\0\0", b"a"]),
    (BOM + b"the\0dog \0\n", [b"the\0dog \0"]),
    (b"the dog\0\0 ran\na", [b"the dog\0\0 ran", b"a"]),
    *(
        (b"\n".join([x] * 99), [x] * 99)  # of a program they have too few
        for x in (b"\xff", b"\x1b[1mbold\x1b[0m", b"\xe9 \xe0 \xfc")
    ),
    *((x.encode() + b"\n", [x.encode()]) for x in ["a\u2028b\x0bc\x0cd\x85e\u2029f"]),
]


@pytest.mark.parametrize("pack", [bytes, packed])
@pytest.mark.parametrize("content, lines", LINES)
@every_reader
def test_only_line_feeds_end_a_line(read, content, lines, pack):
    """Of streams that cannot be rewound."""
    stream, begun = io.BytesIO(pack(content)), io.BytesIO(pack(content))
    stream.name, stream.seek = "memory", None
    assert [*read(stream)] == lines
    assert next(read(begun), b"") == (lines or [b""])[0]


@every_reader
def test_streams_stay_open(read):
    stream, begun = io.BytesIO(b"a\nb"), io.BytesIO(b"a\nb")
    assert [*read(stream)] == [b"a", b"b"] and next(read(begun)) == b"a"
    gc.collect()
    assert not stream.closed and not begun.closed


@pytest.mark.parametrize("between", [b"", packed(b""), bytes(4), bytes(512)])
@every_reader
def test_gzip_of_several_members(read, between):
    """Empty ones, and zeros as of tapes, between them and at the end."""
    content = packed(b"one\ntwo\n") + between + packed(b"three\n") + between
    assert [*read(io.BytesIO(content))] == [b"one", b"two", b"three"]


@pytest.mark.parametrize("name", ["plain", "packed.gz", "packed"])
def test_a_file_is_read_by_its_path_too(name, tmp_path):
    content = BOM + "ä\r\n\nb\x85\u2028".encode()
    path, lines = tmp_path / name, ["ä", "", "b\x85\u2028"]
    path.write_bytes(content if name == "plain" else packed(content))
    assert [*read_lines(path)] == [*read_lines(str(path))] == lines
    assert serving.read_file(path) == [line.encode() for line in lines]
    assert files.count_lines(path) == 3
    with path.open("rb") as stream:
        assert [*read_lines(stream)] == lines and not stream.closed


@every_reader
def test_a_line_is_there_before_the_next_one(read):
    """Whoever types lines waits for the answer to the first one."""
    reader, writer = os.pipe()
    with open(reader, "rb") as stream, open(writer, "wb", buffering=0) as typed:
        typed.write(b"the\rdog\n")
        lines = read(stream)
        assert next(lines) == b"the\rdog"
        typed.write(b"b")
        typed.close()
        assert [*lines] == [b"b"]


MAC = "is one line with carriage returns within: its lines seem to end with them"
NOISE = random.Random(0).randbytes(5000)
PROGRAM = b"\x7fELF\2\1\1" + b"\0" * 9 + b"\3\0>\0\1\0\0\0" * 99


NO_TEXTS = [
    (packed(packed(b"a\n" * 1000)), "is gzip within gzip: unpack it"),
    (packed(b"a\n")[:-6], "is damaged gzip: .*ends too early"),
    (packed(b"a\n" * 999)[:15], "is damaged gzip: .*ends too early"),
    (packed(b"a\nb\n") + b"garbage", "is damaged gzip: .*other bytes behind"),
    (packed(b"a\nb\n")[:-8] + bytes(8), r"is damaged gzip: .*is wrong \(CRC"),
    *((x, MAC) for x in (b"a\rb", b"a\rb\r", b"a\rb\r\n", b"a\rb\rc\n")),
    (packed(b"a\rb\r\n"), MAC),
    *((x, "is no text") for x in (NOISE, packed(NOISE), PROGRAM)),
    (b"PK\3\4\x14\0\0\0\x08\0" + bytes(range(256)) * 9, "is no text"),
    (b"\0" * 9999, "is no text"),  # in one line, which is not read
]


@pytest.mark.parametrize("content, message", NO_TEXTS)
@every_reader
def test_what_is_no_text_of_lines_is_refused(read, content, message):
    with pytest.raises(ValueError, match=f"[Tt]he input {message}"):
        [*read(io.BytesIO(content))]


ENCODINGS = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["unmarked", "marked"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@every_reader
def test_utf_16_and_utf_32_are_named(read, encoding, mark):
    """As some shells on Windows write them: they were read as lines of nonsense."""
    name = encoding.upper()[:6] + ("" if mark else encoding.upper()[7:])
    message = f"is {name}, and not UTF-8.*iconv -f {name} -t UTF-8"
    texts = ["a dog\na cat\n", "un été\n", "рыжая собака и кот\nкот\n"]
    if mark or "32" in encoding:  # in two bytes a NUL is a letter too
        texts.append("a")
    for text in texts:
        with pytest.raises(ValueError, match=message):
            [*read(io.BytesIO((mark + text).encode(encoding)))]


SPOILT = [
    ("x", b"a\nb\xc3\nc", r"/x is not UTF-8: line 2 has the byte 0xc3"),
    ("x", b"a\nb\xc3", r"/x is not UTF-8: line 2 .*unexpected end"),
    ("x.gz", b"a\n", r"/x\.gz is not gzip, though its name ends in"),
    ("x", packed(b"a\n")[:-6], r"/x is damaged gzip: after line 1 the file ends"),
    ("x", packed(b"a\nb\n") + b"x", r"/x is damaged gzip: after line 2 there are"),
]


@pytest.mark.parametrize("name, content, message", SPOILT)
def test_the_file_and_the_line_are_named(name, content, message, tmp_path):
    path = tmp_path / name
    with pytest.raises(FileNotFoundError, match=name):
        list(read_lines(path))
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_lines(path))


UNREADABLE = [
    (None, "No such file"),
    (b"a\n\xff\n", "line 2 is not UTF-8"),
    (packed(b"a\n") + b"x", "damaged gzip: there are other bytes b"),
]


@pytest.mark.parametrize("content, message", UNREADABLE)
def test_scripts_name_what_they_cannot_read(content, message, tmp_path):
    path = tmp_path / "x.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit, match=f"x.txt cannot be read: .*{message}"):
        serving.read_pairs(path, path)


def test_scripts_read_standard_input_and_say_what_they_left_out(monkeypatch, capsys):
    standard = SimpleNamespace(buffer=io.BytesIO(b"a\n"))
    monkeypatch.setattr(serving.sys, "stdin", standard)
    assert [*serving.read_input()] == [b"a"]
    standard.buffer = io.BytesIO(packed(packed(b"a\n")))
    with pytest.raises(SystemExit, match="Standard input cannot be read: .*gzip with"):
        list(serving.read_input())
    for count, said in ((0, ""), (2, "2 of 5 lines are longer than")):
        serving.say_truncated(count, 5)
        out, err = capsys.readouterr()
        assert out == "" and err.startswith(said) and bool(err) == bool(said)


def test_pairs(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    write_lines(one, ["a"])
    write_lines(two, ["b", "c"])
    for read in (files.read_pairs, serving.read_pairs):
        assert read(one, one) == (["a"], ["a"])
    for pair in ((one, two), (two, one)):
        with pytest.raises(ValueError, match="two has 2 lines and .*one has 1: line 2"):
            files.read_pairs(*pair)
    with pytest.raises(SystemExit, match="one has 1 lines and .*two 2; they must be"):
        serving.read_pairs(one, two)


def test_an_answer_is_one_line():
    assert serving.one_line("a\u2028b\n\rc\x85") == b"a b  c\n"
    assert files.one_line("a\u2028b\r\nc\x85") == "a b c"


@given(st.lists(st.sampled_from([*map(str.encode, "aä\n\n\r \u2028\ufeff")])))
@every_reader
def test_lines_are_what_line_feeds_part(read, letters):
    content = b"x" + b"".join(letters)
    inside = content.rstrip(b"\r\n")
    assume(b"\n" in inside or b"\r" not in inside)  # as of old Macs
    *lines, rest = (line.rstrip(b"\r") for line in content.split(b"\n"))
    assert [*read(io.BytesIO(content))] == lines + [rest] * bool(rest)


def test_lines_come_back(tmp_path):
    lines = ["a", "", "b\rc\u2028", "\ufeff\t"]
    text = "a\n\nb\rc\u2028\n\ufeff\t\n".encode()
    write_lines(tmp_path / "x", lines)
    assert (tmp_path / "x").read_bytes() == text
    for name in ("y", "y.gz"):
        with files.saved_stream(tmp_path / name) as file:
            file.write(text)
        assert list(read_lines(tmp_path / name)) == lines
    assert (tmp_path / "y.gz").read_bytes().startswith(files.GZIP)
    assert (tmp_path / "y").read_bytes() == text


def failing():
    yield "new"
    raise OSError("disk full")


WRITERS = [lambda p: write_lines(p, failing()), lambda p: files.write_text(p, "\ud800")]


@pytest.mark.parametrize("write", WRITERS)
def test_a_failed_write_leaves_the_old_file(write, tmp_path):
    path = tmp_path / "new" / "x"
    files.write_text(path, "old\n")
    with pytest.raises((OSError, UnicodeError)):
        write(path)
    assert path.read_bytes() == b"old\n" and os.listdir(path.parent) == ["x"]


def test_a_file_or_directory_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "a.weights.h5"
    with files.saved_beside(path) as beside:
        beside.touch()
        assert beside.name.endswith(".a.weights.h5") and not path.exists()
        assert list(tmp_path.glob(files.TEMPORARY)) == [beside]
    assert os.listdir(tmp_path) == [path.name]
    path = tmp_path / "new" / "1"
    with files.saved_directory_beside(path) as beside:
        (beside / "a").touch()
        assert list(path.parent.glob(files.TEMPORARY)) == [beside]
    assert os.listdir(path.parent) == ["1"] and os.listdir(path) == ["a"]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o777 & ~umask  # others may read it


def test_a_directory_that_is_there_stays_or_is_replaced_whole(tmp_path, monkeypatch):
    """It comes back where the disk fails as the new one gets its name."""
    old, rename, errors = tmp_path / "1", Path.rename, [OSError("disk gone")]

    def fail(self, target):
        if target == old and errors:
            raise errors.pop()
        return rename(self, target)

    def kept(message, overwrite):
        with pytest.raises(OSError, match=message):
            with files.saved_directory_beside(old, overwrite) as beside:
                (beside / "new").touch()
                if message == "disk full":
                    raise OSError(message)
        return os.listdir(tmp_path) == ["1"] and os.listdir(old) == ["old"]

    files.write_text(old / "old", "")
    assert kept("disk full", True) and kept("disk full", False)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        assert kept("disk gone", True)
    for is_file in (False, True):
        if is_file:
            files.remove(old)
            old.write_text("old")
        with pytest.raises(FileExistsError, match="1 exists"):
            with files.saved_directory_beside(old):
                pass
        assert old.is_file() == is_file and os.listdir(tmp_path) == ["1"]
        with files.saved_directory_beside(old, overwrite=True) as beside:
            (beside / "new").touch()
        assert os.listdir(tmp_path) == ["1"] and os.listdir(old) == ["new"]
