"""Text in, text out: the right text, in the right order, for any input at all."""

import numpy as np
import pytest
import tensorflow as tf
from copy_translator import SOURCE_WORDS, TARGET_WORDS, CopyModel, make, texts_of
from small_translator import untraced, word_translator

import keras_luong as kl
from keras_luong.decoding.beam import _power_of_two

pytestmark = pytest.mark.usefixtures("eagerly")


ORDERS = [(None, 1), (None, 100), (kl.GreedySearch(50), 2)]


@pytest.mark.parametrize("search, batch_size", ORDERS)
def test_any_order_any_batch_size(search, batch_size):
    sources = ["three", "one two three four", "two one", "", "four four", "one"]
    said = texts_of(make(search).translate(sources, batch_size=batch_size))
    assert said == ["drei", "eins zwei drei vier", "zwei eins", "", "vier vier", "eins"]


def test_everything_about_a_translation():
    short, long = make().translate(["two", "one three two"])
    assert isinstance(short, kl.Translation)
    assert short.tokens == ["zwei", "</s>"] and short.source_tokens == ["two", "</s>"]
    assert long.tokens == ["eins", "drei", "zwei", "</s>"]
    assert short.truncated is False and isinstance(short.score, float)
    assert long.score == pytest.approx(-4 * np.log1p(7 * np.exp(-20)), abs=1e-5)
    for translation, length in ((short, 2), (long, 4)):
        assert translation.alignment.dtype == np.float32
        np.testing.assert_array_equal(translation.alignment, np.eye(length))


def test_iterables_and_bytes():
    both = ["one", "two"]
    for texts in (iter(["one", b"two"]), tf.constant(both), np.array(both)):
        assert texts_of(make().translate(texts)) == ["eins", "zwei"]
    assert make().translate([]) == []


BLANK = ["", " ", "\t \n", "\u00a0", "\u3000\u2003 ", "\x0b\x1c\x85", b"", b"  "]


def test_blank_in_blank_out():
    first, *among, last = make().translate(["one two", *BLANK, "three"])
    assert (first.text, last.text) == ("eins zwei", "drei")
    for translation in (*among, *make().translate(BLANK[-1:])):
        assert translation.text == "" and translation.score == 0.0
        assert translation.tokens == translation.source_tokens == []
        assert translation.alignment.shape == (0, 0)
        assert translation.truncated is False


ODD = [b"\xff\xfe", b"one \xc3", "one \ud800", "\U0001f600", b"\x00", "\ufeff one"]


def test_strange_bytes_are_unknown_and_spoil_nothing():
    *strange, plain = make().translate([*ODD, "one two"])
    assert plain.text == "eins zwei"
    for t in strange:
        assert t.source_tokens[-1] == "</s>" and "<unk>" in t.source_tokens
        assert np.isfinite(t.score) and np.isfinite(t.alignment).all()


@pytest.mark.filterwarnings("error")
def test_too_long_is_cut_and_said_so_once():
    translator = make(max_source_length=3)
    sources = ["one two three", "one two three four", "four", "two " * 40]
    with pytest.warns(UserWarning, match="2 of 4 texts .* max_source_length=3") as said:
        found = translator.translate(sources, batch_size=1)
    assert len(said) == 1 and said[0].filename == __file__
    assert [x.truncated for x in found] == [False, True, False, True]
    assert texts_of(found)[1:] == ["eins zwei drei", "vier", "zwei zwei zwei"]
    assert found[3].source_tokens == ["two"] * 3 + ["</s>"]
    translator.translate(["one two three"])
    with pytest.warns(UserWarning, match="4 of 8 texts have more than") as said:
        found = list(translator.stream(sources * 2, window=2))
    assert len(said) == 1 and sum(t.truncated for t in found) == 4
    list(translator.stream(sources[::2], window=2))


