from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_luong.evaluation.alignment import (
    Alignment,
    Alignments,
    aer,
    format_pharaoh,
    hard_alignment,
    merge_links,
    merge_weights,
    parse_pharaoh,
    read_pharaoh,
    read_wa,
    replace_unknowns,
    words_of,
)
from keras_luong.files import write_lines

HANSARDS = Path(__file__).parents[2] / "shared" / "data" / "hansards447"

WEIGHTS = [
    [0.7, 0.2, 0.1],
    [0.1, 0.1, 0.8],
    [0.1, 0.6, 0.3],
    [0.0, 0.1, 0.9],
]
links = st.sets(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)
corpora = st.lists(st.tuples(links, links, links), min_size=1, max_size=4)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, {(0, 0), (2, 1), (1, 2), (2, 3)}),
        ({"source_end": True}, {(0, 0), (1, 2)}),
        ({"target_end": True}, {(0, 0), (2, 1), (1, 2)}),
        ({"source_end": True, "target_end": True}, {(0, 0), (1, 2)}),
        ({"shift": 1}, {(2, 0), (1, 1), (2, 2)}),
        ({"shift": 1, "target_end": True}, {(2, 0), (1, 1), (2, 2)}),
        ({"shift": 1, "source_end": True}, {(1, 1)}),
    ],
)
def test_links_to_the_largest_weight(options, expected):
    assert hard_alignment(WEIGHTS, **options) == expected


def test_ties_go_left_and_no_attention_gives_no_link():
    weights = np.array([[0.2, 0.4, 0.4], [0, 0, 0], [1 / 3, 1 / 3, 1 / 3]], "float16")
    assert hard_alignment(weights) == {(1, 0), (0, 2)}


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (1, 1)])
@pytest.mark.parametrize("shift", [0, 1])
def test_hard_alignment_of_next_to_nothing(shape, shift):
    found = hard_alignment(np.ones(shape), shift, source_end=True, target_end=True)
    assert found == set()


@pytest.mark.parametrize(
    "weights, options, message",
    [
        ([0.5, 0.5], {}, r"weights must be .*Received shape: \[2\]"),
        ([[np.nan, 0.5]], {}, "finite"),
        (WEIGHTS, {"shift": 2}, "shift must be 0 or 1. Received: 2"),
        (WEIGHTS, {"shift": -1}, "Received: -1"),
    ],
)
def test_hard_alignment_refuses(weights, options, message):
    with pytest.raises(ValueError, match=message):
        hard_alignment(weights, **options)


def test_aer_by_hand():
    # A = 4 links, S = 3, P = 5; A∩S = 2, A∩P = 3
    hypothesis = [{(0, 0), (1, 1)}, {(0, 1), (5, 5)}]
    sure = [{(0, 0), (1, 1)}, {(0, 0)}]
    possible = [set(), {(0, 1), (1, 0)}]
    score = aer(hypothesis, sure, possible)
    assert score == pytest.approx((100 * (1 - 5 / 7), 75.0, 100 * 2 / 3))
    assert str(score) == "AER 28.6 (P 75.0, R 66.7)"


@given(corpora)
def test_aer_is_that_of_the_pooled_links(corpus):
    """The corpus as one set of (sentence, link), without the function's shortcuts."""
    pools = [{(n, x) for n, one in enumerate(corpus) for x in one[k]} for k in range(3)]
    A, S, P = pools[0], pools[1], pools[1] | pools[2]
    if not A and not S:
        with pytest.raises(ValueError, match="needs links"):
            aer(*zip(*corpus, strict=True))
        return
    score = aer(*zip(*corpus, strict=True))
    right = sum((x in S) + (x in P) for x in A)
    assert score.aer == pytest.approx(100 * (1 - right / (len(A) + len(S))))
    assert math.isnan(score.precision) if not A else 0 <= score.precision <= 100
    assert math.isnan(score.recall) if not S else 0 <= score.recall <= 100
    if S:
        assert aer(*[[one[1] for one in corpus]] * 2) == (0.0, 100.0, 100.0)


