"""Scripts without spaces between words."""

import pytest

from keras_luong.text.words import is_unspaced


@pytest.mark.parametrize("letter", "中々あアｱไລខမབ")
def test_letters_of_scripts_without_spaces(letter):
    assert is_unspaced(letter)


@pytest.mark.parametrize("letter", "aßжαא한अ。、！1 \u2028\x00\ue000")
def test_letters_of_others_and_what_is_no_letter(letter):
    assert not is_unspaced(letter)
