"""Scores of systems and of lengths; sacrebleu's paired bootstrap of differences."""

import json
import random

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from keras_luong.evaluation.judgement import judge, score_systems, sentence_chrf
from keras_luong.evaluation.scores import (
    bleu,
    by_length,
    chrf,
    length_groups,
    length_unit,
    ter,
)

RANDOM = random.Random(0)
REFERENCES = [" ".join(RANDOM.choices("abcdefgh", k=9)) for _ in range(40)]
METRICS = ["BLEU", "chrF", "TER"]


def damaged(chance):
    """The references with some words replaced."""
    return [
        " ".join("x" if RANDOM.random() < chance else word for word in text.split())
        for text in REFERENCES
    ]


GOOD, BAD = damaged(0.1), damaged(0.4)


@pytest.mark.parametrize(
    ("sources", "unit", "groups"),
    [
        (
            ["w " * n for n in (10, 11, 0, 50, 51, 300)],
            "words",
            {"up to 10": [0, 2], "11 to 15": [1], "31 to 50": [3], "over 50": [4, 5]},
        ),
        # Scripts without spaces are counted in characters.
        (
            ["公園で 犬が走る。", "犬" * 11],
            "characters",
            {"up to 10": [0], "11 to 15": [1]},
        ),
        (["a dog", "犬"], "words", {"up to 10": [0, 1]}),
        (["a dog", "公園で犬が走る"], "characters", {"up to 10": [0, 1]}),
        (["개가 공원에서 달린다", "", "!"], "words", {"up to 10": [0, 1, 2]}),
    ],
)
def test_sentences_are_grouped_by_their_length(sources, unit, groups):
    assert length_unit(sources) == unit
    assert {x.label: x.rows for x in length_groups(sources)} == groups


def test_groups_of_fewer_than_30_sentences_are_small():
    [few], [enough] = length_groups(["a"] * 29), length_groups(["a"] * 30)
    assert few.is_small and not enough.is_small
    with pytest.raises(TypeError, match="sources must be a list"):
        length_groups("a dog")


def test_each_group_has_its_scores():
    texts, references = ["a b c d", "e f g h i", "x"], ["a b c d", "e f g h x", "y"]
    short, long = by_length(texts, references, ["w " * n for n in (4, 12, 3)], "none")
    some = texts[::2], references[::2]
    assert short[1:] == (bleu(*some, "none").score, chrf(*some).score)
    some = texts[1:2], references[1:2]
    assert long[1:] == (bleu(*some, "none").score, chrf(*some).score)
    for sides in ((["a"], ["a"], ["b", "c"]), (["a", "b"], ["a"], "b")):
        with pytest.raises(ValueError, match="2 hypotheses, 1 references"):
            by_length(*sides)


def test_tokenised_text_is_told_of_once_and_not_by_group(caplog):
    texts = ["a b c ."] * 120
    for call in (lambda: bleu(texts, texts), lambda: by_length(texts, texts, texts)):
        call()
        assert caplog.text.count("you forgot to detokenize") == 1


def test_one_system_has_the_scores_of_the_metrics():
    scores = score_systems({"good": GOOD}, REFERENCES, "none")["good"]
    assert list(scores) == METRICS
    expected = bleu(GOOD, REFERENCES, "none"), chrf(GOOD, REFERENCES)
    expected += (ter(GOOD, REFERENCES),)
    for (name, found), score in zip(scores.items(), expected, strict=True):
        assert (found.score, found.signature, name) == score
        assert found.interval is None and found.p_value is None


def test_several_are_compared_with_the_first_as_sacrebleu_does():
    systems = {"good": GOOD, "bad": BAD, "same": list(GOOD)}
    scores = score_systems(systems, REFERENCES)
    metrics = {"BLEU": BLEU(), "chrF": CHRF(), "TER": TER()}
    test = PairedTest(list(systems.items()), metrics, [REFERENCES], "bs", 1000)
    signatures, expected = test()
    for ours, name in zip(METRICS, ("BLEU", "chrF2", "TER"), strict=True):
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
    spaced, upper = [x.replace(" ", "  ") for x in GOOD], [x.upper() for x in GOOD]
    systems = {"good": GOOD, "spaced": spaced, "upper": upper}
    scores = score_systems(systems, REFERENCES)
    assert [scores["spaced"][name].p_value for name in METRICS] == [1, 1, 1]
    assert (
        scores["upper"]["TER"].p_value == 1 and scores["upper"]["BLEU"].p_value < 0.01
    )
    one = score_systems({"good": GOOD[:1], "bad": BAD[:1]}, REFERENCES[:1])["bad"]
    assert [one[name].p_value for name in METRICS] == [1, 1, 1]


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


def test_all_of_it_is_json():
    sources = ["w " * (i + 1) for i in range(40)]
    judged = judge("test", sources, REFERENCES, {"good": GOOD, "bad": BAD}, "none")
    lengths = [by_length(x, REFERENCES, sources, "none") for x in (GOOD, BAD)]
    assert judged.groups == lengths
    told = json.loads(json.dumps(judged.as_json(2), allow_nan=False))
    assert [told[x] for x in ("name", "sentences", "length_unit")] == [
        "test",
        40,
        "words",
    ]
    good, bad = told["systems"]
    assert good["name"] == "good" and bad["scores"]["chrF"]["p_value"] < 0.01
    assert good["by_length"][1] == {
        "lengths": "11 to 15",
        "sentences": 5,
        "bleu": lengths[0][1][1],
        "chrf": lengths[0][1][2],
    }
    for name, row in (("worst", judged.worst(1)[0]), ("best", judged.best(1)[0])):
        first, _ = told[name]
        assert first["line"] == row + 1 and first["reference"] == REFERENCES[row]
        assert first["source"] == sources[row]
        assert first["translations"] == {"good": GOOD[row], "bad": BAD[row]}
        assert first["chrf"] == judged.sentence_chrf[row]


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