def test_aer_takes_pairs_in_any_form():
    pairs = [((0, 0), (1, 1))]
    assert aer([np.array([[0, 0], [1, 1]])], pairs) == (0.0, 100.0, 100.0)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([], []), "at least one sentence pair"),
        (([set()], [set()]), "needs links"),
        (([set(), set()], [set()]), "Received: 2, 1 and 1 sets"),
        (([set()], [set()], []), "Received: 1, 1 and 0 sets"),
        (([{(0, 0)}], [{(0, 0, 0)}]), "pairs"),
        (([{(0, 0)}], [{(0, 0.5)}]), "pairs"),
        (([(0, 0)], [{(0, 0)}]), r"pairs.*Received: \(0, 0\)"),
        (([{(0, -1)}], [{(0, 0)}]), "at least 0"),
    ],
)
def test_aer_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        aer(*arguments)


@pytest.mark.parametrize(
    "file, published",
    [("giza.test.enfr.talp", 8.0), ("giza.test.enfr.grow-diagonal.talp", 5.9)],
)
def test_aer_of_giza_is_the_published_one(file, published):
    if not HANSARDS.is_dir():
        pytest.skip("needs the Hansards test set")
    gold = read_pharaoh(HANSARDS / "gold.wa", one_based=True)
    system = read_pharaoh(HANSARDS / file)
    assert len(gold.sure) == 447
    assert sum(map(len, gold.sure)) == 4038  # as Och and Ney count them
    assert round(aer(system.sure, *gold).aer, 1) == published
    backwards = [{(j, i) for i, j in links} for links in system.sure]
    assert aer(backwards, *gold).aer > 50  # which side comes first matters


@pytest.mark.parametrize(
    "line, one_based, sure, possible",
    [
        ("", False, set(), set()),
        ("0-0 10-2\n", False, {(0, 0), (10, 2)}, set()),
        (" 1p2  3?4\t0-1 ", False, {(0, 1)}, {(1, 2), (3, 4)}),
        ("1-1 2p3", True, {(0, 0)}, {(1, 2)}),
        ("1p1 1-1 1p1", False, {(1, 1)}, set()),
    ],
)
def test_parse_pharaoh(line, one_based, sure, possible):
    assert parse_pharaoh(line, one_based) == (sure, sure | possible)


@pytest.mark.parametrize(
    "line, one_based",
    [("1", False), ("1-", False), ("1--2", False), ("-1-2", False), ("1-2-3", False)]
    + [("1.5-2", False), ("a-b", False), ("1s2", False), ("٣-٤", False)]
    + [("0-1", True), ("1-0", True)],
)
def test_parse_pharaoh_refuses(line, one_based):
    with pytest.raises(ValueError, match=f"Received: {line!r}"):
        parse_pharaoh(f"2-2 {line}", one_based)


def test_format_pharaoh_is_sorted_by_number():
    assert format_pharaoh({(10, 0), (2, 1)}, {(2, 0), (2, 1)}) == "2p0 2-1 10-0"
    assert format_pharaoh([(np.int64(1), 0)], one_based=True) == "2-1"


@given(sure=links, possible=links, one_based=st.booleans())
def test_pharaoh_round_trip(sure, possible, one_based):
    line = format_pharaoh(sure, possible, one_based)
    assert parse_pharaoh(line, one_based) == (sure, sure | possible)


GOLD = Alignments(
    [{(0, 0)}, set(), {(1, 0), (0, 1)}], [{(0, 0)}, set(), {(1, 0), (0, 1), (2, 2)}]
)


@pytest.mark.parametrize("one_based", [False, True])
def test_pharaoh_files(one_based, tmp_path):
    path = tmp_path / "gold.txt"
    pairs = zip(*GOLD, strict=True)
    write_lines(path, (format_pharaoh(s, p, one_based) for s, p in pairs))
    assert read_pharaoh(path, one_based) == GOLD
    write_lines(path, map(format_pharaoh, GOLD.sure))
    assert path.read_bytes() == b"0-0\n\n0-1 1-0\n"
    assert read_pharaoh(path) == (GOLD.sure, GOLD.sure)


