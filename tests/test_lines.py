"""What the clients and the scripts of export/ read and write."""

import gzip
import io
from types import SimpleNamespace

import pytest
from export_scripts import export_script

lines = export_script("lines")


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    "content, expected",
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"\xef\xbb\xbfa\r\n\xef\xbb\xbfb\n", [b"a", b"\xef\xbb\xbfb"]),
        (b"\xef\xbb\xbf", []),
        (b"a\rb\rc\nd\r\r\n", [b"a\rb\rc", b"d"]),
        ("a\rb\n\u2028c\x0b\0\n".encode(), [b"a\rb", "\u2028c\x0b\0".encode()]),
    ],
)
def test_only_line_feeds_end_a_line(content, expected, pack, tmp_path):
    assert list(lines.read_lines(io.BytesIO(pack(content)))) == expected
    path = tmp_path / "x.txt"
    path.write_bytes(pack(content))
    assert lines.read_file(path) == expected


TWICE = gzip.compress(gzip.compress(b"a\n", mtime=0), mtime=0)


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "No such file"),
        (b"a\n\xff\n", "line 2 is not UTF-8"),
        (gzip.compress(b"a\n", mtime=0)[:-6], "damaged gzip: it ends too early"),
        (
            gzip.compress(b"a\n", mtime=0) + b"x",
            "damaged gzip: there are other bytes b",
        ),
        (
            gzip.compress(b"a\n", mtime=0)[:-8] + bytes(8),
            "damaged gzip: its content is",
        ),
        (b"a\rb", "its lines seem to end"),
        (b"a\rb\rc\n", "its lines seem to end"),
        ("a\n".encode("utf-16"), "the input is UTF-16"),
        (TWICE, "gzip within gzip: unpack it once"),
    ],
)
def test_what_cannot_be_read_is_named(content, message, tmp_path):
    path = tmp_path / "x.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit, match=f"x.txt cannot be read: .*{message}"):
        lines.read_pairs(path, path)


def test_standard_input_that_cannot_be_read(monkeypatch):
    standard = SimpleNamespace(buffer=io.BytesIO(TWICE))
    monkeypatch.setattr(lines.sys, "stdin", standard)
    with pytest.raises(SystemExit, match="Standard input cannot be read: .*gzip with"):
        list(lines.read_input())


def test_sentences_need_as_many_translations(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a\n")
    two.write_text("b\nc\n")
    assert lines.read_pairs(one, one) == (["a"], ["a"])
    with pytest.raises(SystemExit, match="one has 1 lines and .*two 2; they must be"):
        lines.read_pairs(one, two)


def test_an_answer_is_a_line():
    assert lines.one_line("a\u2028b\n\rc\x85") == b"a b  c\n"


@pytest.mark.parametrize("count, said", [(0, ""), (2, "2 of 5 lines are longer than")])
def test_what_was_left_out_is_said(count, said, capsys):
    lines.say_truncated(count, 5)
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(said) and bool(err) == bool(said)
