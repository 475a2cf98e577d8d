"""A SavedModel says what the library says, whoever else is in the batch.

`test_exports.py` has every model and search.
"""

import json
import os
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from own_models import IDS, Transcriber, features
from small_translator import SENTENCES, to_bytes, word_translator
from tensorflow.core.protobuf import saved_model_pb2

import keras_luong as kl
from keras_luong.export import saved_model, warm_up
from keras_luong.export.saved_model import METADATA
from keras_luong.export.signatures import exported, signatures
from keras_luong.export.warmup import TOO_MANY, WARMUP

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")

NAMES = ["serving_default", "n_best", "align", "score", "ids", "constrain"]
TEXT = tf.constant([*map(to_bytes, SENTENCES)])
SPEC = tf.TensorSpec([None, None, 3])
LOWEST = np.finfo("float32").min


@pytest.fixture(scope="session")
def served(pieces_model):
    """The signatures, warmed up: what is compiled at first takes seconds."""
    found = tf.saved_model.load(pieces_model)
    warm_up(found)
    return found.signatures


@pytest.fixture(scope="session")
def ask(served):
    def ask(name, **inputs):
        return {k: x.numpy() for k, x in served[name](**inputs).items()}

    return ask


@pytest.fixture(scope="session")
def best(ask):
    return ask("serving_default", text=TEXT)


def strings(array):
    return [x.decode() for x in array]


def generator(model=None):
    """The smallest that there is to export."""
    return kl.SequenceGenerator(model or Transcriber(), SPEC, kl.GreedySearch(3, **IDS))


def test_translations_lists_and_alignments_are_keras(pieces_said, ask, best):
    lists, align = ask("n_best", text=TEXT), ask("align", text=TEXT)
    assert lists["translation"].shape == (len(SENTENCES), 3)  # all that the beam holds
    for i, hypotheses in enumerate(pieces_said):
        t = hypotheses[0]
        for said in (best, align):
            assert said["translation"][i].decode() == t.text
            assert said["score"][i] == pytest.approx(t.score, abs=1e-5)
        N = len(hypotheses)
        assert strings(lists["translation"][i, :N]) == [x.text for x in hypotheses]
        scores = [x.score for x in hypotheses]
        np.testing.assert_allclose(lists["score"][i, :N], scores, atol=1e-5)
        assert {x["truncated"][i] for x in (best, lists, align)} == {t.truncated}
        T, S = align["length"][i], align["source_length"][i]
        assert strings(align["tokens"][i, :T]) == t.tokens
        assert strings(align["source_tokens"][i, :S]) == t.source_tokens
        weights = align["alignment"][i, :T, :S]
        np.testing.assert_allclose(weights, t.alignment, atol=1e-5)
        np.testing.assert_allclose(align["log_probs"][i, :T], t.log_probs, atol=1e-4)
    assert len({*best["translation"]}) > 3
    assert {*best["truncated"]} == {True, False}


def test_scores_are_log_probabilities_of_given_targets(pieces, ask):
    said = ask("score", text=TEXT, target=TEXT[::-1])
    for i, t in enumerate(pieces.score(SENTENCES, SENTENCES[::-1])):
        T = said["length"][i]
        assert strings(said["tokens"][i, :T]) == t.tokens
        np.testing.assert_allclose(said["log_prob"][i], t.score, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(said["log_probs"][i, :T], t.log_probs, atol=1e-4)
        assert said["truncated"][i] == t.truncated
    assert {*said["truncated"]} == {True, False}


def test_what_was_tokenized_elsewhere_is_translated_alike(pieces, ask, best):
    rows = pieces.source_tokenizer.encode(TEXT)
    lengths = tf.cast(rows.row_lengths(), tf.int32)
    said = ask("ids", ids=rows.to_tensor(), length=lengths)
    decoded = pieces.target_tokenizer.decode(said["ids"]).numpy()
    assert decoded.tolist() == best["translation"].tolist()
    np.testing.assert_allclose(said["score"], best["score"], atol=1e-5)
    assert (said["length"] == (said["ids"] != 0).sum(1)).all()


@pytest.mark.parametrize("padding", [0, 3, 99999])
def test_what_stands_behind_the_length_does_not_matter(ask, padding):
    """A server that joins requests may fill rows up with whatever it likes."""
    ids = [[5, 6, 7], [8, padding, padding], [padding] * 3]
    said = ask("ids", ids=tf.constant(ids), length=tf.constant([3, 1, 0]))
    expected = ask("ids", ids=tf.constant([[8]]), length=tf.constant([1]))
    assert said["ids"][1, : said["length"][1]].tolist() == expected["ids"][0].tolist()
    assert said["length"][2] == 0 and said["score"][2] == 0


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=60), max_size=4),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=4, max_size=4),
)
def test_any_ids_have_an_answer(ask, rows, lengths):
    width = max([0, *map(len, rows)])
    ids = np.array([row + [0] * (width - len(row)) for row in rows], "int32")
    lengths = np.array(lengths[: len(rows)], "int32")
    said = ask("ids", ids=ids.reshape(len(rows), width), length=lengths)
    assert len(said["ids"]) == len(rows) and np.isfinite(said["score"]).all()


