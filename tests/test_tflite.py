"""A `.tflite` file finds the hypotheses that Keras finds, with builtin operations."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from opinionated import opinionated
from small_models import MODELS
from small_translator import SENTENCES, sentencepiece_translator, word_translator

from keras_luong import Translator, export_tflite
from keras_luong.decoding import (
    AverageLengthPenalty,
    BeamSearch,
    Ensemble,
    GreedySearch,
    RandomSampling,
    Shortlist,
    SummaryCoveragePenalty,
    WordReward,
)
from keras_luong.models import build
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
edge = pytest.importorskip("keras_luong_edge")

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")

SMALL = BeamSearch(3, 2, max_length=7)
SOURCES = ([4, 5, 6, 3], [3], [8, 3], [7] * 7 + [3], [4, 5, 6, 7, 8, 1] * 2 + [3])


def translator_of(model, search=SMALL):
    """For models of nine source words and seven target words."""
    source = WordTokenizer(["the", "red", "dog", "cat", "is"])
    pair = TokenizerPair(source, WordTokenizer(["der", "Hund", "ist"]))
    return Translator(model, pair, search, max_source_length=14)


def small(preset="small", **fields):
    return opinionated(build(preset, 9, 7, units=4, **fields))


def assert_the_same(translator, path, source_length=None):
    """Ids exactly; numbers as float32 has them."""
    export_tflite(translator, path, source_length=source_length)
    run = interpreter.Interpreter(str(path)).get_signature_runner()
    search = translator.search
    if isinstance(search, BeamSearch):
        search = dataclasses.replace(search.with_spares(), compact=False)
    for ids in SOURCES:
        source = np.array([ids], "int32")
        if source_length is not None:
            source = np.pad(source, [[0, 0], [0, source_length - len(ids)]])
        found = run(source=source)
        expected = search(translator.model, source)._asdict()
        assert found.keys() == expected.keys()
        if source_length is not None:
            found = cut(found, expected["ids"].shape[2])
        np.testing.assert_array_equal(found["ids"], expected["ids"])
        np.testing.assert_array_equal(found["lengths"], expected["lengths"])
        for name in ("scores", "log_probs", "weights", "token_log_probs"):
            x = expected[name].numpy()
            x = np.maximum(x, np.finfo("float32").min)  # LiteRT's -inf is that
            np.testing.assert_allclose(found[name], x, rtol=1e-4, atol=1e-4)


def cut(found, length):
    """Without the padding of a file whose shapes are known."""
    for name in ("ids", "weights", "token_log_probs"):
        assert not found[name][:, :, length:].any()
        found[name] = found[name][:, :, :length]
    return found


def cases(options):
    """Every option with any length and with a known one."""
    for name, values in options.items():
        for source_length in (None, 16):
            case = f"{name}, {source_length or 'any'}"
            yield pytest.param(values, source_length, id=case)


@pytest.mark.slow
@pytest.mark.parametrize("model, source_length", cases(MODELS))
def test_every_model_says_the_same_as_keras(model, source_length, tmp_path):
    preset, fields = model
    model = small(preset, **fields)
    assert_the_same(translator_of(model), tmp_path / "x.tflite", source_length)


SEARCHES = {
    "greedy": GreedySearch(6),
    "greedy, any length": GreedySearch(None),
    "a beam of one": BeamSearch(1, max_length=6),
    "any length": BeamSearch(3, max_length=None),
    "GNMT's penalties": BeamSearch(
        3, max_length=7, length_penalty=0.6, coverage_penalty=0.2
    ),
    "other penalties": BeamSearch(
        3,
        2,
        max_length=7,
        length_penalty=AverageLengthPenalty(0.8),
        coverage_penalty=SummaryCoveragePenalty(0.2),
        early_stopping="first",
    ),
    "word reward": BeamSearch(3, max_length=7, length_penalty=WordReward(0.3)),
    "constraints": BeamSearch(
        4,
        4,
        max_length=None,
        min_length=3,
        min_length_ratio=0.5,
        max_length_ratio=1.5,
        no_repeat_ngram=2,
        forbidden=(1,),
        early_stopping=False,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("search, source_length", cases(SEARCHES))
def test_every_search_says_the_same_as_keras(search, source_length, tmp_path):
    translator = translator_of(small(), search)
    assert_the_same(translator, tmp_path / "x.tflite", source_length)


@pytest.mark.slow
@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_an_ensemble_says_the_same(mean, tmp_path):
    models = [small(), small("cho2014")]
    translator = translator_of(Ensemble(models, mean))
    assert_the_same(translator, tmp_path / "x.tflite")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_exported_in_float32(dtype, tmp_path):
    model = small(dtype=dtype)
    translator = translator_of(Ensemble([model]))
    path = export_tflite(translator, tmp_path / "x.tflite")
    twin = build("small", 9, 7, units=4)
    twin.set_weights(model.get_weights())
    texts = ["the red dog", "is is cat", "x"]
    expected = translator_of(twin).translate(texts)
    for a, b in zip(edge.EdgeTranslator(path).translate(texts), expected, strict=True):
        assert a.text == b.text
        np.testing.assert_allclose(a.score, b.score, atol=1e-4)


def operations(path):
    """The operations of the file, in all of its graphs."""
    tf.lite.experimental.Analyzer.analyze(str(path))


@pytest.mark.slow
def test_it_holds_builtin_operations_alone(tmp_path, capfd):
    path = export_tflite(sentencepiece_translator(), tmp_path / "x.tflite")
    capfd.readouterr()
    operations(path)
    said = capfd.readouterr().out
    assert "WHILE" in said
    assert "Flex" not in said and "CUSTOM" not in said


@pytest.mark.parametrize(
    "quantize",
    [*(pytest.param(q, marks=pytest.mark.slow) for q in (None, "float16")), "int8"],
)
def test_quantized_files_are_smaller_and_nearly_the_same(quantize, tmp_path):
    source = WordTokenizer([f"s{i}" for i in range(200)])
    pair = TokenizerPair(source, WordTokenizer([f"t{i}" for i in range(200)]))
    model = opinionated(build("small", 204, 204, units=64), 2.0)
    translator = Translator(model, pair, BeamSearch(3, max_length=8))
    path = export_tflite(translator, tmp_path / "x.tflite", quantize=quantize)
    weights = 4 * model.count_params()
    size = path.stat().st_size - 110_000  # the graph's own
    assert size < {None: 1.2, "float16": 0.7, "int8": 0.45}[quantize] * weights
    texts = [f"s{i} s{i + 3} s{2 * i}" for i in range(20)]
    said = edge.EdgeTranslator(path).translate(texts)
    expected = translator.translate(texts)
    same = [a.text == b.text for a, b in zip(said, expected, strict=True)]
    assert np.mean(same) >= (1 if quantize is None else 0.5)
    exact = [a.score for a in expected]
    scores = [a.score for a in said]
    tolerance = {None: 1e-4, "float16": 0.05, "int8": 1.0}[quantize]
    np.testing.assert_allclose(scores, exact, atol=tolerance)


@pytest.mark.parametrize(
    ("make", "source_length"),
    [
        (sentencepiece_translator, None),
        pytest.param(word_translator, 12, marks=pytest.mark.slow),
        pytest.param(sentencepiece_translator, 12, marks=pytest.mark.slow),
        pytest.param(word_translator, None, marks=pytest.mark.slow),
    ],
)
def test_text_in_text_out(make, source_length, tmp_path):
    translator = make()
    path = export_tflite(translator, tmp_path / "x.tflite", source_length=source_length)
    if source_length is not None:
        most = min(source_length - 1, translator.max_source_length)
        given = translator.model, translator.tokenizers, translator.search
        translator = Translator(*given, max_source_length=most)
    said = edge.EdgeTranslator(path).translate(SENTENCES)
    for a, b in zip(said, translator.translate(SENTENCES), strict=True):
        assert (a.text, a.truncated) == (b.text, b.truncated)
        assert (a.tokens, a.source_tokens) == (b.tokens, b.source_tokens)
        np.testing.assert_allclose(a.score, b.score, atol=1e-4)
        np.testing.assert_allclose(a.alignment, b.alignment, atol=1e-4)
        np.testing.assert_allclose(a.log_probs, b.log_probs, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["constraints", "greedy"])
def test_a_known_source_length_makes_all_shapes_known(name, tmp_path):
    """Without having run: LiteRT.js binds outputs before that."""
    translator = translator_of(small(), SEARCHES[name])
    path = export_tflite(translator, tmp_path / "x.tflite", source_length=16)
    runtime = interpreter.Interpreter(str(path))
    runtime.allocate_tensors()
    (source,) = runtime.get_input_details()
    assert source["shape_signature"].tolist() == [1, 16]
    outputs = runtime.get_signature_runner().get_output_details()
    for name, x in outputs.items():
        assert x["shape"].size and (x["shape"] > 0).all(), name
        assert (x["shape_signature"] > 0).all(), name


@pytest.mark.slow
def test_it_carries_what_it_needs_and_where_it_is_from(tmp_path):
    translator = word_translator(GreedySearch(4))
    origin = {"settings": {"épochs": 3}, "source_length": 3, "format": 9}
    path = export_tflite(translator, tmp_path / "x.tflite", "int8", 9, metadata=origin)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        metadata = json.loads(archive.read("keras_luong.json"))
        source = archive.read("source.txt").decode().split()
    assert names == ["keras_luong.json", "source.txt", "target.txt"]
    assert source[4:] == translator.source_tokenizer.words
    assert metadata["settings"] == {"épochs": 3}
    assert metadata["quantize"] == "int8" and metadata["source_length"] == 9
    assert metadata["max_source_length"] == 8
    # The edge runtime knows nothing of this library but what the file says.
    assert metadata["format"] == 1 and metadata["bytes_per_token"] == 64
    assert metadata["special_ids"] == {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    assert "GreedySearch(max_length=4)" in metadata["search"]


@pytest.mark.slow
def test_a_file_that_was_there_stays_until_the_new_one_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "x.tflite"
    path.write_text("old")
    translator = word_translator(GreedySearch(4))
    with monkeypatch.context() as patch:
        patch.setattr("keras_luong.export.tflite._append", None)
        with pytest.raises(TypeError):
            export_tflite(translator, path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    export_tflite(translator, path)
    assert path.read_bytes()[4:8] == b"TFL3"


class Determined:
    """A model with an operation that LiteRT has not."""

    def __init__(self):
        self.model = small()

    def encode(self, source):
        return self.model.encode(source)

    def step(self, tokens, state, memory):
        logits, state, weights = self.model.step(tokens, state, memory)
        return logits + tf.linalg.det(logits[0, :1, :1]), state, weights


class Characters(WordTokenizer):
    kind = "characters"


SHORTLIST = Shortlist([4], [[4]] * 9, vocab_size=7)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"translator": "run"}, TypeError, "must be a Translator.* Received: 'run'"),
        ({"path": None}, TypeError, "path must be a path. Received: None"),
        ({"path": "."}, IsADirectoryError, "path must be a file"),
        ({"metadata": [1]}, TypeError, r"metadata must be a dict or None.*\[1\]"),
        ({"metadata": {"x": float("nan")}}, ValueError, "JSON compliant"),
        ({"quantize": "int4"}, ValueError, "quantize must be .*Received: 'int4'"),
        ({"source_length": 1}, ValueError, "source_length must be at least 2.*: 1"),
        ({"source_length": 9.5}, TypeError, "source_length must be an integer.*9.5"),
        (
            {"translator": word_translator(RandomSampling())},
            TypeError,
            "BeamSearch or a GreedySearch .*Received: RandomSampling",
        ),
        (
            {"translator": word_translator(BeamSearch(shortlist=SHORTLIST))},
            TypeError,
            "cannot run a search with a shortlist",
        ),
        pytest.param(
            {"translator": translator_of(Determined())},
            ValueError,
            "cannot be converted for LiteRT: LiteRT lacks the operations MatrixDeter",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_is_refused(change, error, message, tmp_path):
    arguments = {"translator": word_translator(), "path": tmp_path / "x.tflite"}
    with pytest.raises(error, match=message):
        export_tflite(**{**arguments, **change})
    assert not list(tmp_path.iterdir())


def test_a_strange_tokenizer_is_refused(tmp_path):
    tokenizer = Characters(["a", "b"])
    translator = Translator(opinionated(build("small", 6, 6, units=4)), tokenizer)
    with pytest.raises(TypeError, match="source tokenizer must be .*Characters"):
        export_tflite(translator, tmp_path / "x.tflite")


def test_the_interpreter_alone_runs_it(tmp_path):
    """With no name of this library, as from another language."""
    path = export_tflite(word_translator(), tmp_path / "x.tflite")
    code = (
        "import sys, numpy as np; from ai_edge_litert.interpreter import Interpreter;"
        "run = Interpreter(sys.argv[1]).get_signature_runner('serving_default');"
        "found = run(source=np.array([[4, 5, 3]], 'int32'));"
        "print(found['ids'].shape[0], 'tensorflow' in sys.modules)"
    )
    command = [sys.executable, "-I", "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
