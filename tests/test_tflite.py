"""A `.tflite` file says what Keras says, with builtin operations and without us.

`test_exports.py` has every model and search. The edge's runtime, `export/edge`, is a
distribution of its own, which shares no code with this library; its own tests are in
`export/edge/tests`.
"""

import dataclasses
import json
import re
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from small_translator import SENTENCES, word_translator

import keras_luong as kl
from keras_luong.export import tflite
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

interpreter = pytest.importorskip("ai_edge_litert.interpreter")
edge = pytest.importorskip("keras_luong_edge")
from keras_luong_edge.archive import read_archive  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")

PIECES = {"pieces": "pieces_tflite", "pieces, 31": "pieces_site"}


@pytest.fixture(scope="module")
def pair(request, pieces):
    """A translator, its export, and the export's path: of any or of a known length."""
    path = request.getfixturevalue(PIECES[request.param])
    path = path / "model.tflite" if path.is_dir() else path
    pieces.translate(["the dog"])  # which is traced here
    return pieces, edge.EdgeTranslator(path), path


every_pair = pytest.mark.parametrize("pair", PIECES, indirect=True)


def assert_the_same(said, expected, atol=1e-5):
    """All hypotheses of all texts, in everything that a `Translation` says."""
    assert [len(x) for x in said] == [len(x) for x in expected]
    for hypotheses, others in zip(said, expected, strict=True):
        for a, b in zip(hypotheses, others, strict=True):
            # Phrases that must occur are not of the edge.
            assert (*a._fields, "unmet") == b._fields
            assert (a.text, a.tokens) == (b.text, b.tokens)
            assert a.source_tokens == b.source_tokens
            assert a.truncated is b.truncated
            for name in ("score", "alignment", "log_probs"):
                x, y = getattr(a, name), getattr(b, name)
                assert type(x) is type(y) and np.shape(x) == np.shape(y)
                np.testing.assert_allclose(x, y, rtol=1e-5, atol=atol)


@every_pair
def test_hostile_and_other_sentences(pair, pieces_said):
    translator, on_edge, _ = pair
    assert on_edge.n_best == translator.search.n_best
    assert_the_same(on_edge.translate(SENTENCES, n_best=True), pieces_said)
    best = on_edge.translate(SENTENCES)
    assert [t.text for t in best] == [hypotheses[0].text for hypotheses in pieces_said]


ODD = b"abcdefgh t\n\t\r\x00\x1c\x85\xa0\xc3\xe2\x96\x81\xed\xf0\xff"
ALPHABET = st.sampled_from([*ODD, *b"the dog"])
SYLLABLES = st.sampled_from(["the", "red", "dog", "under", "a", "u", "th", "in", "x"])
LONG_WORDS = st.lists(SYLLABLES, min_size=30, max_size=120).map("".join).map(str.encode)
TEXT = st.one_of(
    st.binary(max_size=80),
    st.lists(ALPHABET, max_size=80).map(bytes),
    LONG_WORDS,
    st.text(max_size=40),
    st.text(st.characters(categories=["Cs", "Zs", "Cc", "Ll"]), max_size=40),
)


@every_pair
@settings(max_examples=6)
@given(st.lists(TEXT, min_size=4, max_size=4))
def test_any_text(pair, texts):
    translator, on_edge, _ = pair
    expected = translator.translate(texts, n_best=True)
    assert_the_same(on_edge.translate(texts, n_best=True), expected)


@every_pair
def test_the_limit_in_bytes(pair):
    translator, on_edge, _ = pair
    most = 64 * translator.max_source_length
    texts = ["x" * most, "x" * (most + 1)]
    expected = translator.translate(texts, n_best=True)
    assert expected[1][0].truncated
    assert_the_same(on_edge.translate(texts, n_best=True), expected)