def test_phrases_are_in_the_translations_or_unmet(ask, best):
    text = tf.constant(["the red dog", "the red dog", "a"])
    phrases = tf.constant(["house", "", "東京\ttree\tкот"])
    said = ask("constrain", text=text, phrases=phrases)
    house, without, tree = strings(said["translation"])
    assert "house" in house and "tree" in tree
    assert without.encode() == best["translation"][0] != house.encode()
    assert strings(said["unmet"]) == ["", "", "東京\tкот"]


def test_neighbours_do_not_matter(ask, best):
    for i in range(len(SENTENCES)):
        alone = ask("serving_default", text=TEXT[i : i + 1])["translation"]
        assert alone[0] == best["translation"][i]


ONE_EACH = {
    **dict.fromkeys(["serving_default", "n_best", "align"], {"text": "a"}),
    "score": {"text": "a", "target": "a"},
    "ids": {"ids": [1], "length": 1},
    "constrain": {"text": "a", "phrases": ""},
}.items()


@pytest.mark.parametrize("name, one", ONE_EACH)
def test_as_many_as_the_export_takes_and_no_more(ask, name, one):
    inputs = {key: tf.constant([x] * 41) for key, x in one.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match="too many sentences"):
        ask(name, **inputs)
    for count in (40, 0):
        said = ask(name, **{key: x[:count] for key, x in inputs.items()})
        assert {len(x) for x in said.values()} == {count}
    few = {key: x[:3] for key, x in inputs.items()}
    for key in [*one][1:]:
        with pytest.raises(tf.errors.InvalidArgumentError, match="differ in number"):
            ask(name, **{**few, key: inputs[key][:2]})
    # T10: [["A dog runs."]] had an answer of shape [1, 1], a scalar a riddle for error.
    for key, x in one.items():
        for other in (tf.constant([[x]]), tf.constant(x)[..., tf.newaxis][0]):
            shape = str(other.shape.as_list()).replace(" ", "")
            said = rf"(?s)\b{key}(_1)?\b.*{re.escape(shape)} is not compatible with"
            with pytest.raises(tf.errors.InvalidArgumentError, match=said):
                ask(name, **{**few, key: other})


@pytest.mark.parametrize("text", ["", " \t\u3000"])
def test_t9_an_empty_text_has_one_hypothesis(text, ask):
    """All places of the signature scored 0.0, as the best of anything would."""
    said = ask("n_best", text=tf.constant([text]))
    assert said["translation"].tolist() == [[b""] * 3]
    assert said["score"].tolist() == [[0.0] + [LOWEST] * 2]


def test_the_work_on_a_text_has_a_limit(pieces, ask):
    """Neither a long text nor a long target is read to its end."""
    long = tf.constant([b"the dog " * 100_000])
    said = ask("score", text=long, target=long)
    assert said["length"][0] == pieces.max_target_length + 1
    said = ask("align", text=long)
    assert said["source_length"][0] == pieces.max_source_length + 1
    assert said["length"][0] <= pieces.search.max_length


