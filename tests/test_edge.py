"""The edge's runtime says what the library's `Translator` says.

`export/edge` is a distribution of its own, which shares no code with this library; its
own tests are in `export/edge/tests`.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leave_slow import slow_but
from small_translator import (
    SENTENCES,
    sentencepiece_translator,
    to_bytes,
    word_translator,
)

from keras_luong import Translator, export_tflite
from keras_luong.decoding import BeamSearch
from keras_luong.models import build
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_luong.text.tokenizer_pair import WordTokenizer
from keras_luong_edge import EdgeTranslator
from keras_luong_edge.archive import read_archive

pytest.importorskip("ai_edge_litert.interpreter")

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")

EDGE = Path(__file__).parents[1] / "export" / "edge"


def sentencepiece_n_best():
    translator = sentencepiece_translator()
    search = dataclasses.replace(translator.search, n_best=3)
    tokenizers, most = translator.tokenizers, translator.max_source_length
    return Translator(translator.model, tokenizers, search, most)


PAIRS = {
    "pieces": (sentencepiece_n_best, None),
    "words": (word_translator, None),
    "words, 16": (word_translator, 16),
}


@pytest.fixture(scope="module", params=PAIRS)
def pair(request, tmp_path_factory):
    """A translator, and its export."""
    make, source_length = PAIRS[request.param]
    translator = make()
    path = tmp_path_factory.mktemp("edge") / "x.tflite"
    export_tflite(translator, path, source_length=source_length)
    return translator, EdgeTranslator(path), path


def assert_the_same(said, expected):
    """All hypotheses of all texts, in everything that a `Translation` says."""
    assert [len(x) for x in said] == [len(x) for x in expected]
    for hypotheses, others in zip(said, expected, strict=True):
        for a, b in zip(hypotheses, others, strict=True):
            # Phrases that must occur are not of the edge.
            assert (*a._fields, "unmet") == b._fields
            assert a.text == b.text
            assert a.tokens == b.tokens
            assert a.source_tokens == b.source_tokens
            assert a.truncated is b.truncated
            for name in ("score", "alignment", "log_probs"):
                x, y = getattr(a, name), getattr(b, name)
                assert type(x) is type(y) and np.shape(x) == np.shape(y)
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pair", slow_but(PAIRS, "pieces"), indirect=True)
def test_hostile_and_other_sentences(pair):
    translator, on_edge, _ = pair
    expected = translator.translate(SENTENCES, n_best=True)
    assert_the_same(on_edge.translate(SENTENCES, n_best=True), expected)
    best = on_edge.translate(SENTENCES)
    assert [t.text for t in best] == [hypotheses[0].text for hypotheses in expected]


ALPHABET = st.sampled_from(
    [*b"abcdefgh t\n\t\r\x00\x1c\x85\xa0\xc3\xe2\x96\x81\xed\xf0\xff", *b"the dog"]
)
SYLLABLES = st.sampled_from(["the", "red", "dog", "under", "a", "u", "th", "in", "x"])
LONG_WORDS = st.lists(SYLLABLES, min_size=30, max_size=120).map("".join).map(str.encode)
TEXTS = st.one_of(
    st.binary(max_size=80),
    st.lists(ALPHABET, max_size=80).map(bytes),
    LONG_WORDS,
    st.text(max_size=40),
    st.text(st.characters(categories=["Cs", "Zs", "Cc", "Ll"]), max_size=40),
)


@settings(max_examples=25)
@given(TEXTS)
def test_any_text(pair, text):
    translator, on_edge, _ = pair
    expected = translator.translate([text], n_best=True)
    assert_the_same(on_edge.translate([text], n_best=True), expected)


@pytest.mark.parametrize("pair", slow_but(PAIRS, "pieces"), indirect=True)
@settings(max_examples=100)
@given(st.lists(st.integers(0, 8), max_size=12))
def test_ids_are_written_as_keras_writes_them(pair, ids):
    translator, _, path = pair
    on_edge = read_archive(path).target
    size = translator.target_tokenizer.vocab_size
    ids = np.array([i % size for i in ids], "int32")
    if EOS_ID in ids:  # a hypothesis ends with its first end
        ids = ids[: list(ids).index(EOS_ID) + 1]
    expected = translator.target_tokenizer.decode(ids[None]).numpy()[0].decode()
    assert on_edge.decode(ids) == expected
    pieces = translator.target_tokenizer.pieces(ids).numpy()
    assert on_edge.pieces(ids) == [x.decode() for x in pieces]


def test_special_ids_are_the_librarys(pair):
    assert read_archive(pair[2]).special == (PAD_ID, UNK_ID, BOS_ID, EOS_ID)


def test_the_limit_in_bytes(pair):
    translator, on_edge, _ = pair
    most = 64 * translator.max_source_length
    texts = ["x" * most, "x" * (most + 1)]
    expected = translator.translate(texts, n_best=True)
    assert expected[1][0].truncated
    assert_the_same(on_edge.translate(texts, n_best=True), expected)


def test_how_many_hypotheses_a_file_has(pair):
    translator, on_edge, _ = pair
    assert on_edge.n_best == translator.search.n_best


class Wide:
    """A model that says ids beyond its tokenizer's vocabulary, or nothing at all."""

    def __init__(self, bias):
        self.model = build("small", 6, 12, units=4)
        self.bias = np.array(bias, "float32")

    def encode(self, source_ids):
        return self.model.encode(source_ids)

    def step(self, tokens, state, memory):
        logits, state, weights = self.model.step(tokens, state, memory)
        return logits + self.bias, state, weights


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bias", "text", "score"),
    [
        ([0] * 11 + [99], "<unk> <unk> <unk>", None),
        ([np.nan] * 12, "", -np.inf),
    ],
    ids=["ids beyond the vocabulary", "nothing is possible"],
)
def test_strange_models_are_read_as_keras_reads_them(bias, text, score, tmp_path):
    tokenizer = WordTokenizer(["a", "b"])
    search = BeamSearch(2, max_length=3)
    translator = Translator(Wide(bias), tokenizer, search)
    path = export_tflite(translator, tmp_path / "x.tflite")
    (found,) = EdgeTranslator(path).translate(["a b"])
    (expected,) = translator.translate(["a b"])
    assert found.text == expected.text == text
    assert found.tokens == expected.tokens
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-4)
    assert score is None or found.score == score


def test_the_command_says_it_too(pair, monkeypatch):
    translator, _, path = pair
    monkeypatch.setenv("PYTHONPATH", str(EDGE))
    lines = [x for x in map(to_bytes, SENTENCES) if b"\n" not in x]
    done = subprocess.run(
        [sys.executable, "-m", "keras_luong_edge", path, "--n_best", "2"],
        input=b"\n".join(lines),  # the last line without its end
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    expected = [
        (str(number), t.text, pytest.approx(t.score, abs=1e-4))
        for number, hypotheses in enumerate(translator.translate(lines, n_best=True))
        for t in hypotheses[:2]
    ]
    rows = [line.split(" ||| ") for line in done.stdout.decode().splitlines()]
    assert [(n, text, float(score)) for n, text, score in rows] == expected
