"""Pieces and words, ids and text."""

import zipfile

import pytest

from keras_luong_edge.tokenizers import (
    SentencePieceTokenizer,
    SpecialIds,
    WordTokenizer,
)

VOCABULARY = b"<pad>\n<unk>\n<s>\n</s>\nder\nHund\n"


@pytest.fixture(scope="module")
def pieces(model):
    pytest.importorskip("sentencepiece")
    with zipfile.ZipFile(model) as archive:
        return SentencePieceTokenizer(archive.read("source.spm"), SpecialIds())


@pytest.fixture(scope="module")
def words():
    return WordTokenizer(VOCABULARY, SpecialIds())


@pytest.mark.parametrize(
    "text, ids",
    [
        ("der Hund", [4, 5]),
        (" \t der\x0b\x0cHund\r\n", [4, 5]),
        ("der\u00a0Hund", [1]),  # ASCII white space alone separates
        ("der Katze", [4, 1]),
        ("</s> <pad> <s> <unk>", [1, 1, 1, 1]),  # a text can have none of them
        ("", []),
    ],
)
def test_words_are_looked_up(words, text, ids):
    assert words.encode(text) == ids


def test_words_are_written(words):
    assert words.decode([2, 4, 0, 1, 5, 99, 3]) == "der <unk> Hund <unk>"
    assert words.pieces([2, 4, 0, 1, 99, 3]) == [
        "<s>",
        "der",
        "<pad>",
        "<unk>",
        "<unk>",
        "</s>",
    ]


def test_pieces_there_and_back(pieces):
    ids = pieces.encode("the red dog")
    assert pieces.decode([2, *ids, 3, 0]) == "the red dog"
    assert pieces.pieces([*ids, 3]) == ["▁the", "▁red", "▁dog", "</s>"]
    assert pieces.encode("") == []


def test_pieces_beyond_the_vocabulary_are_unknown(pieces):
    assert pieces.decode([9999]) == pieces.decode([1])
    assert pieces.pieces([9999]) == ["<unk>"]


def test_other_special_ids():
    other = SpecialIds(pad=5, unk=4, bos=3, eos=2)
    words = WordTokenizer(b"a\nb\n</s>\n<s>\n<unk>\n<pad>\nc\n", other)
    assert words.encode("a c d </s>") == [0, 6, 4, 4]
    assert words.decode([3, 0, 6, 99, 2, 5]) == "a c <unk>"


def test_vocabularies_that_are_none():
    with pytest.raises(ValueError, match="lacks special tokens"):
        WordTokenizer(b"<pad>\n<unk>\n", SpecialIds())
    with pytest.raises(UnicodeDecodeError):
        WordTokenizer(b"\xff\n" * 9, SpecialIds())


def test_models_that_are_none():
    pytest.importorskip("sentencepiece")
    with pytest.raises(ValueError, match="is empty"):
        SentencePieceTokenizer(b"", SpecialIds())
    with pytest.raises(RuntimeError):
        SentencePieceTokenizer(b"\xff" * 9, SpecialIds())