def test_the_layout_and_signatures_are_servings(pieces_model, served):
    assert os.listdir(pieces_model.parent) == ["7"] and {*served} == {*NAMES}
    umask = os.umask(0)
    os.umask(umask)  # Serving runs as another user; temporary directories are private
    assert pieces_model.stat().st_mode & 0o777 == 0o777 & ~umask
    about = json.loads((pieces_model / METADATA).read_text("utf-8"))
    assert about["run"]["settings"] == {"source": "en", "target": "de", "größe": 3}
    assert about["max_source_length"] == 30 and about["max_batch_size"] == 40
    assert "beam_width=3" in about["search"]
    for name, function in served.items():
        inputs = function.structured_input_signature[1]
        if name == "serving_default":
            text = tf.TensorSpec([None], tf.string, name="text")
            assert [*inputs.values()] == [text]
            said = function.structured_outputs.items()
            assert {key: (x.dtype, x.shape.rank) for key, x in said} == {
                "translation": (tf.string, 1),
                "score": (tf.float32, 1),
                "truncated": (tf.bool, 1),
            }
        for x in (*inputs.values(), *function.structured_outputs.values()):
            assert x.shape.rank >= 1 and x.shape[0] is None, name
            assert not x.name.endswith("_bytes")  # which Serving's REST would rename


