from __future__ import annotations

import math

import pytest

from keras_luong.evaluation.scores import bleu


def test_by_hand():
    # 1- to 4-gram precisions 5/6, 3/5, 2/4, 1/3, no brevity penalty.
    hypothesis, reference = "the cat sat on the mat", "the dog sat on the mat"
    expected = 100 * math.exp(sum(map(math.log, (5 / 6, 3 / 5, 2 / 4, 1 / 3))) / 4)
    assert bleu([hypothesis], [reference]).score == pytest.approx(expected)


def test_brevity_penalty_over_the_corpus():
    hypotheses, references = ["a b c d e", "a b c d"], ["a b c d e", "a b c d e f"]
    assert bleu(hypotheses, references).score == pytest.approx(
        100 * math.exp(1 - 11 / 9)
    )


@pytest.mark.parametrize(
    "options, signature",
    [
        ({}, ["nrefs:1", "case:mixed", "tok:13a", "version:"]),
        ({"tokenize": "none", "lowercase": True}, ["case:lc", "tok:none"]),
    ],
)
def test_signature(options, signature):
    score = bleu(["a b c d"], ["a b c d"], **options)
    assert all(part in score.signature for part in signature)
    assert score.signature in str(score) and "100.00" in str(score)


def test_options_matter():
    hypothesis, reference = ["A dog , a cat , a cow"], ["a dog, a cat, a cow"]
    scores = [
        bleu(hypothesis, reference, tokenize, lowercase).score
        for tokenize, lowercase in (("13a", True), ("13a", False), ("none", False))
    ]
    assert scores[0] == pytest.approx(100) and scores[0] > scores[1] > scores[2]


def test_empty_translations_are_allowed():
    assert bleu(["", ""], ["a b c d", "e f g h"]).score == 0.0


@pytest.mark.parametrize(
    "args, error, message",
    [
        ((["a"], ["a", "b"]), ValueError, "1 hypotheses, 2 references"),
        (([], []), ValueError, "at least one"),
        (("a b", ["a b"]), TypeError, "hypotheses.*'a b'"),
        ((["a b"], "a b"), TypeError, "references"),
        ((["a"], ["a"], "14a"), ValueError, "13a.*14a"),
    ],
)
def test_refuses(args, error, message):
    with pytest.raises(error, match=message):
        bleu(*args)