@every_pair
@settings(max_examples=50)
@given(st.lists(st.integers(0, 50), max_size=12))
def test_ids_are_written_as_keras_writes_them(pair, ids):
    """Also those beyond the vocabulary."""
    translator, _, path = pair
    on_edge = read_archive(path).target
    size = translator.target_tokenizer.vocab_size
    ids = np.array([i % (size + 3) for i in ids], "int32")
    if EOS_ID in ids:  # a hypothesis ends with its first end
        ids = ids[: list(ids).index(EOS_ID) + 1]
    expected = translator.target_tokenizer.decode(ids[None]).numpy()[0].decode()
    assert on_edge.decode(ids) == expected
    found = translator.target_tokenizer.pieces(ids).numpy()
    assert on_edge.pieces(ids) == [x.decode() for x in found]


def test_its_signature_has_all_fields_of_hypotheses(pieces, pieces_tflite):
    run = interpreter.Interpreter(str(pieces_tflite)).get_signature_runner()
    source = np.array([[9, 8, 7, 30, EOS_ID]], "int32")
    found = run(source=source)
    search = dataclasses.replace(pieces.search.with_spares(), compact=False)
    expected = search(pieces.model, source)._asdict()
    assert found.keys() == expected.keys()
    for name, x in found.items():  # LiteRT's -inf is float32's lowest number
        y = np.maximum(expected[name], np.finfo("float32").min)
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


def test_a_known_source_length_makes_all_shapes_known(pieces_site):
    """Without having run: LiteRT.js binds outputs before that."""
    runtime = interpreter.Interpreter(str(pieces_site / "model.tflite"))
    runtime.allocate_tensors()
    (source,) = runtime.get_input_details()
    assert source["shape_signature"].tolist() == [1, 31]
    outputs = runtime.get_signature_runner().get_output_details()
    assert outputs["weights"]["shape"].tolist() == [1, 3, 8, 31]
    for name, x in outputs.items():
        assert x["shape"].size and (x["shape"] > 0).all(), name
        assert (x["shape_signature"] > 0).all(), name


LONGEST = [
    ({"max_length": 7}, 7),
    ({"max_length": None}, 42),
    ({"max_length": None, "max_length_ratio": 1.3}, 21),  # of 20.8
    ({"max_length": None, "max_length_ratio": 0.01}, 1),
    ({"max_length": 20, "max_length_ratio": 1.3}, 20),
]


@pytest.mark.parametrize("search, longest", LONGEST)
def test_outputs_of_a_known_length_are_as_long_as_a_hypothesis_can_be(search, longest):
    source = tf.zeros([1, 16], tf.int32)
    assert tflite._longest(kl.BeamSearch(2, **search), source) == longest


def test_it_holds_builtin_operations_alone(pieces_tflite, capfd):
    tf.lite.experimental.Analyzer.analyze(str(pieces_tflite))
    said = capfd.readouterr().out
    assert "WHILE" in said
    assert "Flex" not in said and "CUSTOM" not in said