def test_serving_has_every_operation(pieces_model):
    """TensorFlow's own, and the tokenizer's that Serving links from tensorflow_text."""
    content = (pieces_model / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    functions = graph.graph_def.library.function
    nodes = [*graph.graph_def.node, *(x for f in functions for x in f.node_def)]
    others = {node.op for node in nodes} - {f.signature.name for f in functions}
    others = {op for op in others if not hasattr(tf.raw_ops, op)}
    known = {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}
    assert known <= others <= known | {"SentencepieceIdToStringOp"}


def test_what_only_python_runs_is_refused(tmp_path):
    class Pythonic(Transcriber):
        def encode(self, source):
            memory, state = super().encode(source)
            odd = tf.numpy_function(lambda x: x, [memory], tf.float32)
            return tf.ensure_shape(odd, memory.shape), state

    message = "serving_default' cannot be served: .* the operations .*PyFunc"
    with pytest.raises(ValueError, match=message):
        kl.export_saved_model(generator(Pythonic()), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_version_is_refused_or_replaced_and_keeps_its_weights(tmp_path):
    source = generator()
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "old").touch()
    with pytest.raises(FileExistsError, match="2 exists; .*overwrite=True"):
        kl.export_saved_model(source, tmp_path, version=2)
    assert os.listdir(tmp_path / "2") == ["old"]
    path = kl.export_saved_model(source, tmp_path, version=2, overwrite=True)
    assert "old" not in os.listdir(path) and os.listdir(tmp_path) == ["2"]
    assert not (path / WARMUP).exists()  # nobody asked for it
    before = source(features()).scores.numpy()
    for weight in source.model.trainable_variables:
        weight.assign(weight + 1.0)
    assert abs(source(features()).scores - before).numpy().max() > 1e-3
    serve = tf.saved_model.load(path).signatures["serving_default"]
    said = serve(source=tf.constant(features()))["scores"]
    np.testing.assert_allclose(said, before, rtol=1e-5)


THREE = {"warmup": ["a"] * 3, "max_batch_size": 2}
WRONG = [
    ({"translator": "run"}, TypeError, "must be a Translator.* Received: 'run'"),
    ({"max_batch_size": 0}, ValueError, "max_batch_size must be at least 1.*: 0"),
    ({"version": 0}, ValueError, "version must be at least 1. Received: 0"),
    ({"directory": None}, TypeError, "directory must be a path. Received: None"),
    ({"directory": __file__}, NotADirectoryError, "`directory` is a file"),
    ({"metadata": [1]}, TypeError, r"must be a dict or None. Received: \[1\]"),
    ({"metadata": {"x": object()}}, TypeError, "not JSON serializable"),
    ({"metadata": {"x": float("nan")}}, ValueError, "JSON compliant"),
    ({"metadata": {"x": "\ud800"}}, UnicodeEncodeError, "surrogates"),
    ({"warmup": "a dog"}, TypeError, "`warmup` must be a list .* single 'a dog'"),
    ({"warmup": [3]}, TypeError, "`warmup` must hold str or bytes. .*: int 3"),
    (THREE, ValueError, "at most max_batch_size=2 texts. Received: 3"),
]


@pytest.mark.parametrize("change, error, message", WRONG)
def test_wrong_arguments(change, error, message, pieces, tmp_path):
    with pytest.raises(error, match=message):
        kl.export_saved_model(**{"translator": pieces, "directory": tmp_path, **change})
    assert not list(tmp_path.iterdir())


def test_without_its_package_it_says_what_to_install(pieces, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    with pytest.raises(ModuleNotFoundError, match=r"keras_luong\[serving\]"):
        kl.export_saved_model(pieces, tmp_path, warmup=["a"])
    assert not list(tmp_path.iterdir())


def test_requests_for_warming_up_are_for_all_signatures(pieces, ask, best):
    requests = exported(pieces).requests([*map(to_bytes, SENTENCES)])
    fewer = exported(pieces, constrain=False).signatures()
    assert [*requests] == NAMES == [*fewer, "constrain"]
    for name, inputs in requests.items():
        said = ask(name, **{key: tf.constant(x) for key, x in inputs.items()})
        assert {len(x) for x in said.values()} == {len(SENTENCES)}
        if "translation" in said and name != "n_best":
            assert said["translation"].tolist() == best["translation"].tolist()


@pytest.mark.slow
def test_they_are_written_where_serving_looks_and_answered(tmp_path, monkeypatch):
    apis = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    source, said, replay = generator(), [], saved_model.replay_warmup

    def replayed(path):
        said.append(replay(path))
        return said[-1]

    monkeypatch.setattr(saved_model, "replay_warmup", replayed)
    given = {"warmup": features(3), "max_batch_size": 3}
    path = kl.export_saved_model(source, tmp_path / "dogs", **given)
    (answers,) = said  # before it was published
    found = answers["serving_default"]["ids"]
    np.testing.assert_array_equal(found, source(features()).ids)
    file = path / "assets.extra" / "tf_serving_warmup_requests"
    (record,) = tf.data.TFRecordDataset(str(file))
    log = apis.PredictionLog.FromString(record.numpy())
    assert log.WhichOneof("log_type") == "predict_log"
    spec = log.predict_log.request.model_spec
    assert (spec.name, spec.signature_name) == ("dogs", "serving_default")
    message = "(?s)ids for source 0, .*, is array.*, the library's array"
    with pytest.raises(RuntimeError, match=message):
        samples = exported(source).samples(features())
        saved_model._compare(exported(source), {"ids": found + 1}, samples)


def test_what_translates_otherwise_is_not_published(pieces):
    message = "translation for source 0, b'the red dog', is b'x', the library's b'"
    with pytest.raises(RuntimeError, match=message):
        other = {"translation": tf.constant(["x"])}
        saved_model._compare(exported(pieces), other, [b"the red dog"])
    # But what is drawn is never the same.
    drawn = exported(word_translator(kl.RandomSampling()))
    saved_model._compare(drawn, other, [b"the red dog"])


class Signature:
    """Of a loaded SavedModel, which keeps what it was asked; it may fail for two."""

    def __init__(self, fails=None, **specs):
        self.structured_input_signature, self.fails = ((), specs), fails
        self.asked = []

    def __call__(self, **inputs):
        self.asked.append({name: x.numpy().tolist() for name, x in inputs.items()})
        if self.fails and len(self.asked) == 2:
            raise tf.errors.InvalidArgumentError(None, None, self.fails)
        return inputs


def test_warm_up_asks_each_signature_for_one_row_and_for_two():
    text = Signature(text=tf.TensorSpec([None], tf.string))
    # The export may take no more than one.
    ids = Signature(f"x: {TOO_MANY}", ids=tf.TensorSpec([None, 2, None], tf.int32))
    warm_up(SimpleNamespace(signatures={"ids": ids, "text": text}))
    assert text.asked == [{"text": [b"a"]}, {"text": [b"a"] * 2}]
    assert ids.asked == [{"ids": [[[1] * 8] * 2] * n} for n in (1, 2)]
    failing = SimpleNamespace(signatures={"text": Signature("No table", text=SPEC)})
    with pytest.raises(tf.errors.InvalidArgumentError, match="No table"):
        warm_up(failing)
    with pytest.raises(TypeError, match="must be what tf.saved_model.load returns"):
        warm_up("models/mine/1")


SEARCHES = [(kl.GreedySearch(5), 1), (kl.RandomSampling(num_samples=3), 3)]


@pytest.mark.slow
@pytest.mark.parametrize("search, count", SEARCHES)
def test_other_searches_have_their_own_number_of_hypotheses(search, count):
    found = signatures(exported(word_translator(search)), 8)
    said = found["n_best"](tf.constant(["the red dog", ""]))
    assert said["translation"].shape == (2, count) and "constrain" not in found