def test_wa_files(tmp_path):
    path = tmp_path / "gold.wa"
    path.write_text("1 1 1 S\n3 1 2 S\n3 2 1 S\n3 3 3 P\n")
    assert read_wa(path) == GOLD
    longer = read_wa(path, sentences=5)
    assert longer.sure == [*GOLD.sure, set(), set()]
    longer.sure[3].add((0, 0))
    assert longer.sure[4] == set()


@given(st.lists(st.tuples(links, links), min_size=1, max_size=4))
def test_wa_round_trip_needs_the_number_of_sentences(tmp_path_factory, pairs):
    gold = Alignments([s for s, _ in pairs], [s | p for s, p in pairs])
    path = tmp_path_factory.mktemp("wa") / "gold.wa"
    write_lines(
        path,
        (
            f"{n} {i + 1} {j + 1} {'S' if (i, j) in sure else 'P'}"
            for n, (sure, possible) in enumerate(zip(*gold, strict=True), 1)
            for i, j in possible
        ),
    )
    assert read_wa(path, sentences=len(pairs)) == gold
    seen = max((n for n, p in enumerate(gold.possible, 1) if p), default=0)
    assert read_wa(path) == (gold.sure[:seen], gold.possible[:seen])


def test_wa_numbers_may_run_ahead_of_the_lines(tmp_path):
    path = tmp_path / "gold.wa"
    path.write_text("1 1 1\n1020 1 1\n")
    assert len(read_wa(path).sure) == 1020
    path.write_text("5000 1 1\n")
    assert len(read_wa(path, sentences=6000).sure) == 6000


@pytest.mark.parametrize("confidence", "1 0.5 .5 5. -2 +.5 1e-3 1.5E+2".split())
def test_wa_confidences(confidence, tmp_path):
    path = tmp_path / "gold.wa"
    path.write_text(f"1 1 1 S {confidence}\n1 2 2 {confidence}\n")
    assert read_wa(path).sure == [{(0, 0), (1, 1)}]


def test_wa_optional_fields(tmp_path):
    path = tmp_path / "system.wa"
    path.write_text(
        "\ufeff0002 1 2 P 0.25\r\n2 3 4 0.5\r\n\r\n0001 0 1 S\n0001 2 2\n"
        "2 1 2 S 1e-3\n",
        encoding="utf-8",
    )
    assert read_wa(path) == (
        [{(1, 1)}, {(2, 3), (0, 1)}],
        [{(1, 1)}, {(2, 3), (0, 1)}],
    )


@pytest.mark.parametrize(
    "read, text, message",
    [
        (read_pharaoh, "0-0\n0-0 x\n", "line 2: A link must read .*'x'"),
        (read_wa, "1 1 1\n1 1\n", "line 2: A line must read: sentence source"),
        (read_wa, "1 1 1 X\n", "line 1"),
        (read_wa, "1 1 1 S high\n", "line 1"),
        (read_wa, "1 -1 1 S\n", "line 1"),
        *(
            (read_wa, f"1 1 1 {x}\n", "line 1")
            for x in "e - +.e . 1e 1-2 1.2.3".split()
        ),
        (read_wa, "1 1 1\n0 1 1\n", "line 2: A sentence's number"),
        (read_wa, "1 1 1\n1021 1 1\n", "line 2: .*1 to 1020; .*Received: 1021"),
        (read_wa, "20000000 1 1\n", "line 1: .*sentences. Received: 20000000"),
        (lambda p: read_wa(p, 2), "2 1 1\n3 1 1\n", "line 2: .*1 to 2; .*ceived: 3"),
        (lambda p: read_pharaoh(p, True), "0-0\n", "line 1: .*at least 1"),
    ],
)
def test_readers_name_file_and_line(read, text, message, tmp_path):
    path = tmp_path / "some.file"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"some.file, {message}"):
        read(path)