def test_one_trace_serves_all_shapes():
    traces = []

    def search(model, source_ids):
        traces.append(source_ids.shape)
        return kl.BeamSearch(2)(model, source_ids)

    translator = make(search)
    for sources, expected in (
        (["one"], ["eins"]),
        (["one two", "three"], ["eins zwei", "drei"]),
        (["one " * 9, "", "two"], ["eins" + " eins" * 8, "", "zwei"]),
    ):
        with untraced(False):
            found = translator.translate(sources, batch_size=2)
        assert texts_of(found) == expected
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

    (t,) = made(Mute()).translate(["one two"])
    assert (t.text, t.score, t.alignment.shape) == ("", -np.inf, (0, 3))


def test_what_tokenizers_may_be():
    source, target = kl.WordTokenizer(SOURCE_WORDS), kl.WordTokenizer(TARGET_WORDS)
    for tokenizers, expected in (
        (kl.TokenizerPair(source, target), (source, target)),
        ((source, target), (source, target)),
        (source, (source, source)),
    ):
        translator = kl.Translator(CopyModel(), tokenizers)
        assert (translator.source_tokenizer, translator.target_tokenizer) == expected


WORDS = kl.WordTokenizer(SOURCE_WORDS)
MUST, SURE = kl.BeamSearch(4, n_best=2, max_length=7), kl.GreedySearch(50)


def made(model=None, tokenizers=WORDS, **arguments):
    return kl.Translator(model or CopyModel(), tokenizers, **arguments)


def sized(*sizes):
    return made(kl.Seq2Seq(kl.Seq2SeqConfig(*sizes, units=4)))


def ask(search=None, texts=("one",), **given):
    return make(search).translate(texts, **given)


def must(*phrases):
    return ask(MUST, ("one", "two")[: len(phrases)], constraints=phrases)


def other(search=None, **changes):
    return make().with_search(search, **changes)


WRONG = [
    (lambda: made("m30k"), TypeError, "`encode` and `step`.*Received: 'm30k'"),
    (lambda: made(tokenizers=3), TypeError, "must be a TokenizerPair.*Received: 3"),
    (lambda: made(search=5), TypeError, "`search` must be callable.*Received: 5"),
    (lambda: made(max_source_length=0), ValueError, "at least 1. Received: 0"),
    (lambda: made(max_source_length=None), TypeError, "an integer. Received: None"),
    (lambda: sized(6, 8), ValueError, "source tokenizer has 8 .*vocab_size is 6"),
    (lambda: sized(8, 6), ValueError, "target tokenizer has 8 .*vocab_size is 6"),
    (lambda: other(n_best=9), ValueError, "n_best=9, beam_width=3"),
    (lambda: other(SURE, beam_width=2), TypeError, "Gree.*'beam_width'"),
    (lambda: other(lambda model, ids: 0, max_length=2), TypeError, "dataclass"),
    (lambda: ask(texts="a dog"), TypeError, r"single 'a dog'; write \[text\]"),
    (lambda: ask(texts=["a", 2]), TypeError, "Received: int 2 at place 1"),
    (lambda: ask(texts=[["a"]]), TypeError, r"list \['a'\] at place 0"),
    (lambda: ask(texts=None), TypeError, "`texts` must be a list.*: None"),
    (lambda: next(make().stream("one")), TypeError, "the single 'one'"),
    (lambda: ask(batch_size=0), ValueError, "batch_size"),
    (lambda: ask(prefixes=[]), ValueError, "one of `prefixes` for each text"),
    (lambda: must(["vier f"], ["x"]), ValueError, "'vier f', 'x': .*not know all"),
    (lambda: must([" "]), ValueError, "must have a word. Received: ' '"),
    (lambda: must("vier"), TypeError, r"'vier' at place 0; write \[phrase\]"),
    (lambda: must([4]), TypeError, "must be a str. Received: 4"),
    (lambda: ask(MUST, constraints="vier"), TypeError, "list of phrases for each"),
    (lambda: ask(MUST, constraints=[]), ValueError, "of `constraints` for each"),
    (lambda: ask(SURE, constraints=[["a"]]), TypeError, "Only a BeamSearch.*Gre"),
    (lambda: make().score(["a", "b"], ["c"]), ValueError, "targets.*2 texts and 1"),
    (lambda: [*make().score_stream(["a"], iter([]))], ValueError, "of `targets`"),
    (lambda: make().score(["one"], "eins"), TypeError, "'eins'"),
]


