"""Alignments: made of attention, scored, read and written; the words they are of."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keras_luong as kl
from keras_luong.cli.lines import word_links
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
from keras_luong.text.sentencepiece import SentencePieceTokenizer
from keras_luong.translation.graph import BYTES_PER_TOKEN

HANSARDS = Path(__file__).parents[2] / "shared" / "data" / "hansards447"

WEIGHTS = [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.1, 0.6, 0.3], [0.0, 0.1, 0.9]]
both_ends = {"source_end": True, "target_end": True}


LARGEST = [
    (WEIGHTS, {}, {(0, 0), (2, 1), (1, 2), (2, 3)}),
    (WEIGHTS, {"source_end": True}, {(0, 0), (1, 2)}),
    (WEIGHTS, {"target_end": True}, {(0, 0), (2, 1), (1, 2)}),
    (WEIGHTS, both_ends, {(0, 0), (1, 2)}),
    (WEIGHTS, {"shift": 1}, {(2, 0), (1, 1), (2, 2)}),
    (WEIGHTS, {"shift": 1, "target_end": True}, {(2, 0), (1, 1), (2, 2)}),
    (WEIGHTS, {"shift": 1, "source_end": True}, {(1, 1)}),
    # Ties go left, and no attention gives no link.
    ([[0.2, 0.4, 0.4], [0, 0, 0], [1, 1, 1]], {}, {(1, 0), (0, 2)}),
    *((np.ones(x), both_ends, set()) for x in [(0, 0), (0, 3), (3, 0), (1, 1)]),
    (np.ones([1, 1]), {**both_ends, "shift": 1}, set()),
]


@pytest.mark.parametrize("weights, options, expected", LARGEST)
def test_links_to_the_largest_weight(weights, options, expected):
    assert hard_alignment(np.array(weights, "float16"), **options) == expected


def test_aer_by_hand():
    # A = 4 links, S = 3, P = 5; A∩S = 2, A∩P = 3
    hypothesis = [{(0, 0), (1, 1)}, {(0, 1), (5, 5)}]
    sure = [{(0, 0), (1, 1)}, {(0, 0)}]
    possible = [set(), {(0, 1), (1, 0)}]
    score = aer(hypothesis, sure, possible)
    assert score == pytest.approx((100 * (1 - 5 / 7), 75.0, 100 * 2 / 3))
    assert str(score) == "AER 28.6 (P 75.0, R 66.7)"
    pairs = [((0, 0), (1, 1))]  # in any form
    assert aer([np.array([[0, 0], [1, 1]])], pairs) == (0.0, 100.0, 100.0)
    assert str(aer([set()], pairs)) == "AER 100.0 (P nan, R 0.0)"
    assert str(aer(pairs, [set()])) == "AER 100.0 (P 0.0, R nan)"
    assert str(aer(pairs, [set()], pairs)) == "AER 0.0 (P 100.0, R nan)"


GIZA = [("giza.test.enfr.talp", 8.0), ("giza.test.enfr.grow-diagonal.talp", 5.9)]


@pytest.mark.skipif(not HANSARDS.is_dir(), reason="needs the Hansards test set")
@pytest.mark.parametrize("file, published", GIZA)
def test_aer_of_giza_is_the_published_one(file, published):
    gold = read_pharaoh(HANSARDS / "gold.wa", one_based=True)
    system = read_pharaoh(HANSARDS / file)
    assert len(gold.sure) == 447
    assert sum(map(len, gold.sure)) == 4038  # as Och and Ney count them
    assert round(aer(system.sure, *gold).aer, 1) == published
    backwards = [{(j, i) for i, j in links} for links in system.sure]
    assert aer(backwards, *gold).aer > 50  # which side comes first matters


LINES = [
    ("", False, set(), set()),
    ("0-0 10-2\n", False, {(0, 0), (10, 2)}, set()),
    (" 1p2  3?4\t0-1 ", False, {(0, 1)}, {(1, 2), (3, 4)}),
    ("1-1 2p3", True, {(0, 0)}, {(1, 2)}),
    ("1p1 1-1 1p1", False, {(1, 1)}, set()),
]


@pytest.mark.parametrize("line, one_based, sure, possible", LINES)
def test_parse_pharaoh(line, one_based, sure, possible):
    assert parse_pharaoh(line, one_based) == Alignment(sure, possible=sure | possible)


@pytest.mark.parametrize(
    "line, one_based",
    [*((x, False) for x in "1 1- 1--2 -1-2 1-2-3 1.5-2 a-b 1s2 ٣-٤".split())]
    + [("0-1", True), ("1-0", True)],
)
def test_parse_pharaoh_refuses(line, one_based):
    with pytest.raises(ValueError, match=f"Received: {line!r}"):
        parse_pharaoh(f"2-2 {line}", one_based)


SURE = [{(0, 0)}, set(), {(1, 0), (0, 1)}]
GOLD = Alignments(SURE, [*SURE[:2], {(1, 0), (0, 1), (2, 2)}])


@pytest.mark.parametrize("one_based", [False, True])
def test_pharaoh_files(one_based, tmp_path):
    path = tmp_path / "gold.txt"
    pairs = zip(*GOLD, strict=True)
    write_lines(path, (format_pharaoh(s, p, one_based) for s, p in pairs))
    assert read_pharaoh(path, one_based) == GOLD
    assert format_pharaoh({(10, 0), (2, 1)}, {(2, 0), (2, 1)}) == "2p0 2-1 10-0"
    assert format_pharaoh([(np.int64(1), 0)], one_based=True) == "2-1"
    write_lines(path, map(format_pharaoh, GOLD.sure))
    assert path.read_bytes() == b"0-0\n\n0-1 1-0\n"
    assert read_pharaoh(path) == (GOLD.sure, GOLD.sure)


WA = "1 1 1 S\n3 1 2 S\n3 2 1 S\n3 3 3 P\n"
ODD_WA = "\ufeff0002 1 2 P 0.25\r\n2 3 4 0.5\r\n\r\n0001 0 1 S\n0001 2 2\n"
ODD_WA += "2 1 2 S 1e-3\n"
READ = [{(1, 1)}, {(2, 3), (0, 1)}]


WA_FILES = [
    (WA, None, GOLD),
    (WA, 5, [[*x, set(), set()] for x in GOLD]),
    (ODD_WA, None, (READ, READ)),  # optional fields, 0 for "no word"
    *(
        (f"1 1 1 S {x}\n1 2 2 {x}\n", None, [[{(0, 0), (1, 1)}]] * 2)
        for x in "1 0.5 .5 5. -2 +.5 1e-3 1.5E+2".split()
    ),
    ("1 1 1\n1020 1 1\n", None, [[{(0, 0)}, *[set()] * 1018, {(0, 0)}]] * 2),
    ("5000 1 1\n", 5000, [[*[set()] * 4999, {(0, 0)}]] * 2),
]


@pytest.mark.parametrize("text, sentences, expected", WA_FILES)
def test_wa_files(text, sentences, expected, tmp_path):
    path = tmp_path / "gold.wa"
    path.write_text(text, encoding="utf-8")
    found = read_wa(path, sentences)
    assert found == tuple(expected)
    found.sure[-1].add((7, 7))  # each sentence has a set of its own
    assert found.sure.count(found.sure[-1]) == 1


SPOILT = [
    (read_pharaoh, "0-0\n0-0 x\n", "line 2: A link must read .*'x'"),
    (read_wa, "1 1 1\n1 1\n", "line 2: A line must read: sentence source"),
    (read_wa, "1 1 1 X\n", "line 1"),
    (read_wa, "1 -1 1 S\n", "line 1"),
    *((read_wa, f"1 1 1 {x}\n", "line 1") for x in "e - +.e . 1e 1-2 1.2.3".split()),
    (read_wa, "1 1 1\n0 1 1\n", "line 2: A sentence's number"),
    (read_wa, "1 1 1\n1021 1 1\n", "line 2: .*1 to 1020; .*Received: 1021"),
    (read_wa, "20000000 1 1\n", "line 1: .*sentences. Received: 20000000"),
    (lambda p: read_wa(p, 2), "2 1 1\n3 1 1\n", "line 2: .*1 to 2; .*ceived: 3"),
    (lambda p: read_pharaoh(p, True), "0-0\n", "line 1: .*at least 1"),
]


@pytest.mark.parametrize("read, text, message", SPOILT)
def test_readers_name_file_and_line(read, text, message, tmp_path):
    path = tmp_path / "some.file"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"some.file, {message}"):
        read(path)
    path.write_bytes(b"\n\xff\n")
    with pytest.raises(ValueError, match="some.file is not UTF-8: line 2"):
        read(path)
    with pytest.raises(FileNotFoundError, match="absent"):
        read(tmp_path / "absent")


PIECES = [
    ([], []),
    (["a", "<unk>", "</s>"], ["a", "<unk>", "</s>"]),
    (["▁a", "▁dog", "s", "</s>"], ["a", "dogs", "</s>"]),
    (["▁a", "▁", "Ω", "β", "</s>"], ["a", "Ωβ", "</s>"]),
    (["▁a", "▁", "<unk>", "b"], ["a", "<unk>b"]),
    (["▁", "▁a"], ["a"]),
    (["▁", "</s>"], ["", "</s>"]),
    (["<s>", "a", "b", "▁c", "</s>"], ["<s>", "ab", "c", "</s>"]),
    (["▁a", "</s>", "<pad>", "<pad>"], ["a", "</s>", "<pad>", "<pad>"]),
    (["▁New▁York", "er"], ["New Yorker"]),
]


@pytest.mark.parametrize("pieces, expected", PIECES)
def test_words_of(pieces, expected):
    words = words_of(pieces)
    assert [word.text for word in words] == expected
    assert [i for word in words for i in word.tokens] == list(range(len(pieces)))


SOURCE = ["▁Hun", "de", "▁lauf", "en", "</s>"]
TARGET = ["▁dog", "s", "▁run", "</s>"]


def test_merges_weights_and_links():
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
    assert merge_weights(np.zeros((0, 5)), SOURCE, []).shape == (0, 3)
    links = {(1, 0), (0, 1), (3, 2), (4, 3), (4, 2)}
    assert merge_links(links, SOURCE, TARGET) == {(0, 0), (1, 1), (2, 2), (2, 1)}
    assert merge_links([], SOURCE, TARGET) == set()


def test_replaces_unknowns():
    tokens = ["<unk>", "isst", "<unk>", "<unk>", "<unk>", "</s>"]
    source = ["Ng", "eats", "Bratwurst", "</s>"]
    weights = [
        [0.9, 0.1, 0.0, 0.0],  # copied
        [0.0, 1.0, 0.0, 0.0],  # known: stays, though the dictionary has "eats"
        [0.1, 0.0, 0.3, 0.6],  # the end token, then Bratwurst: in the dictionary
        [0.0, 0.0, 0.0, 1.0],  # nothing but the end token: stays
        [0.0, 0.0, 0.0, 0.0],  # nothing at all: stays
        [0.0, 0.0, 0.0, 1.0],
    ]
    dictionary = {"Bratwurst": "Wurst", "eats": "frisst"}
    found = replace_unknowns(tokens, source, weights, dictionary)
    assert found == ["Ng", "isst", "Wurst", "<unk>", "<unk>", "</s>"]
    assert replace_unknowns(tokens, source, weights)[2] == "Bratwurst"
    found = replace_unknowns(tokens, source, weights, unknown="isst")
    assert found[:3] == ["<unk>", "eats", "<unk>"] and tokens[0] == "<unk>"


OTHER = r"here \[4, 5\]. Received shape: \[5, 4\]"


WRONG = [
    (hard_alignment, ([0.5, 0.5],), ValueError, r"Received shape: \[2\]"),
    (hard_alignment, ([[np.nan, 0.5]],), ValueError, "finite"),
    (hard_alignment, (WEIGHTS, 2), ValueError, "shift must be 0 or 1. Received: 2"),
    (aer, ([], []), ValueError, "at least one sentence pair"),
    (aer, ([set()], [set()]), ValueError, "needs links"),
    (aer, ([set(), set()], [set()]), ValueError, "Received: 2, 1 and 1 sets"),
    (aer, ([{(0, 0)}], [{(0, 0, 0)}]), ValueError, "pairs"),
    (aer, ([{(0, 0)}], [{(0, 0.5)}]), ValueError, "pairs"),
    (aer, ([(0, 0)], [{(0, 0)}]), ValueError, r"pairs.*Received: \(0, 0\)"),
    (aer, ([{(0, -1)}], [{(0, 0)}]), ValueError, "at least 0"),
    (merge_links, ({(5, 0)}, SOURCE, TARGET), ValueError, "5 source"),
    (merge_links, ({(0, 4)}, SOURCE, TARGET), ValueError, "4 target"),
    (merge_weights, (np.ones((5, 4)), SOURCE, TARGET), ValueError, OTHER),
    (replace_unknowns, (TARGET, SOURCE, np.eye(4)), ValueError, r": \[4, 4\]"),
    (replace_unknowns, ("a", ["a"], [[1.0]]), TypeError, "target tokens must be a"),
    (words_of, ("dog",), TypeError, "pieces must be a list.*'dog'"),
]


@pytest.mark.parametrize("call, arguments, error, message", WRONG)
def test_refuses(call, arguments, error, message):
    with pytest.raises(error, match=message):
        call(*arguments)


# The links between the words of a line and of its translation.


class Sides:
    """All that is asked of a translator."""

    def __init__(self, source, target):
        self.source_tokenizer, self.target_tokenizer = source, target
        self.max_source_length, self.max_target_length = 20, 30


def pieces(rule):
    lines = ["l eau est", "a b ½ 1 é e"] * 3
    return SentencePieceTokenizer.train(lines, vocab_size=60, normalization=rule)


@pytest.fixture(scope="module", params=["identity", "nmt_nfkc"])
def tokenizer(request):
    return pieces(request.param)


def aligned(tokens, source_tokens):
    """A translation of which token n attends to source token n."""
    alignment = np.eye(len(tokens), len(source_tokens))
    return kl.Translation("", 0.0, tokens, source_tokens, alignment, False, np.zeros(1))


def tokens_of(tokenizer, text):
    ids = tokenizer.encode([text])[0]
    return [x.decode() for x in tokenizer.pieces(ids).numpy()] + ["</s>"]


SIGNS = st.sampled_from("ab´¨½，e\u0301é▁…１\u200c \t\u00a0\u3000")


@settings(max_examples=50)
@given(st.text(SIGNS, max_size=20))
def test_linked_words_are_the_lines_own(tokenizer, text):
    """NFKC makes a space of `´`, after which all words were counted one too far."""
    tokens, words = tokens_of(tokenizer, text), text.split()
    sides, line = Sides(tokenizer, tokenizer), text.encode()
    found = word_links(sides, aligned(tokens, tokens), line, line)
    pairs = [tuple(map(int, link.split("-"))) for link in found.split()]
    assert all(i == j < len(words) for i, j in pairs)
    # Every word of which something is left has a link.
    kept = [n for n, word in enumerate(words) if tokenizer.word_ids(word)]
    assert sorted(i for i, _ in pairs) == kept


def test_t5_signs_that_become_spaces_and_spaces_that_become_letters():
    tokenizer = pieces("nmt_nfkc")
    lines = {"l´eau est": {0, 1}, "a¨b": {0}, "a ▁ b": {0, 2}, "▁": set()}
    for line, own in lines.items():
        said = aligned(*[tokens_of(tokenizer, line)] * 2)
        found = word_links(Sides(tokenizer, tokenizer), said, line.encode())
        assert {int(x) for x in re.findall(r"(\d+)-", found)} == own


@given(st.lists(st.sampled_from(["▁", "▁a", "b", "<unk>"]), max_size=9))
def test_linked_words_are_those_of_the_translation(tokenizer, pieces):
    """An empty translation had a link, and words without a "▁" fell apart."""
    words = "".join(pieces).replace("▁", " ").split()
    said = aligned([*pieces, "</s>"], tokens_of(tokenizer, "a"))
    said = said._replace(alignment=np.eye(1, 2)[[0] * (len(pieces) + 1)])
    links = " ".join(f"0-{n}" for n in range(len(words)))
    assert word_links(Sides(tokenizer, tokenizer), said, b"a") == links


LINKS = [
    ("a b", "A B", "A B </s>", "a b", "0-0 1-1"),
    ("a b", "A B", "A B", "a b", "0-0 1-1"),  # the translation was cut
    ("a b", "A B", "A B </s>", "a", "0-0 0-1"),  # the line was: its last token
    # Words may hold the sign that begins pieces, as text split before has them.
    ("▁a b ▁!", "▁A B ▁!", "▁A B ▁! </s>", "▁a b ▁!", "0-0 1-1 2-2"),
]


@pytest.mark.parametrize("source, target, tokens, line, expected", LINKS)
def test_links_of_words(source, target, tokens, line, expected):
    words = Sides(*(kl.WordTokenizer(x.split()) for x in (source, target)))
    said = aligned(tokens.split(), [*source.split(), "</s>"])
    assert word_links(words, said, line.encode()) == expected


def test_no_more_of_a_line_is_split_than_the_translator_reads():
    """A line of 1 MB without a space took 20 s."""
    seen = []

    class Watched(kl.WordTokenizer):
        def word_ids(self, text):
            seen.append(len(text))
            return super().word_ids(text)

    words = Sides(Watched(["a", "b"]), Watched(["A", "B"]))
    said = aligned(["A", "B", "</s>"], ["a", "b", "</s>"])
    line = b" " * 9999 + b"x" * 1_000_000
    assert word_links(words, said, line, line) == "0-0"
    assert seen == [20 * BYTES_PER_TOKEN, 30 * BYTES_PER_TOKEN]


def test_t1_unknown_words_are_copied_as_they_were_written():
    """NFKC would write most of these otherwise."""
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    words = ["½", "，", "ﬁ", "e\u0301", "１２", family]
    texts = ["the dog"] * 9
    tokenizer = SentencePieceTokenizer.train(texts, 20, normalization="nmt_nfkc")
    # Each word is a "▁" and the letters, which are not in the vocabulary.
    expected = [word for word in words for _ in "▁½"]
    source_tokens = tokens_of(tokenizer, " ".join(words))
    tokens = [*["<unk>"] * len(expected), "</s>"]
    weights = merge_weights(np.eye(len(tokens)), source_tokens, tokens)
    found = replace_unknowns(tokens, [*words, "</s>"], weights)
    assert found == [*expected, "</s>"]
