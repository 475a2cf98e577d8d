"""The links between the words of a line and of its translation."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_luong import Translation
from keras_luong.cli.lines import word_links
from keras_luong.text.sentencepiece import SentencePieceTokenizer
from keras_luong.text.words import WordTokenizer
from keras_luong.translation.graph import BYTES_PER_TOKEN

TEXT = st.text(st.sampled_from("ab´¨½，e\u0301é▁…１\u200c \t\u00a0\u3000"), max_size=20)


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
    return Translation("", 0.0, tokens, source_tokens, alignment, False, np.zeros(1))


def tokens_of(tokenizer, text):
    ids = tokenizer.encode([text])[0]
    return [x.decode() for x in tokenizer.pieces(ids).numpy()] + ["</s>"]


@given(text=TEXT)
def test_words_are_the_lines_own(tokenizer, text):
    """NFKC makes a space of `´`, after which all words were counted one too far."""
    tokens, words = tokens_of(tokenizer, text), text.split()
    links = word_links(
        Sides(tokenizer, tokenizer),
        aligned(tokens, tokens),
        text.encode(),
        text.encode(),
    )
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    assert all(i == j < len(words) for i, j in pairs)
    # Every word of which something is left has a link.
    kept = [n for n, word in enumerate(words) if tokenizer.word_ids(word)]
    assert sorted(i for i, _ in pairs) == kept


@pytest.mark.parametrize(
    "line, own",
    [("l´eau est", [0, 1]), ("a¨b", [0]), ("a ▁ b", [0, 2]), ("▁", [])],
)
def test_t5_signs_that_become_spaces(line, own):
    tokenizer = pieces("nmt_nfkc")
    tokens = tokens_of(tokenizer, line)
    links = word_links(
        Sides(tokenizer, tokenizer), aligned(tokens, tokens), line.encode()
    )
    assert sorted({int(x) for x in re.findall(r"(\d+)-", links)}) == own


@pytest.mark.parametrize("ended", [True, False])
def test_the_last_word_of_a_cut_translation_keeps_its_link(ended):
    words = Sides(WordTokenizer(["a", "b"]), WordTokenizer(["A", "B"]))
    said = aligned(["A", "B", *["</s>"] * ended], ["a", "b", "</s>"])
    assert word_links(words, said, b"a b") == "0-0 1-1"


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc"])
@pytest.mark.parametrize("text", ["\x85", "\u2028", "", " \t"])
def test_letters_that_a_rule_makes_of_white_space_are_of_the_first_word(rule, text):
    tokenizer = pieces(rule)
    ids = tokenizer.word_ids(text)
    assert len(ids) == len(tokenizer.encode([text])[0]) and set(ids) <= {0}


def test_words_may_hold_the_sign_that_begins_pieces():
    """As text does that was split into pieces before, and is read as words."""
    words = Sides(
        WordTokenizer(["▁Hun", "de", "▁!"]), WordTokenizer(["▁dog", "s", "▁!"])
    )
    said = aligned(["▁dog", "s", "▁!", "</s>"], ["▁Hun", "de", "▁!", "</s>"])
    assert word_links(words, said, "▁Hun de ▁!".encode()) == "0-0 1-1 2-2"


def test_a_line_that_was_cut():
    """Where the tokenizer saw but the beginning, its last token may be another."""
    words = Sides(WordTokenizer(["a", "b"]), WordTokenizer(["A", "B"]))
    said = aligned(["A", "B", "</s>"], ["a", "b", "</s>"])
    assert word_links(words, said, b"a") == "0-0 0-1"


def test_no_more_of_a_line_is_split_than_the_translator_reads():
    """A line of 1 MB without a space took 20 s."""
    seen = []

    class Watched(WordTokenizer):
        def word_ids(self, text):
            seen.append(len(text))
            return super().word_ids(text)

    words = Sides(Watched(["a", "b"]), Watched(["A", "B"]))
    said = aligned(["A", "B", "</s>"], ["a", "b", "</s>"])
    line = b" " * 9999 + b"x" * 1_000_000
    assert word_links(words, said, line, line) == "0-0"
    assert seen == [20 * BYTES_PER_TOKEN, 30 * BYTES_PER_TOKEN]


def test_any_tokenizer_will_do():
    class Own:
        """Has no `word_ids`."""

    said = aligned(["A", "</s>"], ["▁a", "</s>"])
    assert word_links(Sides(Own(), Own()), said, b"a", b"A") == "0-0"
