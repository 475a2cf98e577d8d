import pytest

from keras_luong.text.languages import (
    _ROWS,
    _SHORTER,
    NAMES,
    is_language,
    looks_like_code,
    means,
    shortest,
)


@pytest.mark.parametrize(
    "text", ["en", "EN", "pt-BR", "zh_Hans", "English", " de ", "deu"]
)
def test_languages(text):
    assert is_language(text)


@pytest.mark.parametrize("text", ["", "Go.", "tsv", "xx", "source", "engl", "de."])
def test_what_is_no_language(text):
    assert not is_language(text)


def test_codes_at_the_end_of_names():
    endings = ["en", "deu", "pt-BR", "zh_Hans", "txt", "e", "7", "ids", "english"]
    found = [looks_like_code(x) for x in endings]
    assert found == [True] * 4 + [False] * 5


def test_a_name_means_one_language():
    assert len(set(NAMES.values())) == len(NAMES) > 70
    assert all(looks_like_code(code) for code in NAMES)
    assert means("German", "de-AT") and not means("German", "en")
    assert not means("xx", "yy") and means("XX", "xx")
    assert means("deu", "de") and means("de", "ger") and means("zho_Hans", "zh-Hans")
    assert not means("deu", "en") and not means("zho", "zh-Hans")


def test_codes_of_three_letters_are_of_one_language():
    assert len({*_SHORTER}) == sum(len(row[1].split("/")) for row in _ROWS) > 80
    assert {shortest(code) for code in _SHORTER} == {*NAMES}
    assert all(len(code) == 3 for code in _SHORTER)
