"""What changes in a text before SentencePiece splits it: in a target, white space."""

import re
import unicodedata

import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from keras_luong.text.sentencepiece import (
    NORMALIZATIONS,
    SentencePieceTokenizer,
    normalizer,
    with_normalization,
)

LETTERS = "abcdefgh，！？：；（）…½²™１２\u200c\u200d«»é\u0301あ你好،؟।ไทย⁇"
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
MOSTLY_KNOWN = st.text(st.sampled_from(LETTERS + " \t\u00a0\u3000▁"), max_size=60)


@pytest.fixture(scope="module")
def tokenizer():
    lines = [LETTERS[i : i + 7] for i in range(len(LETTERS))] * 3
    return SentencePieceTokenizer.train(lines, vocab_size=500, character_coverage=1.0)


def one_space(text):
    """The text but for its white space; "▁" is SentencePiece's own sign for a space."""
    return " ".join(text.replace("▁", " ").split())


def as_written(tokenizer, text):
    """The text but for white space, and runs of letters without a piece: "⁇"."""
    known = {x for piece in tokenizer.vocabulary[4:] for x in piece}
    return re.sub(f"[^{re.escape(''.join(known))} ]+", "⁇", one_space(text))


def round_trip(tokenizer, texts):
    decoded = tokenizer.decode(tokenizer.encode(tf.constant(texts)))
    return [x.decode() for x in decoded.numpy()]


@pytest.mark.slow
@given(st.lists(ANY_TEXT | MOSTLY_KNOWN, min_size=1, max_size=20))
@example(["</s> <s> <unk> <pad>", "\0", "▁", "", "a\0b", "\ufeff\ufffe\U0010ffff"])
@example(
    [
        "e\u0301 \u00e9",
        "a\u2028b\x85c\x1cd",
        "你好，世界！",
        "½ ² ™ １２",
        "می\u200cخواهم",
    ]
)
def test_t1_nothing_but_white_space_changes(tokenizer, texts):
    assert round_trip(tokenizer, texts) == [as_written(tokenizer, x) for x in texts]


@pytest.mark.slow
@given(st.lists(ANY_TEXT, min_size=1, max_size=20))
def test_python_reads_as_the_graph_does(tokenizer, texts):
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    ids = tokenizer.encode(tf.constant(texts)).to_list()
    assert ids == processor.encode(texts)
    assert [processor.decode(row) for row in ids] == round_trip(tokenizer, texts)


def test_another_rule_has_the_same_pieces(tokenizer):
    other = tokenizer.with_normalization("nmt_nfkc")
    assert other.vocabulary == tokenizer.vocabulary
    assert round_trip(other, ["ａ　\u00a0１", "a b"]) == ["a ⁇", "a b"]  # no plain 1
    assert tokenizer.with_normalization("identity").model == tokenizer.model


@given(text=ANY_TEXT)
def test_identity_leaves_letters_alone(text):
    assert normalizer("identity")(text) == one_space(text)


@given(text=st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=40))
def test_nfkc_is_unicodes(text):
    found = normalizer("nfkc")(text)
    assert found.split() == unicodedata.normalize("NFKC", text).split()


def test_models_tell_no_path_and_are_always_the_same(tokenizer):
    for rule in NORMALIZATIONS:
        model = with_normalization(tokenizer.model, rule)
        assert b".tsv" not in model
        assert with_normalization(model, "identity") == tokenizer.model


def test_an_unknown_rule():
    with pytest.raises(ValueError, match="normalization.*nfd"):
        SentencePieceTokenizer.train(["a b"], 10, normalization="nfd")