def test_it_carries_what_it_needs_and_where_it_is_from(pieces_tflite, pieces_site):
    with zipfile.ZipFile(pieces_tflite) as archive:
        names = archive.namelist()
        about = json.loads(archive.read("keras_luong.json"))
    assert names == ["keras_luong.json", "source.spm", "target.spm"]
    assert about["run"]["settings"] == {"source": "en", "target": "de", "größe": 3}
    assert "BeamSearch(beam_width=3" in about["search"]
    # The edge runtime knows nothing of this library but what the file says.
    expected = {"format": 1, "quantize": None, "source_length": None, "n_best": 2}
    expected |= {"max_source_length": 30, "bytes_per_token": 64}
    expected["special_ids"] = {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    assert {name: about[name] for name in expected} == expected
    assert read_archive(pieces_tflite).special == (PAD_ID, UNK_ID, BOS_ID, EOS_ID)
    known = read_archive(pieces_site / "model.tflite").metadata
    assert (known["source_length"], known["max_source_length"]) == (31, 30)


@pytest.mark.parametrize("length, most", [(None, 10), (9, 8), (11, 10), (12, 10)])
def test_of_a_source_no_more_is_read_than_there_is_room_for(length, most):
    export = tflite.exported(word_translator())
    settings = tflite._settings(export, export.search, length)
    assert settings["max_source_length"] == most
    assert settings["tokenizers"]["target"] == {"kind": "word", "file": "target.txt"}


def test_a_file_stays_until_the_new_one_is_whole(pieces, tmp_path, monkeypatch):
    monkeypatch.setattr(tflite, "_one_source", lambda *_: None)
    monkeypatch.setattr(tflite, "_converted", lambda _, kind: f"0000{kind}".encode())
    path = kl.export_tflite(pieces, tmp_path / "x.tflite", "int8")
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("keras_luong.json").file_size
    path.write_text("old")
    monkeypatch.setattr(tflite, "MOST_METADATA", size - 1)
    with pytest.raises(ValueError, match=rf"keras_luong\.json would have {size} bytes"):
        kl.export_tflite(pieces, path, "int8")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr(tflite, "MOST_METADATA", size)
    kl.export_tflite(pieces, path, "int8")
    assert path.read_bytes()[:8] == b"0000int8"


REASONS = [
    ("TF Select ops: B, A\nTF Select ops: B, A", "lacks the operations B, A$"),
    ("TF Select ops: A\nmap<f16>", "the operations A in half precision, so that a"),
    ("TF Select ops: A\nbf16", "the operations A in half precision, so that a"),
    ("a\nx error: b\nc", "for LiteRT: x error: b$"),
    ("", "for LiteRT: unknown$"),
]


@pytest.mark.parametrize("message, reason", REASONS)
def test_why_a_model_cannot_be_converted(message, reason):
    assert re.search(reason, tflite._why_not(message))


def test_quantized_weights_take_a_half_or_a_quarter():
    weights = tf.Variable(tf.random.stateless_normal([256, 256], [1, 2]))

    @tf.function(input_signature=[tf.TensorSpec([1, 256], name="x")])
    def product(x):
        return {"y": x @ weights}

    sizes, said = [], []
    x = np.linspace(-1, 1, 256, dtype="float32")[None]
    for quantize in ("float16", "int8"):
        content = tflite._converted(product.get_concrete_function(), quantize)
        run = interpreter.Interpreter(model_content=content).get_signature_runner()
        sizes.append(len(content) / (256 * 256))  # bytes of a weight
        said.append(run(x=x)["y"])
    np.testing.assert_allclose(sizes, [2, 1], atol=0.1)
    exact = product(x)["y"]
    np.testing.assert_allclose(said[0], exact, atol=0.02)
    np.testing.assert_allclose(said[1], exact, atol=0.5)


class Characters(kl.WordTokenizer):
    kind = "characters"


LISTED = kl.BeamSearch(shortlist=kl.Shortlist([4], [[4]] * 40, vocab_size=40))


WRONG = [
    ({"translator": "run"}, TypeError, "must be a Translator.* Received: 'run'"),
    ({"path": None}, TypeError, "path must be a path. Received: None"),
    ({"path": "."}, IsADirectoryError, "path must be a file"),
    ({"metadata": [1]}, TypeError, r"metadata must be a dict or None.*\[1\]"),
    ({"quantize": "int4"}, ValueError, "quantize must be .*Received: 'int4'"),
    ({"source_length": 1}, ValueError, "source_length must be at least 2.*: 1"),
    ({"search": kl.RandomSampling()}, TypeError, "a GreedySearch .*: RandomSampling"),
    ({"search": LISTED}, TypeError, "cannot run a search with a shortlist"),
    ({"tokenizers": Characters(["a"])}, TypeError, "source tokenizer .*Characters"),
]


@pytest.mark.parametrize("change, error, message", WRONG)
def test_what_cannot_be_is_refused(pieces, change, error, message, tmp_path):
    parts = {"tokenizers": pieces.tokenizers, "search": pieces.search}
    parts = {name: change.get(name, x) for name, x in parts.items()}
    change = {name: x for name, x in change.items() if name not in parts}
    arguments = {"path": tmp_path / "x.tflite"}
    arguments["translator"] = kl.Translator(pieces.model, **parts)
    with pytest.raises(error, match=message):
        kl.export_tflite(**{**arguments, **change})
    assert not list(tmp_path.iterdir())
