"""Scores of systems, and sacrebleu's paired bootstrap of their differences."""

import json
import random

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from keras_luong.evaluation.judgement import judge, score_systems, sentence_chrf
from keras_luong.evaluation.scores import bleu, by_length, chrf, ter

RANDOM = random.Random(0)
REFERENCES = [" ".join(RANDOM.choices("abcdefgh", k=9)) for _ in range(40)]


def damaged(chance):
    """The references with some words replaced."""
    return [
        " ".join("x" if RANDOM.random() < chance else word for word in text.split())
        for text in REFERENCES
    ]


GOOD, BAD = damaged(0.1), damaged(0.4)


def test_one_system_has_the_scores_of_the_metrics():
    scores = score_systems({"good": GOOD}, REFERENCES, "none")["good"]
    expected = bleu(GOOD, REFERENCES, "none"), chrf(GOOD, REFERENCES)
    expected += (ter(GOOD, REFERENCES),)
    for (name, found), score in zip(scores.items(), expected, strict=True):
        assert (found.score, found.signature, name) == score
        assert found.interval is None and found.p_value is None
    assert list(scores) == ["BLEU", "chrF", "TER"]


def test_several_are_compared_with_the_first_as_sacrebleu_does():
    systems = {"good": GOOD, "bad": BAD, "same": list(GOOD)}
    scores = score_systems(systems, REFERENCES)
    metrics = {"BLEU": BLEU(), "chrF": CHRF(), "TER": TER()}
    test = PairedTest(list(systems.items()), metrics, [REFERENCES], "bs", 1000)
    signatures, expected = test()
    for ours, name in (("BLEU", "BLEU"), ("chrF", "chrF2"), ("TER", "TER")):
        for system, result in zip(systems, expected[name], strict=True):
            found = scores[system][ours]
            assert found.score == result.score
            if system != "same":
                assert found.p_value == result.p_value
            assert found.interval == pytest.approx(result.ci)
            assert found.signature == str(signatures[name])
            assert "bs:1000|seed:12345" in found.signature
    p_values = [scores[system]["BLEU"].p_value for system in systems]
    # Of the same translations twice sacrebleu says 0.001: a sure difference.
    assert p_values[0] is None and p_values[1] < 0.01 and p_values[2] == 1


def test_no_difference_is_sure_of_equal_scores_or_one_sentence():
    """Other white space is no difference; in TER neither is upper case."""
    systems = {"good": GOOD, "spaced": [x.replace(" ", "  ") for x in GOOD]}
    scores = score_systems(systems, REFERENCES)["spaced"]
    assert [scores[name].p_value for name in ("BLEU", "chrF", "TER")] == [1, 1, 1]
    upper = {"good": GOOD, "upper": [x.upper() for x in GOOD]}
    scores = score_systems(upper, REFERENCES)["upper"]
    assert scores["TER"].p_value == 1 and scores["BLEU"].p_value < 0.01
    one = {"good": GOOD[:1], "bad": BAD[:1]}
    scores = score_systems(one, REFERENCES[:1])["bad"]
    assert [scores[name].p_value for name in ("BLEU", "chrF", "TER")] == [1, 1, 1]


def test_text_without_spaces_has_a_ter_of_characters():
    chinese = {"one": ["我爱你"], "two": ["我爱她"]}
    for scores in score_systems(chinese, ["我爱他"], "zh").values():
        assert "tok:zh" in scores["BLEU"].signature
        assert scores["TER"].score == pytest.approx(100 / 3)


def test_sentences_are_ranked_by_their_chrf():
    references = ["abcd", "efgh ijkl", "", "abcd efgh", "mnop"]
    texts = ["abcd", "efgh ijkl", "abc", "x", "mnoq"]
    judged = judge("test", list("vwxyz"), references, {"mine": texts})
    assert judged.sentence_chrf == sentence_chrf(texts, references)
    assert judged.worst(2) == [3, 4]  # nothing is said of row 2, without a reference
    assert judged.best(2) == [1, 0]  # of equals the longer one says more
    assert len(judged.worst(9)) == 4 and judged.worst(0) == judged.best(0) == []


def test_lengths_are_told_of_each_system():
    sources = ["w " * (i + 1) for i in range(40)]
    judged = judge("test", sources, REFERENCES, {"good": GOOD, "bad": BAD}, "none")
    assert judged.unit == "words"
    assert judged.groups == [
        by_length(texts, REFERENCES, sources, "none") for texts in (GOOD, BAD)
    ]


def test_all_of_it_is_json():
    systems = {"good": GOOD, "bad": BAD}
    judged = judge("test", ["w"] * 40, REFERENCES, systems)
    told = json.loads(json.dumps(judged.as_json(2), allow_nan=False))
    assert (told["name"], told["sentences"], told["length_unit"]) == (
        "test",
        40,
        "words",
    )
    good, bad = told["systems"]
    assert good["name"] == "good" and bad["scores"]["chrF"]["p_value"] < 0.01
    [group] = good["by_length"]
    assert group["lengths"] == "up to 10" and group["sentences"] == 40
    worst = told["worst"][0]
    row = judged.worst(1)[0]
    assert worst["line"] == row + 1 and worst["reference"] == REFERENCES[row]
    assert worst["translations"] == {"good": GOOD[row], "bad": BAD[row]}
    assert len(told["worst"]) == len(told["best"]) == 2


@pytest.mark.parametrize(
    "systems, message",
    [
        ({}, "a system to score. Received: none"),
        ({"a": ["x"], "b": ["x", "y"]}, "2 hypotheses, 1 references"),
    ],
)
def test_refuses(systems, message):
    with pytest.raises(ValueError, match=message):
        score_systems(systems, ["x"])
    with pytest.raises(ValueError, match="1 hypotheses, 2 references"):
        judge("test", ["x"], ["x", "y"], {"a": ["x", "y"]})
