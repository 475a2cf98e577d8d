"""Whatever the text, there is something to search for."""

import pytest

from keras_luong_edge.archive import Contents
from keras_luong_edge.source import Source, read_text
from keras_luong_edge.tokenizers import SpecialIds, WordTokenizer

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
        ("a b a b", Source([4, 5, 4, 3], True, False)),  # tokens
        ("a" * 12, Source([1, 3], False, False)),
        ("a" * 13, Source([1, 3], True, False)),  # bytes
        (" " * 99 + "a" + " " * 99, Source([4, 3], False, False)),
        ("a" * 10 + "漢", Source([1, 3], True, False)),  # cut within a letter
    ],
)
def test_texts(text, expected):
    assert read_text(text, CONTENTS) == expected


@pytest.mark.parametrize("text", [None, 3, ["a"], bytearray(b"a")])
def test_what_is_no_text(text):
    with pytest.raises(TypeError, match="A text must be str or bytes. Received: "):
        read_text(text, CONTENTS)


def test_limits_and_ids_are_the_files():
    contents = CONTENTS._replace(special=SpecialIds(eos=9), bytes_per_token=1)
    assert read_text("a b a", contents) == Source([4, 5, 9], True, False)
