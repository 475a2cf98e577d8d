"""Scores by the length of the source."""

import pytest

from keras_luong.evaluation.scores import (
    bleu,
    by_length,
    chrf,
    length_groups,
    length_unit,
)


def test_sentences_are_grouped_by_source_words():
    sources = ["w " * n for n in (10, 11, 0, 50, 51, 300)]
    groups = [(group.label, group.rows) for group in length_groups(sources)]
    assert groups == [
        ("up to 10", [0, 2]),
        ("11 to 15", [1]),
        ("31 to 50", [3]),
        ("over 50", [4, 5]),
    ]


def test_groups_of_fewer_than_30_sentences_are_small():
    [few] = length_groups(["a"] * 29)
    [enough] = length_groups(["a"] * 30)
    assert few.is_small and not enough.is_small


def test_scripts_without_spaces_are_counted_in_characters():
    assert length_unit(["a dog", "犬"]) == "words"
    assert length_unit(["a dog", "公園で犬が走る"]) == "characters"
    assert length_unit(["개가 공원에서 달린다", "", "!"]) == "words"
    groups = length_groups(["公園で 犬が走る。", "犬" * 11])
    assert [(group.label, group.rows) for group in groups] == [
        ("up to 10", [0]),
        ("11 to 15", [1]),
    ]


def test_each_group_has_its_scores():
    texts = ["a b c d", "e f g h i", "x"]
    sources = ["w " * 4, "w " * 12, "w " * 3]
    references = ["a b c d", "e f g h x", "y"]
    short, long = by_length(texts, references, sources, "none")
    some = texts[::2], references[::2]
    assert short[1:] == (bleu(*some, "none").score, chrf(*some).score)
    assert long[1:] == (bleu(texts[1:2], references[1:2], "none").score, *long[2:])
    assert 0 < long[2] < 100


def test_tokenised_text_is_told_of_once_and_not_by_group(caplog):
    texts = ["a b c ."] * 120
    bleu(texts, texts)
    assert caplog.text.count("you forgot to detokenize") == 1
    by_length(texts, texts, texts)
    assert caplog.text.count("you forgot to detokenize") == 1


@pytest.mark.parametrize(
    "sides", [(["a"], ["a"], ["b", "c"]), (["a", "b"], ["a"], "b")]
)
def test_sides_of_other_lengths_are_refused(sides):
    with pytest.raises(ValueError, match="2 hypotheses, 1 references"):
        by_length(*sides)


def test_one_string_is_refused():
    with pytest.raises(TypeError, match="sources must be a list"):
        length_groups("a dog")
