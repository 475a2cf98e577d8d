"""Scores of texts, systems and lengths; sacrebleu's bootstrap."""

import json
import math
import random

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from keras_luong.evaluation.judgement import judge, score_systems, sentence_chrf
from keras_luong.evaluation.scores import (
    CorpusScore,
    bleu,
    by_length,
    chrf,
    length_groups,
    length_unit,
    ter,
)

# Of a whole text.

METRIC = {"BLEU": bleu, "chrF": chrf, "TER": ter}
BRIEF = math.exp(1 - 11 / 9)
DOGS = "A dog , a cat , a cow", "a dog, a cat, a cow"


def mean(*precisions):
    return 100 * math.exp(sum(map(math.log, precisions)) / 4)


JUDGED = [
    # 1- to 4-gram precisions, no brevity penalty.
    (bleu, "a b c d e f", "a x c d e f", (), mean(5 / 6, 3 / 5, 2 / 4, 1 / 3)),
    # A brevity penalty over the corpus.
    (bleu, "a b c d e|a b c d", "a b c d e|a b c d e f", (), 100 * BRIEF),
    (bleu, "|", "a b c d|e f g h", (), 0),
    (bleu, *DOGS, ("none", True), mean(4 / 8, 1 / 7, 1 / 12, 1 / 20)),
    (bleu, *DOGS, ("13a", False), mean(7 / 8, 6 / 7, 5 / 6, 4 / 5)),
    # 1-grams: 3 of 4 each way; 2-grams: 2 of 3; 3-grams: 1 of 2; 4-grams: 0 of 1;
    # so precision and recall are equal, and so is every F-score. None are longer.
    (chrf, "abcd", "abcx", (), 100 * (3 / 4 + 2 / 3 + 1 / 2 + 0) / 4),
    # "dog" is moved (one edit), "fast" is replaced: 2 edits for 5 words.
    (ter, "runs the dog very fast", "the dog runs very far", (), 40),
    *((ter, "我爱你", "我爱他", (x,), 100 / 3) for x in ("zh", "ja-mecab", "char")),
    (ter, "我爱你", "我爱他", (), 100),
    (ter, "", "", (), 0),
    (ter, "a b c d", "x", (), 400),
]


@pytest.mark.parametrize("metric, texts, references, options, expected", JUDGED)
def test_by_hand(metric, texts, references, options, expected):
    found = metric(texts.split("|"), references.split("|"), *options)
    assert found.score == pytest.approx(expected)


SIGNATURES = [
    ("BLEU", {}, "nrefs:1|case:mixed|eff:no|tok:13a"),
    ("BLEU", {"tokenize": "none", "lowercase": True}, "case:lc|eff:no|tok:none"),
    ("chrF", {}, "nc:6"),
    ("TER", {}, "tok:tercom|norm:no|punct:yes|asian:no"),
    ("TER", {"tokenize": "zh"}, "norm:yes|punct:yes|asian:yes"),
]


@pytest.mark.parametrize("name, options, parts", SIGNATURES)
def test_a_score_says_how_it_was_computed(name, options, parts):
    found = METRIC[name](["a b c d"], ["a b c x"], **options)
    assert isinstance(found, CorpusScore) and found.metric == name
    assert str(found) == f"{name} {found.score:.2f} ({found.signature})"
    assert parts in found.signature and "version:" in found.signature


# Of systems and of lengths.

RANDOM = random.Random(0)
REFERENCES = [" ".join(RANDOM.choices("abcdefgh", k=9)) for _ in range(40)]
METRICS = [*METRIC]


def damaged(chance):
    """The references with some words replaced."""
    return [
        " ".join("x" if RANDOM.random() < chance else word for word in text.split())
        for text in REFERENCES
    ]


GOOD, BAD = damaged(0.1), damaged(0.4)


MANY = ["w " * n for n in (10, 11, 0, 50, 51, 300)]
THEIRS = {"up to 10": [0, 2], "11 to 15": [1], "31 to 50": [3], "over 50": [4, 5]}


GROUPS = [
    (MANY, "words", THEIRS),
    # Scripts without spaces are counted in characters.
    (["公園で 犬。", "犬" * 11], "characters", {"up to 10": [0], "11 to 15": [1]}),
    (["a dog", "犬"], "words", {"up to 10": [0, 1]}),
    (["a dog", "公園で犬が走る"], "characters", {"up to 10": [0, 1]}),
    (["개가 공원에서 달린다", "", "!"], "words", {"up to 10": [0, 1, 2]}),
]


@pytest.mark.parametrize("sources, unit, groups", GROUPS)
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
    upper = scores["upper"]
    assert upper["TER"].p_value == 1 and upper["BLEU"].p_value < 0.01
    one = score_systems({"good": GOOD[:1], "bad": BAD[:1]}, REFERENCES[:1])["bad"]
    assert [one[name].p_value for name in METRICS] == [1, 1, 1]


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
    facts = told["name"], told["sentences"], told["length_unit"]
    assert facts == ("test", 40, "words")
    good, bad = told["systems"]
    assert good["name"] == "good" and bad["scores"]["chrF"]["p_value"] < 0.01
    group = {"lengths": "11 to 15", "sentences": 5}
    scores = dict(zip(("bleu", "chrf"), lengths[0][1][1:], strict=True))
    assert good["by_length"][1] == {**group, **scores}
    for name, row in (("worst", judged.worst(1)[0]), ("best", judged.best(1)[0])):
        first, _ = told[name]
        assert first["line"] == row + 1 and first["reference"] == REFERENCES[row]
        assert first["source"] == sources[row]
        assert first["translations"] == {"good": GOOD[row], "bad": BAD[row]}
        assert first["chrf"] == judged.sentence_chrf[row]


@pytest.mark.parametrize("metric", METRIC.values())
def test_what_no_metric_takes(metric):
    for sides, error, message in (
        (("a b", ["a b"]), TypeError, "hypotheses.*'a b'"),
        ((["a b"], "a b"), TypeError, "references"),
        ((["a"], ["a", "b"]), ValueError, "1 hypotheses, 2 references"),
        (([], []), ValueError, "at least one"),
    ):
        with pytest.raises(error, match=message):
            metric(*sides)


def test_refuses():
    for call, arguments, message in (
        (bleu, (["a"], ["a"], "14a"), "13a.*14a"),
        (score_systems, ({}, ["x"]), "a system to score. Received: none"),
        (score_systems, ({"a": ["x"], "b": ["x", "y"]}, ["x"]), "2 hyp.*1 ref"),
        (judge, ("test", ["x"], ["x", "y"], {"a": ["x", "y"]}), "1 hyp.*, 2 ref"),
    ):
        with pytest.raises(ValueError, match=message):
            call(*arguments)
