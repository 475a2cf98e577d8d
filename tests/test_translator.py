"""Text in, text out: the right text, in the right order, for any input at all."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from copy_translator import SOURCE_WORDS, TARGET_WORDS, CopyModel, make, texts_of
from small_translator import word_translator

from keras_luong import Translation, Translator
from keras_luong.decoding import (
    BeamSearch,
    GreedySearch,
    RandomSampling,
    Shortlist,
)
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID
from keras_luong.text.tokenizer_pair import (
    SentencePieceTokenizer,
    TokenizerPair,
    WordTokenizer,
)


@pytest.mark.parametrize("search", [None, GreedySearch(50)])
@pytest.mark.parametrize(
    "batch_size", [pytest.param(1, marks=pytest.mark.slow), 2, 100]
)
def test_any_order_any_batch_size(search, batch_size):
    sources = ["three", "one two three four", "two one", "", "four four four", "one"]
    translations = make(search).translate(sources, batch_size=batch_size)
    assert texts_of(translations) == [
        "drei",
        "eins zwei drei vier",
        "zwei eins",
        "",
        "vier vier vier",
        "eins",
    ]


def test_everything_about_a_translation():
    short, long = make().translate(["two", "one three two"])
    assert isinstance(short, Translation)
    assert short.tokens == ["zwei", "</s>"] and short.source_tokens == ["two", "</s>"]
    assert long.tokens == ["eins", "drei", "zwei", "</s>"]
    assert short.truncated is False and isinstance(short.score, float)
    assert long.score == pytest.approx(-4 * np.log1p(7 * np.exp(-20)), abs=1e-5)
    for translation, length in ((short, 2), (long, 4)):
        assert translation.alignment.dtype == np.float32
        np.testing.assert_array_equal(translation.alignment, np.eye(length))


def test_iterables_and_bytes():
    translator = make()
    assert texts_of(translator.translate(iter(["one", b"two"]))) == ["eins", "zwei"]
    assert texts_of(translator.translate(tf.constant(["one"]))) == ["eins"]
    assert texts_of(translator.translate(np.array(["one"]))) == ["eins"]
    assert translator.translate([]) == []


@pytest.mark.parametrize(
    "blank", ["", " ", "\t \n", "\u00a0", "\u3000\u2003 ", "\x0b\x1c\x85", b"", b"  "]
)
def test_blank_in_blank_out(blank):
    alone = make().translate([blank])
    among = make().translate(["one two", blank, "three"])
    assert texts_of(among) == ["eins zwei", "", "drei"]
    for translation in (alone[0], among[1]):
        assert translation.text == "" and translation.score == 0.0
        assert translation.tokens == translation.source_tokens == []
        assert translation.alignment.shape == (0, 0)
        assert translation.truncated is False


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe",
        b"one \xc3",
        "one \ud800",
        "\U0001f600",
        "日本語",
        b"\x00",
        "\ufeff one",
    ],
)
def test_strange_bytes_are_unknown_and_spoil_nothing(text):
    strange, plain = make().translate([text, "one two"])
    assert plain.text == "eins zwei"
    assert strange.source_tokens[-1] == "</s>"
    assert "<unk>" in strange.source_tokens
    assert np.isfinite(strange.score) and np.isfinite(strange.alignment).all()


def test_a_lone_unknown_character_reads_as_the_replacement_character():
    seen = []

    class Watching(WordTokenizer):
        def encode(self, texts):
            tf.py_function(lambda x: seen.extend(x.numpy()), [texts], [])
            return super().encode(texts)

    tokenizer = Watching(SOURCE_WORDS)
    Translator(CopyModel(), tokenizer, GreedySearch(9)).translate([b"one \xff two"])
    assert seen == ["one \ufffd two".encode()]


def test_too_long_is_cut_and_said_so_once():
    translator = make(max_source_length=3)
    sources = ["one two three", "one two three four", "four", "two " * 40]
    with pytest.warns(UserWarning, match="2 of 4 texts .* max_source_length=3") as said:
        translations = translator.translate(sources, batch_size=1)
    assert len(said) == 1 and said[0].filename == __file__
    assert [x.truncated for x in translations] == [False, True, False, True]
    assert texts_of(translations)[1:] == ["eins zwei drei", "vier", "zwei zwei zwei"]
    assert translations[3].source_tokens == ["two"] * 3 + ["</s>"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator.translate(["one two three"])


def test_serve_says_the_same_as_translate():
    translator = make(max_source_length=3)
    sources = ["two one", "", b"\xff", "one two three four", "three"]
    with pytest.warns(UserWarning):
        translations = translator.translate(sources)
    served = translator.serve(tf.constant(sources))
    assert sorted(served) == ["score", "translation", "truncated"]
    decoded = [x.decode() for x in served["translation"].numpy()]
    assert decoded == texts_of(translations)
    np.testing.assert_allclose(served["score"], [x.score for x in translations], 1e-6)
    assert served["truncated"].numpy().tolist() == [x.truncated for x in translations]
    nothing = translator.serve(tf.constant([], tf.string))
    assert [nothing[x].shape.as_list() for x in sorted(nothing)] == [[0]] * 3


def test_one_trace_serves_all_shapes():
    traces = []

    def search(model, source_ids):
        traces.append(source_ids.shape)
        return BeamSearch(2)(model, source_ids)

    translator = make(search)
    for sources in (["one"], ["one two", "three"], ["one " * 9, "", "two"]):
        translator.translate(sources, batch_size=2)
    assert len(traces) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a .quantize")
def test_replaced_weights_count():
    """As `quantize` replaces them, whatever the translator has said before."""
    translator, text = word_translator(), ["the red dog"]

    def everything(translator):
        return [
            translator.translate(text)[0].score,
            translator.translate(text, prefixes=["der"])[0].score,
            translator.score(text, ["der Hund"])[0].score,
            float(translator.serve(tf.constant(text))["score"][0]),
        ]

    before = everything(translator)
    translator.model.quantize("int8")
    for variable in translator.model.output_layer.variables:
        variable.assign(tf.ones_like(variable))
    expected = everything(translator.with_search())  # which has traced nothing yet
    np.testing.assert_allclose(everything(translator), expected, atol=1e-5)
    assert np.abs(np.subtract(before, expected)).min() > 1e-3


def test_a_hypothesis_that_does_not_exist_is_empty():
    class Mute(CopyModel):
        def step(self, *args):
            logits, state, weights = super().step(*args)
            return tf.fill(tf.shape(logits), float("-inf")), state, weights

    tokenizer = WordTokenizer(SOURCE_WORDS)
    (translation,) = Translator(Mute(), tokenizer).translate(["one two"])
    assert translation.text == "" and translation.score == -np.inf
    assert translation.alignment.shape == (0, 3)


def test_what_tokenizers_may_be():
    source, target = WordTokenizer(SOURCE_WORDS), WordTokenizer(TARGET_WORDS)
    for tokenizers, expected in (
        (TokenizerPair(source, target), (source, target)),
        ((source, target), (source, target)),
        (source, (source, source)),
    ):
        translator = Translator(CopyModel(), tokenizers)
        assert (translator.source_tokenizer, translator.target_tokenizer) == expected


def test_a_real_model_with_sentencepiece():
    sentences = [f"the {a} dog is {b} the house" for a in "abcdef" for b in "uvwxyz"]
    tokenizer = SentencePieceTokenizer.train(sentences, vocab_size=40)
    size = tokenizer.vocab_size
    model = Seq2Seq(Seq2SeqConfig(size, size, units=8, max_source_length=None))
    search = BeamSearch(3, max_length=6, length_penalty=0.6)
    translator = Translator(model, tokenizer, search)
    sources = ["the a dog", "", "is", b"\xff house", "the u the v the w the x"]
    together = translator.translate(sources, batch_size=5)
    for text, translation in zip(sources, together, strict=True):
        (alone,) = translator.translate([text])
        assert alone.text == translation.text
        assert alone.tokens == translation.tokens
        assert alone.score == pytest.approx(translation.score, abs=1e-5)
        np.testing.assert_allclose(alone.alignment, translation.alignment, atol=1e-5)
        if text:
            np.testing.assert_allclose(alone.alignment.sum(1), 1.0, atol=1e-5)

    ids = np.array([[*tokenizer.encode(tf.constant(["is"])).to_list()[0], EOS_ID]])
    hypotheses = search(model, ids)
    length = int(hypotheses.lengths[0, 0])
    best = hypotheses.ids[0, 0, :length].numpy()
    logits = model({"source": ids, "target": np.array([[BOS_ID, *best[:-1]]])})
    log_probs = tf.nn.log_softmax(logits)[0].numpy()[np.arange(length), best]
    score = log_probs.sum() / ((5 + length) / 6) ** 0.6
    assert together[2].score == pytest.approx(score, abs=1e-4)
    assert PAD_ID not in best


WRONG = [
    ({"model": "m30k"}, TypeError, "`encode` and `step`.*Received: 'm30k'"),
    ({"tokenizers": 3}, TypeError, "`tokenizers` must be a TokenizerPair.*Received: 3"),
    ({"search": 5}, TypeError, "`search` must be callable.*Received: 5"),
    ({"max_source_length": 0}, ValueError, "at least 1. Received: 0"),
    ({"max_source_length": None}, TypeError, "must be an integer. Received: None"),
]


@pytest.mark.parametrize(("change", "error", "message"), WRONG)
def test_wrong_arguments(change, error, message):
    arguments = {"model": CopyModel(), "tokenizers": WordTokenizer(SOURCE_WORDS)}
    with pytest.raises(error, match=message):
        Translator(**{**arguments, **change})


@pytest.mark.parametrize("sizes", [(6, 8), (8, 6)])
def test_vocabularies_must_fit(sizes):
    model = Seq2Seq(Seq2SeqConfig(*sizes, units=4))
    side = "source" if sizes[0] == 6 else "target"
    with pytest.raises(ValueError, match=f"{side} tokenizer has 8 .*vocab_size is 6"):
        Translator(model, WordTokenizer(SOURCE_WORDS))


def test_n_best_are_all_that_the_search_found():
    translator = make(BeamSearch(4, n_best=3))
    sources = ["one two", "", "three"]
    best = translator.translate(sources)
    found = translator.translate(sources, n_best=True)
    assert [hypotheses[0].text for hypotheses in found] == texts_of(best)
    assert len(found[0]) == len(found[2]) == 3
    assert [t.text for t in found[1]] == [""]  # nothing has only one translation
    for hypotheses in found:
        scores = [t.score for t in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({t.text for t in hypotheses}) == len(hypotheses)
        for t in hypotheses:
            assert t.log_probs.shape == (len(t.tokens),)
            assert t.log_probs.sum() == pytest.approx(t.score, abs=1e-4)


def test_a_translation_begins_as_it_must():
    translator = make()
    free, forced = translator.translate(["one two", "one two"], prefixes=["", "vier"])
    assert free.text == "eins zwei" and forced.text == "vier zwei"
    with pytest.raises(ValueError, match="one of `prefixes` for each text"):
        translator.translate(["one"], prefixes=[])
    forced, free = translator.stream(["one two", "one"], prefixes=iter(["vier", ""]))
    assert forced.text == "vier zwei" and free.text == "eins"


MUST = BeamSearch(4, n_best=2, max_length=7)


def test_a_translation_has_the_phrases_that_it_must():
    texts, must = ["one two", "", "three"], [["vier", "zwei  eins"], ["vier"], []]
    with pytest.warns(UserWarning, match="1 of 3 translations lack"):
        found = make(MUST).translate(texts, constraints=must, n_best=True)
    for t in found[0]:
        assert "vier" in t.tokens and "zwei eins" in t.text and t.unmet == ()
    assert [(t.text, t.unmet) for t in found[1]] == [("", ("vier",))]
    free = make(MUST).translate(["three"], n_best=True)
    assert texts_of(found[2]) == texts_of(free[0])
    (t,) = make(MUST).stream(iter(["one"]), constraints=iter([("vier", "vier")]))
    assert t.text.split().count("vier") == 2
    (t,) = make(MUST).translate(["one"], prefixes=["drei"], constraints=[["vier"]])
    assert t.text.startswith("drei") and "vier" in t.tokens


def test_what_finds_no_room_is_named():
    must = ["vier drei zwei eins vier", "eins eins eins"]
    with pytest.warns(UserWarning, match="1 of 1 translations lack"):
        (t,) = make(MUST).translate(["one"], constraints=[must])
    assert t.unmet in [(must[0],), (must[1],)]


@pytest.mark.parametrize(
    ("constraints", "error", "message"),
    [
        ([["vier fünf"], ["x"]], ValueError, "'vier fünf', 'x': .*does not know all"),
        ([[" "]], ValueError, "must have a word. Received: ' '"),
        (["vier"], TypeError, r"'vier' at place 0; write \[phrase\]"),
        ("vier", TypeError, "list of phrases for each text"),
        ([[4]], TypeError, "must be a str. Received: 4"),
        ([], ValueError, "one of `constraints` for each text"),
    ],
)
def test_wrong_constraints(constraints, error, message):
    with pytest.raises(error, match=message):
        make(MUST).translate(
            ["one", "two"][: len(constraints) or 1], constraints=constraints
        )


def test_constraints_need_a_beam_search():
    with pytest.raises(TypeError, match="Only a BeamSearch.*GreedySearch"):
        make(GreedySearch(50)).translate(["one"], constraints=[["vier"]])


def test_what_tokens_write():
    sentences = ["Hund Hunde Hundert, ein Hund. Hunde"] * 3
    tokenizer = SentencePieceTokenizer.train(sentences, vocab_size=20)
    for text in ("Hund. Hunde", "Hundert, ein"):
        ids = tokenizer.encode(tf.constant([text])).to_list()[0]
        assert "".join(tokenizer.texts[i] for i in ids) == f" {text}"
    assert WordTokenizer(["a"]).texts == ["", " <unk>", "", "", " a"]


def test_with_another_search():
    translator = make(BeamSearch(3, length_penalty=0.6), max_source_length=5)
    wide = translator.with_search(beam_width=4, n_best=2, max_source_length=7)
    assert wide.search == BeamSearch(4, 2, length_penalty=0.6)
    assert (wide.max_source_length, translator.max_source_length) == (7, 5)
    assert translator.search == BeamSearch(3, length_penalty=0.6)
    assert wide.model is translator.model and wide.tokenizers is translator.tokenizers
    other = translator.with_search(GreedySearch(9), max_length=3)
    assert other.search == GreedySearch(3) and other.max_source_length == 5
    assert texts_of(other.translate(["one two three four"])) == ["eins zwei drei"]
    assert translator.with_search().search is translator.search


@pytest.mark.parametrize(
    ("search", "changes", "error", "message"),
    [
        (None, {"n_best": 9}, ValueError, "n_best=9, beam_width=3"),
        (GreedySearch(3), {"beam_width": 2}, TypeError, "GreedySearch.*'beam_width'"),
        (lambda model, ids: None, {"max_length": 2}, TypeError, "dataclass"),
        (5, {}, TypeError, "`search` must be callable.*Received: 5"),
        (None, {"max_source_length": 0}, ValueError, "max_source_length must be"),
    ],
)
def test_another_search_that_cannot_be(search, changes, error, message):
    with pytest.raises(error, match=message):
        make().with_search(search, **changes)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """XLA compiles the search of all texts but the first ones."""
    monkeypatch.setattr("keras_luong.translation.translator.pays_to_compile", bool)


@pytest.mark.slow
@pytest.mark.parametrize(
    "search", [GreedySearch(None), BeamSearch(1, 1, 7), BeamSearch(5, 3, None, 0.6)]
)
def test_compiled_by_xla_it_says_the_same(search, as_on_a_gpu):
    texts = ["the red dog", "", "cat is", "dog " * 9, "is is is red"]
    plain = word_translator(search)
    plain.jit_compile = False
    compiled = Translator(plain.model, plain.tokenizers, search, 10)
    kinds = [{}, {"prefixes": ["der", "", "Hund ist", "", "ist"]}]
    for more in kinds[: 1 + isinstance(search, BeamSearch)]:  # which takes prefixes
        compiled._translated = 1
        found = compiled.translate(texts, n_best=True, **more)
        expected = plain.translate(texts, n_best=True, **more)
        for one, other in zip(sum(found, []), sum(expected, []), strict=True):
            assert one.text == other.text and one.tokens == other.tokens
            assert one.score == pytest.approx(other.score, rel=1e-5, abs=1e-5)
            np.testing.assert_allclose(one.alignment, other.alignment, 1e-5, 1e-5)
    assert compiled.jit_compile is None  # it could
    assert "_compiled_graph" in vars(compiled) and "_compiled_graph" not in vars(plain)


class Talking(CopyModel):
    """Has an operation that XLA cannot compile."""

    def step(self, tokens, position, source_ids):
        with tf.control_dependencies([tf.py_function(lambda: 0, [], tf.int32)]):
            return super().step(tf.identity(tokens), position, source_ids)


@pytest.mark.slow
def test_what_xla_cannot_compile_is_translated_without(as_on_a_gpu):
    texts = ["one two", "three"]
    talking = Translator(Talking(), make().tokenizers, GreedySearch(50))
    for compiles in (None, None, False, False):
        assert talking.jit_compile is compiles
        assert texts_of(talking.translate(texts)) == ["eins zwei", "drei"]
    talking.jit_compile = True
    with pytest.raises(tf.errors.OpError):
        talking.translate(texts)


@pytest.mark.slow
def test_some_searches_are_not_compiled():
    texts = ["the dog is red", "cat"]
    listed = Shortlist([4, 5, 6], np.full([9, 1], 4), 7)
    for search in (RandomSampling(seed=1), BeamSearch(2, 1, 9, shortlist=listed)):
        usual = word_translator(search)
        told = usual.with_search()
        told.jit_compile = True
        assert texts_of(told.translate(texts)) == texts_of(usual.translate(texts))
    told = told.with_search(MUST)
    (t,) = told.translate(["cat"], constraints=[["Hund"]])
    assert "Hund" in t.tokens and told.jit_compile


def test_only_translate_is_compiled(as_on_a_gpu):
    translator = make().with_search()
    translator.translate(["one"])
    like = [tf.TensorSpec([None], tf.string)]

    def is_compiled(method):
        function = tf.function(method, input_signature=like, autograph=False)
        graph = function.get_concrete_function().graph.as_graph_def()
        return "_XlaMustCompile" in str(graph)

    assert not is_compiled(translator.serve)  # exports have it
    assert not is_compiled(translator.graph.translate)
    assert is_compiled(translator._compiled_graph.translate)


MULTI30K = Path(__file__).parents[2] / "shared/data/multi30k/val.en"


@pytest.mark.slow
@pytest.mark.skipif(not MULTI30K.exists(), reason="needs Multi30k")
def test_xla_compiles_a_few_times_for_a_thousand_sentences(tmp_path):
    script = """if True:
        import sys
        from copy_translator import CopyModel, make
        from keras_luong import GreedySearch, Translator
        texts = open(sys.argv[1], encoding="utf-8").read().splitlines()[:1000]
        of_copies = CopyModel(), make().tokenizers, GreedySearch(None)
        translator = Translator(*of_copies, jit_compile=True)
        found = [len(x.tokens) for x in translator.translate(texts)]
        assert found == [len(text.split()) + 1 for text in texts]
    """
    flags = {"XLA_FLAGS": f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"}
    path = {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    command = [sys.executable, "-c", script, str(MULTI30K)]
    subprocess.run(command, check=True, env={**os.environ, **flags, **path})
    assert 1 < len([*tmp_path.glob("*_after_optimizations.txt")]) <= 5


@pytest.mark.parametrize("window", [1, 2, 100])
def test_a_stream_says_the_same_and_reads_no_further_than_its_window(window):
    sources = ["three", "one two three four", "", "two one", "one"]
    taken = []

    def lines():
        for source in sources:
            taken.append(source)
            yield source

    translator = make()
    stream = translator.stream(lines(), window=window)
    first = next(stream)
    assert len(taken) <= window
    assert [first, *stream][0].text == "drei"
    texts = texts_of(translator.stream(sources, window=window))
    assert texts == texts_of(translator.translate(sources))
    with pytest.raises(TypeError, match="the single 'one'"):
        next(translator.stream("one"))
