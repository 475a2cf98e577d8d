"""Reading lines; writing files and directories beside, then renamed."""

import gc
import gzip
import io
import os
import random
from pathlib import Path

import pytest
from export_scripts import export_script
from hypothesis import given
from hypothesis import strategies as st

from keras_luong import files
from keras_luong.files import (
    count_lines,
    read_lines,
    read_pairs,
    read_raw_lines,
    saved_beside,
    saved_directory_beside,
    saved_stream,
    write_lines,
    write_text,
)
from keras_luong_edge import lines as edge_lines


@pytest.mark.parametrize(
    "content, lines",
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\rb\rc\r\nd", ["a\rb\rc", "d"]),
        (b"a\r\r\n", ["a"]),  # as a program writes that changes CR LF once more
        (b"\r\r", []),
        (b"a\n\r", ["a"]),  # as TensorFlow counts
        ("\ufeffa\n\ufeffb\n".encode(), ["a", "\ufeffb"]),
        ("\ufeff".encode(), []),
        (
            "a\u2028b\x0bc\x0cd\x85e\u2029f\0g\n".encode(),
            ["a\u2028b\x0bc\x0cd\x85e\u2029f\0g"],
        ),
    ],
)
@pytest.mark.parametrize("name", ["plain", "packed.gz", "packed"])
def test_only_line_feeds_end_a_line(content, lines, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(content if name == "plain" else gzip.compress(content))
    assert list(read_lines(path)) == lines
    assert list(read_lines(str(path))) == lines
    assert list(read_raw_lines(path)) == [line.encode() for line in lines]
    assert count_lines(path) == len(lines)
    with path.open("rb") as stream:
        assert list(read_lines(stream)) == lines
        assert not stream.closed


PACKED = gzip.compress(b"a\n" * 1000, mtime=0)


@pytest.mark.parametrize("content", [b"a\nb", gzip.compress(b"a\nb", mtime=0)])
def test_a_stream_that_cannot_be_rewound(content):
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    with open(reader, "rb") as stream:
        assert list(read_lines(stream)) == ["a", "b"]


def test_a_stream_in_memory():
    stream = io.BytesIO(b"a\nb\n")
    stream.name = "memory"
    assert list(read_lines(stream)) == ["a", "b"]


@pytest.mark.parametrize("read", [read_lines, export_script("lines").read_lines])
def test_a_line_is_there_before_the_next_one(read):
    """Whoever types lines waits for the answer to the first one."""
    reader, writer = os.pipe()
    with open(reader, "rb") as stream, open(writer, "wb", buffering=0) as typed:
        typed.write(b"the\rdog\n")
        assert next(read(stream)) in ("the\rdog", b"the\rdog")


def test_reads_no_further_than_asked(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"a\n\xff\n")
    assert next(read_lines(path)) == "a"


MAC = "/x is one line with carriage returns within: its lines seem to end with them"


@pytest.mark.parametrize(
    "name, content, error, message",
    [
        ("x", None, FileNotFoundError, "x"),
        ("x", b"a\nb\xc3\nc", ValueError, r"/x is not UTF-8: line 2 has the byte 0xc3"),
        ("x", b"a\nb\xc3", ValueError, r"/x is not UTF-8: line 2 .*unexpected end"),
        ("x", "a".encode("utf-16"), ValueError, r"/x is UTF-16"),
        (
            "x",
            gzip.compress(PACKED, mtime=0),
            ValueError,
            "/x is gzip within gzip: unpack it",
        ),
        ("x.gz", b"a\n", ValueError, r"/x\.gz is not gzip, though its name ends in"),
        (
            "x",
            gzip.compress(b"a\n", mtime=0)[:-6],
            ValueError,
            r"/x is damaged gzip: after line 1 the file ends too early\.$",
        ),
        (
            "x",
            gzip.compress(b"a\n" * 999, mtime=0)[:15],
            ValueError,
            r"/x is damaged gzip: after line \d+ the file ends too early\.$",
        ),
        (
            "x",
            gzip.compress(b"a\nb\n", mtime=0) + b"garbage",
            ValueError,
            r"/x is damaged gzip: after line 2 there are other bytes behind",
        ),
        (
            "x",
            gzip.compress(b"a\nb\n", mtime=0)[:-8] + bytes(8),
            ValueError,
            r"/x is damaged gzip: after line \d its content is wrong \(CRC",
        ),
        ("x", b"a\rb", ValueError, MAC),
        ("x", b"a\rb\r", ValueError, MAC),
        ("x", b"a\rb\r\n", ValueError, MAC),
        ("x", b"a\rb\rc\n", ValueError, MAC),
        ("x", gzip.compress(b"a\rb\r\n", mtime=0), ValueError, MAC),
    ],
)
def test_what_cannot_be_read_is_named(name, content, error, message, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=message):
        list(read_lines(path))


def test_raw_lines_may_be_anything(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\xff\n\0\r\n")
    assert list(read_raw_lines(path)) == [b"\xff", b"\0"]


@pytest.mark.parametrize("name", ["x", "x.gz"])
def test_a_stream_that_becomes_a_file(name, tmp_path):
    path = tmp_path / name
    with saved_stream(path) as file:
        file.write(b"a\n")
    assert path.read_bytes().startswith(files.GZIP) == (name == "x.gz")
    assert list(read_lines(path)) == ["a"]


def test_pairs(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    write_lines(one, ["a"])
    write_lines(two, ["b", "c"])
    assert read_pairs(one, one) == (["a"], ["a"])
    for files_ in ((one, two), (two, one)):
        with pytest.raises(ValueError, match="two has 2 lines and .*one has 1: line 2"):
            read_pairs(*files_)


#: Lines of text: what is control characters for the most part is refused.
LETTERS = st.characters(exclude_categories=["Cc", "Cs"], codec="utf-8")


@pytest.mark.slow
@given(st.lists(st.text(st.one_of(LETTERS, st.just("\t")))))
def test_lines_come_back(tmp_path_factory, lines):
    path = tmp_path_factory.getbasetemp() / "lines"
    write_lines(path, lines)
    if lines and lines[0].startswith("\ufeff"):
        lines[0] = lines[0][1:]
    assert list(read_lines(path)) == lines


def failing():
    yield "new"
    raise OSError("disk full")


@pytest.mark.parametrize(
    "write", [lambda p: write_lines(p, failing()), lambda p: write_text(p, "\ud800")]
)
def test_a_failed_write_leaves_the_old_file(write, tmp_path):
    path = tmp_path / "new" / "x"
    write_text(path, "old\n")
    with pytest.raises((OSError, UnicodeError)):
        write(path)
    assert path.read_bytes() == b"old\n" and os.listdir(path.parent) == ["x"]


def test_a_file_appears_when_it_is_written(tmp_path):
    path = tmp_path / "a.weights.h5"
    with saved_beside(path) as beside:
        beside.touch()
        assert beside.name.endswith(".a.weights.h5") and not path.exists()
        assert list(tmp_path.glob(files.TEMPORARY)) == [beside]
    assert os.listdir(tmp_path) == [path.name]


def test_a_directory_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "new" / "1"
    with saved_directory_beside(path) as beside:
        (beside / "a").touch()
        assert list(path.parent.glob(files.TEMPORARY)) == [beside]
    assert os.listdir(path.parent) == ["1"] and os.listdir(path) == ["a"]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o777 & ~umask  # others may read it


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_directory_that_fails_leaves_nothing(overwrite, tmp_path):
    path = tmp_path / "1"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(OSError, match="disk full"):
        with saved_directory_beside(path, overwrite) as beside:
            (beside / "new").touch()
            raise OSError("disk full")
    assert os.listdir(tmp_path) == ["1"] and os.listdir(path) == ["old"]


def make_file(path):
    path.write_text("old")


def make_directory(path):
    path.mkdir()
    (path / "old").touch()


@pytest.mark.parametrize("make", [make_file, make_directory])
def test_what_is_there_stays_or_is_replaced_whole(make, tmp_path):
    path = tmp_path / "1"
    make(path)
    with pytest.raises(FileExistsError, match="1 exists"):
        with saved_directory_beside(path):
            pass
    assert path.is_file() or os.listdir(path) == ["old"]
    with saved_directory_beside(path, overwrite=True) as beside:
        (beside / "new").touch()
    assert os.listdir(tmp_path) == ["1"] and os.listdir(path) == ["new"]


def test_a_failed_rename_brings_the_old_directory_back(tmp_path, monkeypatch):
    path = tmp_path / "1"
    make_directory(path)
    rename = Path.rename
    with pytest.raises(OSError, match="disk gone"):
        with saved_directory_beside(path, overwrite=True) as beside:

            def fail(self, target):
                if self == beside:
                    raise OSError("disk gone")
                return rename(self, target)

            monkeypatch.setattr(Path, "rename", fail)
    assert os.listdir(tmp_path) == ["1"] and os.listdir(path) == ["old"]


WIDE = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]
READERS = {
    "files": lambda stream: [*read_raw_lines(stream)],
    "edge": lambda stream: [*edge_lines.read_lines(stream)],
    "serving": lambda stream: [*export_script("lines").read_lines(stream)],
}
every_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["unmarked", "marked"])
@pytest.mark.parametrize(
    "text", ["a dog\na cat\n", "a", "un été\n", "рыжая собака и кот\nкот\n"]
)
@pytest.mark.parametrize("encoding", WIDE)
@every_reader
def test_utf_16_and_utf_32_are_named(read, encoding, text, mark):
    """As some shells on Windows write them: they were read as lines of nonsense."""
    if text == "a" and not mark and "16" in encoding:
        return  # a NUL is a letter too
    name = encoding.upper()[:6] + ("" if mark else encoding.upper()[7:])
    message = f"is {name}, and not UTF-8.*iconv -f {name} -t UTF-8"
    with pytest.raises(ValueError, match=message):
        read(io.BytesIO((mark + text).encode(encoding)))


@pytest.mark.parametrize(
    "line", [b"\0", b"\0\0\0\0", b"the\0dog \0", b"the dog\0\0 ran"]
)
@every_reader
def test_nuls_are_letters_too(read, line):
    assert read(io.BytesIO(line + b"\na\n")) == [line, b"a"]
    assert read(io.BytesIO(b"\xef\xbb\xbf" + line + b"\n")) == [line]


@pytest.mark.parametrize(
    "content",
    [
        random.Random(0).randbytes(5000),
        b"PK\3\4\x14\0\0\0\x08\0" + bytes(range(256)) * 9,
        b"\x7fELF\2\1\1" + b"\0" * 9 + b"\3\0>\0\1\0\0\0" * 99,
        gzip.compress(random.Random(0).randbytes(5000)),
        b"\0" * 9999,  # in one line, which is not read
    ],
    ids=["random", "zip", "program", "packed", "nothing"],
)
@every_reader
def test_c7_what_is_no_text_is_refused(read, content):
    with pytest.raises(ValueError, match="is no text"):
        read(io.BytesIO(content))


@every_reader
def test_one_byte_order_mark_is_dropped_and_no_more(read):
    mark = "\ufeff".encode()
    assert read(io.BytesIO(2 * mark + b"a\n")) == [mark + b"a"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@every_reader
def test_a_stream_stays_open(read, pack):
    stream = io.BytesIO(pack(b"a\nb\n"))
    assert read(stream) == [b"a", b"b"]
    gc.collect()
    assert not stream.closed


def test_a_stream_stays_open_if_not_all_is_read():
    stream = io.BytesIO(b"a\nb\n")
    assert next(read_lines(stream)) == "a"
    gc.collect()
    assert not stream.closed


def test_one_line():
    assert files.one_line("a\u2028b\r\nc\x85") == "a b c"
