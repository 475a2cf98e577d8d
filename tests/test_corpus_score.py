"""What all scores of a whole text have in common."""

from __future__ import annotations

import pytest

from keras_luong.evaluation.scores import CorpusScore, bleu, chrf, ter


@pytest.mark.parametrize("name, metric", [("BLEU", bleu), ("chrF", chrf), ("TER", ter)])
def test_every_metric_says_what_it_is(name, metric):
    found = metric(["a b c d"], ["a b c x"])
    assert isinstance(found, CorpusScore) and found.metric == name
    assert str(found) == f"{name} {found.score:.2f} ({found.signature})"
