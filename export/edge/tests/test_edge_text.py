"""Text, pieces and words, ids: whatever the text, there is something to search for."""

import zipfile

import pytest

from keras_luong_edge.archive import Contents
from keras_luong_edge.source import Source, read_text
from keras_luong_edge.tokenizers import (
    SentencePieceTokenizer,
    SpecialIds,
    WordTokenizer,
)

WORDS = WordTokenizer(b"<pad>\n<unk>\n<s>\n</s>\na\nb\n", SpecialIds())
CONTENTS = Contents(
    metadata={},
    source=WORDS,
    target=WORDS,
    special=SpecialIds(),
    max_source_length=3,
    source_length=None,
    bytes_per_token=4,
)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a b", Source([4, 5, 3], False, False)),
        (b"a b", Source([4, 5, 3], False, False)),
        ("", Source([3], False, True)),
        (" \t\r\n", Source([3], False, True)),
        ("\u00a0\u3000", Source([1, 3], False, True)),  # no ASCII, but white space
        ("a\xffb", Source([1, 3], False, False)),
        (b"a \xff", Source([4, 1, 3], False, False)),
        ("a \ud800", Source([4, 1, 3], False, False)),
        ("a\0b", Source([1, 3], False, False)),
        ("a b a", Source([4, 5, 4, 3], False, False)),
        ("a b a b", Source([4, 5, 4, 3], True, False)),  # tokens
        ("a" * 12, Source([1, 3], False, False)),
        ("a" * 13, Source([1, 3], True, False)),  # bytes
        (" " * 99 + "a" + " " * 99, Source([4, 3], False, False)),
        ("a" * 10 + "漢", Source([1, 3], True, False)),  # cut within a letter
        (" \t a\x0b\x0cb\r\n", Source([4, 5, 3], False, False)),
        ("</s> <s>", Source([1, 1, 3], False, False)),  # a text can have none of them
    ],
)
def test_texts_are_read(text, expected):
    assert read_text(text, CONTENTS) == expected


@pytest.mark.parametrize("text", [None, 3, ["a"], bytearray(b"a")])
def test_what_is_no_text(text):
    with pytest.raises(TypeError, match="A text must be str or bytes. Received: "):
        read_text(text, CONTENTS)


def test_limits_and_ids_are_the_files():
    contents = CONTENTS._replace(special=SpecialIds(eos=9), bytes_per_token=1)
    assert read_text("a b a", contents) == Source([4, 5, 9], True, False)


def test_words_are_written():
    assert WORDS.decode([2, 4, 0, 1, 5, 6, 3]) == "a <unk> b <unk>"
    expected = ["<s>", "a", "<pad>", "<unk>", "<unk>", "</s>"]
    assert WORDS.pieces([2, 4, 0, 1, 6, 3]) == expected
    other = SpecialIds(pad=5, unk=4, bos=3, eos=2)
    words = WordTokenizer(b"a\nb\n</s>\n<s>\n<unk>\n<pad>\nc\n", other)
    assert words.encode("a c d </s>") == [0, 6, 4, 4]
    assert words.decode([3, 0, 6, 99, 2, 5]) == "a c <unk>"


def test_pieces_there_and_back(model):
    pytest.importorskip("sentencepiece")
    with zipfile.ZipFile(model) as archive:
        pieces = SentencePieceTokenizer(archive.read("source.spm"), SpecialIds())
    ids = pieces.encode("the red dog")
    assert pieces.decode([2, *ids, 3, 0]) == "the red dog"
    assert pieces.pieces([*ids, 3]) == ["▁the", "▁red", "▁dog", "</s>"]
    assert pieces.encode("") == []
    size = pieces._model.get_piece_size()
    assert pieces.decode([size]) == pieces.decode([1])
    assert pieces.pieces([size]) == ["<unk>"] != pieces.pieces([size - 1])


@pytest.mark.parametrize(
    "kind, vocabulary, error, message",
    [
        (WordTokenizer, b"<pad>\n<unk>\n<s>\n", ValueError, "lacks special tokens"),
        (WordTokenizer, b"\xff\n" * 9, UnicodeDecodeError, "utf-8"),
        (SentencePieceTokenizer, b"", ValueError, "is empty"),
        (SentencePieceTokenizer, b"\xff" * 9, RuntimeError, "."),
    ],
)
def test_vocabularies_that_are_none(kind, vocabulary, error, message):
    pytest.importorskip("sentencepiece")
    with pytest.raises(error, match=message):
        kind(vocabulary, SpecialIds())
