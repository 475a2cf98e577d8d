"""Sides that are not in the languages that they should be in."""

from __future__ import annotations

import pytest

from keras_luong.text import load_corpus
from keras_luong.text.language_guess import Sides, alike, look_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sentences of the embedded corpus, in files named after other languages too."""
    corpus = load_corpus("phrases", "en", "de")
    directory = tmp_path_factory.mktemp("corpus")
    pairs = list(corpus.pairs("train").take(200).as_numpy_iterator())
    for side, names in {
        "source": ("en", "xx", "nl"),
        "target": ("de", "fr", "deu", "fra"),
    }.items():
        for name in names:
            text = b"\n".join(pair[side] for pair in pairs) + b"\n"
            (directory / f"train.{name}").write_bytes(text)
    return directory


@pytest.mark.parametrize(
    "languages, look",
    [
        pytest.param(("en", "de"), ("en", "de"), marks=pytest.mark.slow),
        pytest.param(("de", "en"), ("de", "en"), marks=pytest.mark.slow),
        (("nl", "fr"), ("en", "de")),
        pytest.param(("en", "deu"), ("en", "deu"), marks=pytest.mark.slow),
        pytest.param(("en", "fra"), ("en", "de"), marks=pytest.mark.slow),
        (("xx", "de"), (None, "de")),  # a language that is not known
    ],
)
def test_tells_languages(folder, languages, look):
    assert look_of(load_corpus(folder, *languages)) == Sides(*look)


def test_says_nothing_of_little_text(tmp_path):
    for language in ("en", "de"):
        for split in ("train", "val"):
            (tmp_path / f"{split}.{language}").write_text("a dog\n" * 9)
    assert look_of(load_corpus(tmp_path, "en", "de")) == Sides(None, None)


@pytest.mark.parametrize(
    "one, other, same",
    [("zh", "zh_Hans", True), ("no", "nb", True), ("fr", "en", False)],
)
def test_codes_of_one_language(one, other, same):
    assert alike(one, other) is alike(other, one) is same