@pytest.mark.parametrize("read", [read_pharaoh, read_wa])
def test_what_is_not_utf8_is_named(read, tmp_path):
    path = tmp_path / "some.file"
    path.write_bytes(b"\n\xff\n")
    with pytest.raises(ValueError, match="some.file is not UTF-8: line 2"):
        read(path)


@pytest.mark.parametrize("read", [read_pharaoh, read_wa])
def test_missing_file(read, tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        read(tmp_path / "absent")


@pytest.mark.parametrize(
    "pieces, expected",
    [
        ([], []),
        (["a", "dog", "</s>"], ["a", "dog", "</s>"]),
        (["a", "<unk>", "</s>"], ["a", "<unk>", "</s>"]),
        (["▁a", "▁dog", "s", "</s>"], ["a", "dogs", "</s>"]),
        (["dog", "s", "▁run"], ["dogs", "run"]),
        (["▁a", "▁", "Ω", "β", "</s>"], ["a", "Ωβ", "</s>"]),
        (["▁a", "▁", "<unk>", "b"], ["a", "<unk>b"]),
        (["▁", "▁a"], ["a"]),
        (["▁a", "▁", "</s>"], ["a", "</s>"]),
        (["▁", "</s>"], ["", "</s>"]),
        (["<s>", "a", "b", "▁c", "</s>"], ["<s>", "ab", "c", "</s>"]),
        (["▁a", "</s>", "<pad>", "<pad>"], ["a", "</s>", "<pad>", "<pad>"]),
        (["▁New▁York", "er"], ["New Yorker"]),
    ],
)
def test_words_of(pieces, expected):
    words = words_of(pieces)
    assert [word.text for word in words] == expected
    assert [i for word in words for i in word.tokens] == list(range(len(pieces)))


@given(st.lists(st.sampled_from(["▁", "▁a", "b", "▁cd", "e"]), min_size=1))
def test_words_are_those_of_the_text(pieces):
    words = words_of(pieces)
    if any("▁" in piece for piece in pieces):
        text = "".join(pieces).replace("▁", " ")
        assert [word.text for word in words] == (text.split() or [""])
    assert [i for word in words for i in word.tokens] == list(range(len(pieces)))


def test_words_of_a_trained_tokenizer():
    """What the tokenizer takes apart comes back as what white space separates."""
    import tensorflow as tf

    from keras_luong.text.sentencepiece import SentencePieceTokenizer

    texts = [f"{a} {b} runs ." for a in ("a dog", "the cat") for b in "abcdefgh"]
    tokenizer = SentencePieceTokenizer.train(texts, vocab_size=24)
    text = "the dog ☃ runs a☃t c ."
    ids = tokenizer.encode(tf.constant([text]))[0]
    pieces = [piece.decode() for piece in tokenizer.pieces(ids).numpy()]
    assert len(pieces) > len(text.split())
    words = [word.text for word in words_of([*pieces, "</s>"])]
    assert words == [*text.replace("☃", "<unk>").split(), "</s>"]


SOURCE = ["▁Hun", "de", "▁lauf", "en", "</s>"]
TARGET = ["▁dog", "s", "▁run", "</s>"]


def test_merges_weights():
    weights = [
        [0.4, 0.2, 0.3, 0.1, 0.0],
        [0.0, 0.8, 0.0, 0.0, 0.2],
        [0.1, 0.1, 0.4, 0.4, 0.0],
        [0.0, 0.0, 0.0, 0.0, 1.0],
    ]
    expected = [[0.7, 0.2, 0.1], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]]
    merged = merge_weights(np.array(weights, "float32"), SOURCE, TARGET)
    np.testing.assert_allclose(merged, expected, 1e-6, 1e-7)
    assert merged.dtype == np.float32
    words = merge_weights(weights, list("abcde"), list("wxyz"))
    np.testing.assert_array_equal(words, weights)


