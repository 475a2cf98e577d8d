"""BLEU, chrF and TER of a whole text: by hand, and with what they were computed."""

from __future__ import annotations

import math

import pytest

from keras_luong.evaluation.scores import CorpusScore, bleu, chrf, ter

METRICS = {"BLEU": bleu, "chrF": chrf, "TER": ter}
DOGS = ["A dog , a cat , a cow"], ["a dog, a cat, a cow"]


def mean(*precisions):
    return 100 * math.exp(sum(map(math.log, precisions)) / 4)


@pytest.mark.parametrize(
    "metric, arguments, expected",
    [
        # 1- to 4-gram precisions, no brevity penalty.
        (
            bleu,
            (["the cat sat on the mat"], ["the dog sat on the mat"]),
            mean(5 / 6, 3 / 5, 2 / 4, 1 / 3),
        ),
        # A brevity penalty over the corpus.
        (
            bleu,
            (["a b c d e", "a b c d"], ["a b c d e", "a b c d e f"]),
            100 * math.exp(1 - 11 / 9),
        ),
        (bleu, (["", ""], ["a b c d", "e f g h"]), 0),
        (bleu, (*DOGS, "13a", True), 100),
        (bleu, (*DOGS, "none", True), mean(4 / 8, 1 / 7, 1 / 12, 1 / 20)),
        (bleu, (*DOGS, "13a", False), mean(7 / 8, 6 / 7, 5 / 6, 4 / 5)),
        # 1-grams: 3 of 4 each way; 2-grams: 2 of 3; 3-grams: 1 of 2; 4-grams: 0 of 1;
        # so precision and recall are equal, and so is every F-score. None are longer.
        (chrf, (["abcd"], ["abcx"]), 100 * (3 / 4 + 2 / 3 + 1 / 2 + 0) / 4),
        (chrf, (["你好，世界！"], ["你好，世界！"]), 100),
        # "dog" is moved (one edit), "fast" is replaced: 2 edits for 5 words.
        (ter, (["runs the dog very fast"], ["the dog runs very far"]), 40),
        *(
            (ter, (["我爱你"], ["我爱他"], x), 100 / 3)
            for x in ("zh", "ja-mecab", "char")
        ),
        (ter, (["我爱你"], ["我爱他"]), 100),
        (ter, ([""], [""]), 0),
        (ter, (["a b c d"], ["x"]), 400),
        (ter, (["a"], [""]), 100),
    ],
)
def test_by_hand(metric, arguments, expected):
    assert metric(*arguments).score == pytest.approx(expected)


@pytest.mark.parametrize(
    "name, options, parts",
    [
        ("BLEU", {}, "nrefs:1|case:mixed|eff:no|tok:13a"),
        ("BLEU", {"tokenize": "none", "lowercase": True}, "case:lc|eff:no|tok:none"),
        ("chrF", {}, "nc:6"),
        ("TER", {}, "tok:tercom|norm:no|punct:yes|asian:no"),
        ("TER", {"tokenize": "zh"}, "norm:yes|punct:yes|asian:yes"),
    ],
)
def test_a_score_says_how_it_was_computed(name, options, parts):
    found = METRICS[name](["a b c d"], ["a b c x"], **options)
    assert isinstance(found, CorpusScore) and found.metric == name
    assert str(found) == f"{name} {found.score:.2f} ({found.signature})"
    assert parts in found.signature and "version:" in found.signature


@pytest.mark.parametrize("metric", METRICS.values())
@pytest.mark.parametrize(
    "sides, error, message",
    [
        (("a b", ["a b"]), TypeError, "hypotheses.*'a b'"),
        ((["a b"], "a b"), TypeError, "references"),
        ((["a"], ["a", "b"]), ValueError, "1 hypotheses, 2 references"),
        (([], []), ValueError, "at least one"),
    ],
)
def test_refuses(metric, sides, error, message):
    with pytest.raises(error, match=message):
        metric(*sides)


def test_refuses_an_unknown_tokenization():
    with pytest.raises(ValueError, match="13a.*14a"):
        bleu(["a"], ["a"], "14a")