@pytest.mark.parametrize("call, error, message", WRONG)
def test_what_is_wrong_is_said(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_n_best_are_all_that_the_search_found():
    translator = make(kl.BeamSearch(4, n_best=3))
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
    forced, free = translator.stream(["one two", "one"], prefixes=iter(["vier", ""]))
    assert forced.text == "vier zwei" and free.text == "eins"


def test_a_translation_has_the_phrases_that_it_must():
    texts, must = ["one two", "", "three"], [["vier", "zwei  eins"], ["vier"], []]
    with pytest.warns(UserWarning, match="1 of 3 translations lack"):
        found = make(MUST).translate(texts, constraints=must, n_best=True)
    for t in found[0]:
        assert "vier" in t.tokens and "zwei eins" in t.text and t.unmet == ()
    assert [(t.text, t.unmet) for t in found[1]] == [("", ("vier",))]
    free = make(MUST).translate(["three"], n_best=True)
    assert texts_of(found[2]) == texts_of(free[0])


def test_a_phrase_that_it_must_have_twice_or_behind_a_beginning():
    (t,) = make(MUST).stream(iter(["one"]), constraints=iter([("vier", "vier")]))
    assert t.text.split().count("vier") == 2
    (t,) = make(MUST).translate(["one"], prefixes=["drei"], constraints=[["vier"]])
    assert t.text.startswith("drei") and "vier" in t.tokens


def test_what_finds_no_room_is_named():
    phrases = ["vier drei zwei eins vier", "eins eins eins"]
    with pytest.warns(UserWarning, match="1 of 1 translations lack"):
        (t,) = make(MUST).translate(["one"], constraints=[phrases])
    assert t.unmet in [(phrases[0],), (phrases[1],)]


def test_with_another_search():
    translator = make(kl.BeamSearch(3, length_penalty=0.6), max_source_length=5)
    wide = translator.with_search(beam_width=4, n_best=2, max_source_length=7)
    assert wide.search == kl.BeamSearch(4, 2, length_penalty=0.6)
    assert (wide.max_source_length, translator.max_source_length) == (7, 5)
    assert translator.search == kl.BeamSearch(3, length_penalty=0.6)
    assert wide.model is translator.model and wide.tokenizers is translator.tokenizers
    other = translator.with_search(kl.GreedySearch(9), max_length=3)
    assert other.search == kl.GreedySearch(3) and other.max_source_length == 5
    assert texts_of(other.translate(["one two three four"])) == ["eins zwei drei"]
    assert translator.with_search().search is translator.search


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """XLA compiles the search of all texts but the first ones."""
    monkeypatch.setattr("keras_luong.translation.translator.pays_to_compile", bool)


SEARCHES = kl.GreedySearch(None), kl.BeamSearch(1, 1, 7), kl.BeamSearch(5, 3, None, 0.6)


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_compiled_by_xla_it_says_the_same(search, as_on_a_gpu):
    texts = ["the red dog", "", "cat is", "dog " * 9, "is is is red"]
    plain = word_translator(search)
    plain.jit_compile = False
    compiled = kl.Translator(plain.model, plain.tokenizers, search, 10)
    kinds = [{}, {"prefixes": ["der", "", "Hund ist", "", "ist"]}]
    for more in kinds[: 1 + isinstance(search, kl.BeamSearch)]:  # which takes prefixes
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
    talking = kl.Translator(Talking(), make().tokenizers, kl.GreedySearch(50))
    for compiles in (None, None, False, False):
        assert talking.jit_compile is compiles
        assert texts_of(talking.translate(texts)) == ["eins zwei", "drei"]
    talking.jit_compile = True
    with pytest.raises(tf.errors.OpError):
        talking.translate(texts)


@pytest.mark.slow
def test_some_searches_are_not_compiled():
    texts = ["the dog is red", "cat"]
    listed = kl.Shortlist([4, 5, 6], np.full([9, 1], 4), 7)
    for search in (kl.RandomSampling(seed=1), kl.BeamSearch(2, 1, 9, shortlist=listed)):
        usual = word_translator(search)
        told = usual.with_search()
        told.jit_compile = True
        assert texts_of(told.translate(texts)) == texts_of(usual.translate(texts))
    told = told.with_search(MUST)
    (t,) = told.translate(["cat"], constraints=[["Hund"]])
    assert "Hund" in t.tokens and told.jit_compile


def test_only_translate_is_compiled(as_on_a_gpu):
    translator = make(kl.GreedySearch(5)).with_search()
    translator.translate(["one"])
    like = [tf.TensorSpec([None], tf.string)]

    def is_compiled(method):
        function = tf.function(method, input_signature=like, autograph=False)
        with untraced(False):
            graph = function.get_concrete_function().graph.as_graph_def()
        return "_XlaMustCompile" in str(graph)

    assert not is_compiled(translator.serve)  # exports have it
    assert not is_compiled(translator.graph.translate)
    assert is_compiled(translator._compiled_graph.translate)


def test_xla_compiles_for_few_sizes():
    sizes = [int(_power_of_two(tf.constant(n))) for n in (1, 16, 17, 32, 33, 100)]
    assert sizes == [16, 16, 32, 32, 64, 128]


@pytest.mark.parametrize("window", [2, 100])
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
    assert texts_of([first, *stream]) == texts_of(translator.translate(sources))
    assert first.text == "drei"


def test_the_progress_bar_counts_texts(monkeypatch, capsys):
    monkeypatch.setattr("keras_luong.progress._is_terminal", lambda stream: True)
    make().translate(["one"] * 5, batch_size=2, progress=True)
    assert "5/5" in capsys.readouterr().err
    make().translate(["one"] * 5, batch_size=2)
    assert capsys.readouterr() == ("", "")


LIMITS = ("texts", "max_source_length=3"), ("targets", "max_target_length=16")


def test_score_names_the_side_that_was_cut():
    translator = make(max_source_length=3)
    sources = ["one", "two " * 4, "", "one"]
    targets = ["eins " * 16, "zwei"] + 2 * ["eins " * 17]
    expected = {
        f"1 of 4 {side} have more than {limit} tokens: only their beginnings were read."
        for side, limit in LIMITS
    }
    cut = [False, True, False, True]

    def streamed(sources, targets):
        return list(translator.score_stream(sources, targets, window=1))

    for score in (translator.score, streamed):
        with pytest.warns(UserWarning) as said:
            assert [t.truncated for t in score(sources, targets)] == cut
        assert {str(x.message) for x in said} == expected and len(said) == 2
        assert {x.filename for x in said} == {__file__}


def test_score_reads_given_translations():
    translator = make()
    sources = ["one two", "three", ""]
    targets = ["eins zwei", "vier", "eins"]
    right, wrong, empty = translator.score(sources, targets)
    found = translator.translate(sources[:1])[0]
    assert right.text == "eins zwei" and right.score == pytest.approx(found.score)
    assert right.tokens == ["eins", "zwei", "</s>"]
    np.testing.assert_allclose(right.alignment, np.eye(3))
    assert wrong.score == pytest.approx(right.score - 20, abs=1e-3)
    assert (empty.text, empty.score, empty.tokens) == ("", 0.0, [])
    for batch_size in (1, 2):
        again = translator.score(sources[:2], targets[:2], batch_size)
        assert [t.score for t in again] == pytest.approx([right.score, wrong.score])
