"""Words that a model does not know: copied as they were written, in every runtime.

NFKC would write most of these words otherwise.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from leave_slow import slow_but

from keras_luong import Translator, export_saved_model, export_tflite
from keras_luong.decoding import BeamSearch
from keras_luong.evaluation.alignment import merge_weights, replace_unknowns
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.special_ids import EOS_ID, UNK_ID
from keras_luong.text.tokenizer_pair import (
    SentencePieceTokenizer,
    TokenizerPair,
    WordTokenizer,
)

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
WORDS = ["½", "，", "ﬁ", "e\u0301", "１２", FAMILY]
TEXT = " ".join(WORDS)
#: In pieces each word is a "▁" and the letters, which are not in the vocabulary.
GOLD = {"word": WORDS, "nmt_nfkc": [word for word in WORDS for _ in "▁½"]}


@pytest.fixture(scope="module", params=slow_but(GOLD, "word"))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def translator(kind):
    """It says `<unk>` until it may end, and attends to each source token in turn."""
    source = WordTokenizer(["the", "dog"])
    if kind == "nmt_nfkc":
        source = SentencePieceTokenizer.train(["the dog"] * 9, 20, normalization=kind)
    pair = TokenizerPair(source, WordTokenizer(["der", "Hund"]))
    sizes = source.vocab_size, pair.target.vocab_size
    # Of equal scores the Gaussian prefers the middle of the window.
    options = {
        "attention": "local-m",
        "window": 1,
        "gaussian": True,
        "output_bias": True,
    }
    model = Seq2Seq(Seq2SeqConfig(*sizes, units=4, init_scale=1e-9, **options))
    model.output_layer.bias.assign(np.eye(sizes[1])[EOS_ID])
    others = [i for i in range(sizes[1]) if i not in (UNK_ID, EOS_ID)]
    length = len(GOLD[kind]) + 1  # with the end token
    search = BeamSearch(1, min_length=length, max_length=length, forbidden=others)
    return Translator(model, pair, search)


def replaced(tokens, source_tokens, alignment):
    """What README says: the words of the source as they were written."""
    weights = merge_weights(alignment, source_tokens, tokens)
    *words, end = replace_unknowns(tokens, [*TEXT.split(), "</s>"], weights)
    assert end == "</s>"
    return words


def test_t1_words_are_copied_as_they_were_written(kind, translator):
    t = translator.translate([TEXT])[0]
    assert set(t.tokens) == {"<unk>", "</s>"}
    assert "½" not in "".join(t.source_tokens)
    assert replaced(t.tokens, t.source_tokens, t.alignment) == GOLD[kind]


@pytest.mark.slow
def test_t1_words_are_copied_as_they_were_written_by_a_saved_model(
    kind, translator, tmp_path
):
    model = tf.saved_model.load(str(export_saved_model(translator, tmp_path)))
    said = model.signatures["align"](text=tf.constant([TEXT]))
    said = {name: x.numpy()[0] for name, x in said.items()}
    T, S = said["length"], said["source_length"]
    tokens, source_tokens = (
        [x.decode() for x in said[name][:size]]
        for name, size in (("tokens", T), ("source_tokens", S))
    )
    found = replaced(tokens, source_tokens, said["alignment"][:T, :S])
    assert found == GOLD[kind]


def test_t1_words_are_copied_as_they_were_written_on_the_edge(
    kind, translator, tmp_path
):
    pytest.importorskip("ai_edge_litert.interpreter")
    edge = pytest.importorskip("keras_luong_edge")
    on_edge = edge.EdgeTranslator(export_tflite(translator, tmp_path / "x.tflite"))
    t = on_edge.translate([TEXT])[0]
    assert replaced(t.tokens, t.source_tokens, t.alignment) == GOLD[kind]
