"""How probable given translations are."""

from __future__ import annotations

import numpy as np
import pytest
from copy_translator import make


def test_score_names_the_side_that_was_cut():
    translator = make(max_source_length=3)
    sources, targets = (
        ["one", "two " * 4, "", "one"],
        ["eins " * 16, "zwei"] + 2 * ["eins " * 17],
    )
    expected = {
        "1 of 4 texts have more than max_source_length=3 tokens: only their "
        "beginnings were read.",
        "1 of 4 targets have more than max_target_length=16 tokens: only their "
        "beginnings were read.",
    }
    with pytest.warns(UserWarning) as said:
        found = translator.score(sources, targets)
    assert [t.truncated for t in found] == [False, True, False, True]
    assert {str(x.message) for x in said} == expected and len(said) == 2
    assert {x.filename for x in said} == {__file__}
    with pytest.warns(UserWarning) as said:
        again = list(translator.score_stream(sources, targets, window=1))
    assert {str(x.message) for x in said} == expected and len(said) == 2
    assert [t.truncated for t in again] == [t.truncated for t in found]


def test_streams_of_pairs_must_be_equally_long():
    pairs = make().score_stream(["one", "two"], iter(["eins"]), window=1)
    with pytest.raises(ValueError, match="one of `targets` for each text"):
        list(pairs)


def test_score_reads_given_translations():
    translator = make()
    sources = ["one two", "three", ""]
    targets = ["eins zwei", "vier", "eins"]
    right, wrong, empty = translator.score(sources, targets)
    found = translator.translate(sources[:1])[0]
    assert right.text == "eins zwei" and right.score == pytest.approx(found.score)
    assert right.tokens == ["eins", "zwei", "</s>"]
    np.testing.assert_allclose(right.alignment, np.eye(3))
    assert wrong.score < right.score - 10
    assert (empty.text, empty.score, empty.tokens) == ("", 0.0, [])
    for batch_size in (1, 2):
        again = translator.score(sources[:2], targets[:2], batch_size)
        assert [t.score for t in again] == pytest.approx([right.score, wrong.score])


def test_score_needs_a_target_for_each_text():
    with pytest.raises(
        ValueError, match="one of `targets` for each text. Received: 2 texts and 1"
    ):
        make().score(["one", "two"], ["eins"])
    with pytest.raises(TypeError, match="'eins'"):
        make().score(["one"], "eins")
