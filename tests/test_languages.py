import pytest

from keras_luong.languages import language_code, standard_code


@pytest.mark.parametrize(
    ("code", "standard"),
    [
        ("EN", "en"),
        ("pt_BR", "pt-BR"),
        ("por-br", "pt-BR"),
        ("zho_Hans", "zh-Hans"),
        ("ger", "de"),
        ("yue", "yue"),
        ("xx", "xx"),
        ("fil", "tl"),
        ("Go.", "go."),
        ("", ""),
    ],
)
def test_one_way_to_write_a_code(code, standard):
    assert standard_code(code) == standard


def test_the_code_of_a_language_alone():
    codes = ["de-AT", "zh_Hant", "yue", "cmn", "jpn_Jpan", "Tok.en", "nb", "tl"]
    expected = ["de", "zh", "zh", "zh", "ja", "tok.en", "nb", "tl"]
    assert list(map(language_code, codes)) == expected
