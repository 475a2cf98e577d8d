"""Which files are a pair, and how plain their names are."""

import pytest
from corpus_folders import fill, found

from keras_luong.text.corpus import notes
from keras_luong.text.corpus_files import (
    OF_A_TABLE,
    TextFiles,
    files_of,
    tables_of,
    text_files,
)


@pytest.mark.parametrize(
    ("names", "split", "liberties"),
    [
        ("train.en, train.de", "train", 0),
        ("europarl.en, europarl.de", None, 0),
        ("a.tsv", None, OF_A_TABLE),
        ("train.tsv", "train", OF_A_TABLE),
    ],
)
def test_plain_names_take_no_liberties(names, split, liberties, tmp_path):
    fill(tmp_path, names)
    texts, halves = text_files(files_of(tmp_path), ("en", "de"))
    (pairs,) = texts or tables_of(files_of(tmp_path))
    assert (pairs.split, pairs.liberties) == (split, liberties)
    assert pairs.names(tmp_path) == names.replace(", ", " and ")
    assert not halves


def test_a_half(tmp_path):
    fill(tmp_path, "train.en, words.de, test.de.gz")
    texts, halves = text_files(files_of(tmp_path), ("en", "de"))
    assert not texts
    found_halves = {half.split: half.side.language for half in halves}
    assert found_halves == {"train": "en", "test": "de"}


@pytest.mark.parametrize(
    "other",
    [
        "train.EN, train.DE",
        "train.en.txt",
        "small.train.en, small.train.de",
        "train/a.en, train/a.de",
        "train/en.txt, train/de.txt",
        "val-en, val-de, val_de",
        "en/train.txt, de/train.txt, en/val.txt",
        "en.txt, de.txt, German.txt",
        "train.tsv",
        "europarl.en, europarl.de",
        "test_results.tsv",
        "test.en.txt",
        "val.en.txt",
        "x.test.en",
        "._train.en, ._train.de, .1-a.test.en, .1-a.test.de",
    ],
)
def test_the_plainest_name_is_meant(other, tmp_path):
    """What was read when there were no other readings is read as it was."""
    fill(tmp_path, f"train.en, train.de, val.en, val.de, {other}")
    expected = {"train": "train.en train.de", "validation": "val.en val.de"}
    assert found(tmp_path, "en", "de") == expected


@pytest.mark.parametrize(
    "other",
    [
        "words_en.txt, words_de.txt",
        "en.txt, de.txt",
        "vocab-en, vocab-de",
        "en/words.txt, de/words.txt",
        "words.tsv",
    ],
)
def test_the_plainest_pair_is_the_training_split(other, tmp_path):
    fill(tmp_path, f"europarl.en, europarl.de, {other}")
    assert found(tmp_path, "en", "de") == {"train": "europarl.en europarl.de"}
    said = notes(TextFiles.from_directory(tmp_path, "en", "de"))["not read"]
    assert said == f"['{other.replace(', ', ' and ')}']"


@pytest.mark.parametrize("other", ["train/en.txt, train/de.txt", "train-en, train-de"])
def test_two_pairs_of_a_split_are_kept_apart(other, tmp_path):
    fill(tmp_path, f"train.en, train.de, {other}")
    assert found(tmp_path, "en", "de") == {"train": "train.en train.de"}
    said = notes(TextFiles.from_directory(tmp_path, "en", "de"))["not read"]
    assert said == f"['{other.replace(', ', ' and ')}']"


def test_tables_are_plainer_than_folders_of_languages(tmp_path):
    others = "en/train.txt, de/train.txt, en/val.txt, de/val.txt"
    fill(tmp_path, f"train.tsv, val.tsv, {others}", lines=("a\tb",))
    expected = {"train": "train.tsv", "validation": "val.tsv"}
    assert found(tmp_path, "en", "de") == expected
