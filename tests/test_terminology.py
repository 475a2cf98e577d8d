"""Terms are whole words, the longest first; a file of them is two columns."""

import gzip

import pytest

from keras_luong.text import Terminology

TERMS = Terminology(
    {
        "dog": "Hund",
        "US": "USA",
        "us": "uns",
        "fire truck": "Feuerwehrauto",
        "truck": "Laster",
        "Turkey": "Türkei",
        "turkey": "Truthahn",
        "T-shirt": "T-Shirt",
        "कुत्ता": "Hund!",
        "क": "k",
    }
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("A dog.", ["Hund"]),
        ("Dog (dog), dog!", ["Hund"]),
        ("Dogs in doghouses and hotdogs, DOG", []),
        (b"a dog\xff and\ta dog", ["Hund"]),
        ("for us in the US", ["uns", "USA"]),
        ("a fire  truck", ["Feuerwehrauto"]),
        ("a fire, truck", ["Laster"]),
        ("a truck behind a fire truck", ["Laster", "Feuerwehrauto"]),
        ("Turkey, turkey", ["Türkei", "Truthahn"]),
        ("a T-shirt", ["T-Shirt"]),
        ("<us> a dog", ["Hund"]),
        ("a <us>", ["uns"]),
        ("यह कुत्ता।", ["Hund!"]),
    ],
)
def test_what_a_text_has(text, found):
    assert TERMS.find(text) == found


def test_a_file(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_bytes("\ufeffdog\tHund\r\n\nred  jacket\trote Jacke\n".encode())
    assert Terminology.load(path).find("A red jacket") == ["rote Jacke"]
    packed = tmp_path / "terms.tsv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert Terminology.load(packed).terms == Terminology.load(path).terms


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dog\tHund\ncat Katze\n", "line 2, must be .* a tab .*'cat Katze'"),
        ("dog\t\n", "line 1, must be"),
        ("a\tb\tc\n", "line 1, must be"),
        ("dog\tHund\ndog\tKöter\n", "two target terms for 'dog': 'Hund', and 'Köter'"),
    ],
)
def test_a_file_that_is_none(tmp_path, content, message):
    path = tmp_path / "terms.tsv"
    path.write_text(content, "utf-8")
    with pytest.raises(ValueError, match=message):
        Terminology.load(path)


@pytest.mark.parametrize(
    ("terms", "error"),
    [(["dog"], TypeError), ({"dog": 3}, TypeError), ({" ": "Hund"}, ValueError)],
)
def test_wrong_terms(terms, error):
    with pytest.raises(error, match="Received"):
        Terminology(terms)