@pytest.mark.parametrize("T, S", [(0, 0), (0, 5), (4, 0)])
def test_merges_nothing(T, S):
    merged = merge_weights(np.zeros((T, S)), SOURCE[:S], TARGET[:T])
    assert merged.shape == (len(words_of(TARGET[:T])), len(words_of(SOURCE[:S])))


pieces = st.lists(st.sampled_from(["▁a", "▁", "b", "</s>"]), min_size=1, max_size=9)


@given(source=pieces, target=pieces, seed=st.integers(0, 99))
def test_merged_weights_are_distributions_again(source, target, seed):
    shape = len(target), len(source)
    weights = np.random.default_rng(seed).dirichlet(np.ones(shape[1]), shape[0])
    merged = merge_weights(weights, source, target)
    np.testing.assert_allclose(merged.sum(axis=1), 1.0)
    for t, row in enumerate(words_of(target)):
        for s, column in enumerate(words_of(source)):
            total = sum(weights[i][j] for i in row.tokens for j in column.tokens)
            np.testing.assert_allclose(merged[t, s], total / len(row.tokens))


def test_merges_links():
    links = {(1, 0), (0, 1), (3, 2), (4, 3), (4, 2)}
    assert merge_links(links, SOURCE, TARGET) == {(0, 0), (1, 1), (2, 2), (2, 1)}
    assert merge_links([], SOURCE, TARGET) == set()


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda: merge_links({(5, 0)}, SOURCE, TARGET),
            ValueError,
            "5 source",
        ),
        (
            lambda: merge_links({(0, 4)}, SOURCE, TARGET),
            ValueError,
            "4 target",
        ),
        (lambda: merge_links({(-1, 0)}, SOURCE, TARGET), ValueError, "at least 0"),
        (lambda: words_of("dog"), TypeError, "pieces must be a list.*'dog'"),
        (
            lambda: merge_weights(np.zeros((5, 4)), SOURCE, TARGET),
            ValueError,
            r"here \[4, 5\]. Received shape: \[5, 4\]",
        ),
        (
            lambda: replace_unknowns(TARGET, SOURCE[:-1], np.zeros((4, 5))),
            ValueError,
            r"here \[4, 4\]. Received shape: \[4, 5\]",
        ),
        (
            lambda: replace_unknowns("a", ["a"], [[1.0]]),
            TypeError,
            "target tokens must be a list",
        ),
    ],
)
def test_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_replaces_unknowns():
    tokens = ["<unk>", "isst", "<unk>", "<unk>", "<unk>", "</s>"]
    source = ["Ng", "eats", "Bratwurst", "</s>"]
    weights = [
        [0.9, 0.1, 0.0, 0.0],  # copied
        [0.0, 1.0, 0.0, 0.0],  # known: stays, though the dictionary has "eats"
        [
            0.1,
            0.0,
            0.3,
            0.6,
        ],  # the end token, then Bratwurst: in the dictionary
        [0.0, 0.0, 0.0, 1.0],  # nothing but the end token: stays
        [0.0, 0.0, 0.0, 0.0],  # nothing at all: stays
        [0.0, 0.0, 0.0, 1.0],
    ]
    dictionary = {"Bratwurst": "Wurst", "eats": "frisst"}
    assert replace_unknowns(tokens, source, weights, dictionary) == (
        ["Ng", "isst", "Wurst", "<unk>", "<unk>", "</s>"]
    )
    assert replace_unknowns(tokens, source, weights)[2] == "Bratwurst"
    assert replace_unknowns(tokens, source, weights, unknown="isst")[:3] == (
        ["<unk>", "eats", "<unk>"]
    )
    assert tokens[0] == "<unk>"


def test_what_is_read_can_be_named():
    alignment = parse_pharaoh("0-0 1p1")
    assert alignment == Alignment(sure={(0, 0)}, possible={(0, 0), (1, 1)})
