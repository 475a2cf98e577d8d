"""An exported model says what the library says, in a process that does not have it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from opinionated import opinionated
from small_models import MODELS
from small_translator import (
    SENTENCES,
    sentencepiece_translator,
    to_bytes,
    word_translator,
)
from tensorflow.core.protobuf import saved_model_pb2

import keras_luong.cli.export as command
import keras_luong.export.saved_model as saved_model
from keras_luong import Translator, export_saved_model
from keras_luong.cli import translators
from keras_luong.cli.main import main
from keras_luong.decoding import (
    AverageLengthPenalty,
    BeamSearch,
    Ensemble,
    GreedySearch,
    Shortlist,
)
from keras_luong.export.saved_model import METADATA
from keras_luong.export.warmup import WARMUP
from keras_luong.models import build
from keras_luong.text.tokenizer_pair import (
    TokenizerPair,
    WordTokenizer,
)

# Runs with -I in an empty directory: nothing of the repository can be imported.
READER = """
import json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "keras_luong":
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Refuse())
try:
    import keras_luong
except ImportError:
    pass
else:
    raise SystemExit("keras_luong can be imported: this test shows nothing")
import tensorflow as tf, tensorflow_text

serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answers = []
for batch in json.load(open(sys.argv[2])):
    batch = [bytes(sentence) for sentence in batch]
    said = serve(text=tf.constant(batch, tf.string, [len(batch)]))
    answers.append({
        "translation": [x.decode() for x in said["translation"].numpy()],
        "score": said["score"].numpy().tolist(),
        "truncated": said["truncated"].numpy().tolist(),
    })
json.dump(answers, open(sys.argv[3], "w"))
"""


def read_elsewhere(path, batches, directory):
    """What a process without keras_luong reads from an export."""
    questions, answers = directory / "questions.json", directory / "answers.json"
    questions.write_text(json.dumps([[list(to_bytes(x)) for x in b] for b in batches]))
    empty = directory / "empty"
    empty.mkdir()
    command = [sys.executable, "-I", "-c", READER, path, questions, answers]
    done = subprocess.run(command, cwd=empty, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(answers.read_text())


def ensemble_translator():
    """Two models with other units, one vocabulary."""
    one = sentencepiece_translator()
    size = one.tokenizers.vocab_size
    other = opinionated(build("small", size, size, units=6))
    together = Ensemble([one.model, other])
    return Translator(together, one.tokenizers, one.search, one.max_source_length)


VARIANTS = {
    "ensemble": ensemble_translator,
    "sentencepiece": sentencepiece_translator,
    "words": lambda: word_translator(
        GreedySearch(6), cell_type="gru", num_layers=2, score_mode="dot"
    ),
    "all options": lambda: word_translator(
        BeamSearch(
            beam_width=4,
            n_best=2,
            max_length=None,
            length_penalty=AverageLengthPenalty(0.8),
            coverage_penalty=0.3,
            min_length=2,
            min_length_ratio=0.5,
            max_length_ratio=1.5,
            no_repeat_ngram=2,
            forbidden=(1,),
            early_stopping=False,
        ),
        attention="local-p",
    ),
    "shortlist": lambda: word_translator(
        BeamSearch(
            3,
            max_length=4,
            forbidden=(1,),
            min_length=3,
            shortlist=Shortlist([4], [[4 + i % 3] for i in range(9)], vocab_size=7),
        )
    ),
}


SLOW = ("words", "shortlist", "all options", "ensemble")


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=[pytest.mark.slow] * (name in SLOW))
        for name, make in VARIANTS.items()
    ],
)
def test_says_the_same_as_keras_without_the_library(make, tmp_path):
    translator = make()
    path = export_saved_model(translator, tmp_path / "model")
    batches = [SENTENCES, SENTENCES[:1], SENTENCES[::-1][:5], []]
    answers = read_elsewhere(str(path), batches, tmp_path)
    with pytest.warns(UserWarning, match="only their beginnings were read"):
        translations = translator.translate(SENTENCES, batch_size=4)
    by_sentence = dict(zip(map(to_bytes, SENTENCES), translations, strict=True))
    for batch, answer in zip(batches, answers, strict=True):
        expected = [by_sentence[to_bytes(x)] for x in batch]
        assert answer["translation"] == [x.text for x in expected]
        assert answer["truncated"] == [x.truncated for x in expected]
        scores = [x.score for x in expected]
        np.testing.assert_allclose(answer["score"], scores, atol=1e-4)
    assert len({x.text for x in translations}) > 3
    assert {x.truncated for x in translations} == {True, False}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "deep" / "words"
    return export_saved_model(word_translator(), directory, version=7)


def test_the_layout_and_signature_are_servings(exported):
    assert exported.name == "7" and exported.parent.name == "words"
    assert [x.name for x in exported.parent.iterdir()] == ["7"]
    assert not (exported / WARMUP).exists()  # nobody asked for it
    loaded = tf.saved_model.load(exported)
    asked = {"serving_default", "n_best", "align", "score", "ids", "constrain"}
    assert set(loaded.signatures) == asked
    signature = loaded.signatures["serving_default"]
    (text,) = signature.structured_input_signature[1].values()
    assert text == tf.TensorSpec([None], tf.string, name="text")
    outputs = {
        name: (x.dtype, x.shape.rank)
        for name, x in signature.structured_outputs.items()
    }
    assert outputs == {
        "translation": (tf.string, 1),
        "score": (tf.float32, 1),
        "truncated": (tf.bool, 1),
    }


def operations(path):
    """The types of all operations in a SavedModel."""
    content = (path / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    functions = graph.graph_def.library.function
    nodes = [*graph.graph_def.node, *(x for f in functions for x in f.node_def)]
    return {node.op for node in nodes}


@pytest.mark.slow
def test_serving_has_every_operation(tmp_path):
    """TensorFlow's own, and the tokenizer's that Serving links from tensorflow_text."""
    path = export_saved_model(sentencepiece_translator(), tmp_path)
    content = (path / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    functions = {f.signature.name for f in graph.graph_def.library.function}
    others = {op for op in operations(path) - functions if not hasattr(tf.raw_ops, op)}
    known = {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}
    assert known <= others <= known | {"SentencepieceIdToStringOp"}


@pytest.mark.slow
def test_what_only_python_runs_is_refused(tmp_path):
    class Search:
        def __call__(self, model, source_ids):
            found = BeamSearch(2, max_length=4)(model, source_ids)
            ids = tf.numpy_function(lambda x: x, [found.ids], tf.int32)
            return found._replace(ids=tf.ensure_shape(ids, found.ids.shape))

    translator = word_translator(Search())
    message = "serving_default' cannot be served: .* the operations .*PyFunc"
    with pytest.raises(ValueError, match=message):
        export_saved_model(translator, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_where_it_comes_from_lies_beside_it(tmp_path):
    origin = {"results": {"test": {"bleu": 39.6, "signature": "nrefs:1"}}, "größe": 3}
    path = export_saved_model(word_translator(), tmp_path, metadata=origin)
    about = json.loads((path / "assets.extra" / "keras_luong.json").read_text())
    assert about["results"] == origin["results"] and about["größe"] == 3
    assert about["max_source_length"] == 10 and about["max_batch_size"] == 256
    assert "beam_width=2" in about["search"]
    with pytest.raises(TypeError, match="not JSON serializable"):
        export_saved_model(word_translator(), tmp_path, 2, metadata={"x": object()})
    assert os.listdir(tmp_path) == ["1"]


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ([1], TypeError, r"metadata must be a dict or None. Received: \[1\]"),
        ({"x": float("nan")}, ValueError, "JSON compliant"),
        ({"x": "\ud800"}, UnicodeEncodeError, "surrogates"),
    ],
)
def test_what_json_cannot_write_is_refused_first(metadata, error, message, tmp_path):
    with pytest.raises(error, match=message):
        export_saved_model(word_translator(), tmp_path, metadata=metadata)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_faster_export_of_the_same_version_stays(tmp_path, monkeypatch):
    target = tmp_path / "1"

    def save(*args, **kwargs):
        tf.saved_model.save(*args, **kwargs)
        target.mkdir()
        (target / "saved_model.pb").write_text("the other's")

    with monkeypatch.context() as patch:
        patch.setattr(saved_model, "tf", SimpleNamespace(**vars(tf)))
        patch.setattr(
            saved_model.tf,
            "saved_model",
            SimpleNamespace(save=save, SaveOptions=tf.saved_model.SaveOptions),
        )
        with pytest.raises(FileExistsError, match="1 exists"):
            export_saved_model(word_translator(), tmp_path)
    assert (target / "saved_model.pb").read_text() == "the other's"
    assert os.listdir(tmp_path) == ["1"]


@pytest.mark.slow
def test_what_translates_otherwise_is_not_published(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow_serving.apis")
    translator = word_translator()

    def replay(path):
        return {"serving_default": {"translation": tf.constant(["x"])}}

    monkeypatch.setattr(saved_model, "replay_warmup", replay)
    message = "translation for source 0, b'the red dog', is b'x', the library's b'"
    with pytest.raises(RuntimeError, match=message):
        export_saved_model(translator, tmp_path, warmup=["the red dog"])
    assert not list(tmp_path.iterdir())


def test_others_may_read_it(exported):
    """Serving runs as another user; temporary directories are private by default."""
    umask = os.umask(0)
    os.umask(umask)
    assert exported.stat().st_mode & 0o777 == 0o777 & ~umask


@pytest.mark.slow
def test_the_weights_are_those_at_export(tmp_path):
    translator = word_translator()
    path = export_saved_model(translator, tmp_path)
    sentence = tf.constant(["the red dog"])
    before = translator.serve(sentence)["score"].numpy()
    for weight in translator.model.trainable_variables:
        weight.assign(weight + 1.0)
    after = export_saved_model(translator, tmp_path, version=2)
    first, second = (
        tf.saved_model.load(x).signatures["serving_default"](sentence)["score"].numpy()
        for x in (path, after)
    )
    np.testing.assert_allclose(first, before, rtol=1e-6)
    np.testing.assert_allclose(second, translator.serve(sentence)["score"], rtol=1e-6)
    assert abs(first - second) > 1e-3


@pytest.mark.slow
def test_an_existing_version_is_refused_or_replaced(tmp_path, monkeypatch):
    version = tmp_path / "3"
    version.mkdir()
    (version / "old").touch()
    translator = word_translator(GreedySearch(3))
    with pytest.raises(FileExistsError, match="3 exists; .*overwrite=True"):
        export_saved_model(translator, tmp_path, version=3)
    assert os.listdir(version) == ["old"]

    def fail(*args, **kwargs):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(saved_model.tf.saved_model, "save", fail)
        with pytest.raises(OSError, match="disk full"):
            export_saved_model(translator, tmp_path, version=3, overwrite=True)
    assert os.listdir(tmp_path) == ["3"] and os.listdir(version) == ["old"]

    export_saved_model(translator, tmp_path, version=3, overwrite=True)
    assert os.listdir(tmp_path) == ["3"]
    assert "saved_model.pb" in os.listdir(version) and "old" not in os.listdir(version)


@pytest.mark.slow
def test_a_reader_never_sees_half_a_version(tmp_path):
    half, stop = [], threading.Event()

    def poll():
        while not stop.is_set():
            for version in tmp_path.glob("[0-9]*"):
                names = {str(x.relative_to(version)) for x in version.rglob("*")}
                if not {"saved_model.pb", "variables/variables.index"} <= names:
                    half.append(names)

    reader = threading.Thread(target=poll)
    reader.start()
    translator = word_translator(GreedySearch(3))
    for version in (1, 2, 3):
        export_saved_model(translator, tmp_path, version=version)
    stop.set()
    reader.join()
    assert not half and len(list(tmp_path.iterdir())) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "search"),
    [
        ([], BeamSearch(4, 2, 9, 0.5)),
        (["--beam_width", "1", "--warmup"], BeamSearch(1, 1, 9, 0.5)),
        (
            ["--length_penalty", "0", "--max_length", "3", "--max_source_length", "2"],
            BeamSearch(4, 2, 3, 0.0),
        ),
    ],
)
def test_the_command(options, search, tmp_path, monkeypatch, capsys):
    def load_ensemble(run_dirs, dtype):
        assert (run_dirs, dtype) == ([tmp_path / "run"], "float32")
        return word_translator(BeamSearch(4, 2, 9, 0.5))

    def origin(options, precision):
        return {"from": str(options.run_dir), "precision": precision}

    seen = []

    def export(translator, *args, **kwargs):
        seen.append(translator)
        return export_saved_model(translator, *args, **kwargs)

    monkeypatch.setattr(translators, "load_ensemble", load_ensemble)
    monkeypatch.setattr(command, "origin", origin)
    monkeypatch.setattr(saved_model, "export_saved_model", export)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")  # which makes it a run
    run, out = str(tmp_path / "run"), str(tmp_path / "out")
    argv = ["export", run, out, "--version", "2", "--check", "the cat", *options]
    main([*argv, "--precision", "float32"])
    assert seen[0].search == search
    assert seen[0].max_source_length == (2 if "--max_source_length" in options else 10)
    about = json.loads((Path(out) / "2" / METADATA).read_text())
    assert (about["from"], about["precision"]) == (run, "float32")
    assert (Path(out) / "2" / WARMUP).exists() == ("--warmup" not in options)
    said = capsys.readouterr().out
    (first, _, *snippet) = said.splitlines()
    assert first.startswith(f"{out}/2: 'the cat' -> ")
    words = {}
    exec("\n".join(x.strip() for x in snippet[1:3]), words)
    result = eval(snippet[3].strip(), words).numpy()[0].decode()
    assert first.endswith(repr(result))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"translator": "run"}, TypeError, "must be a Translator.* Received: 'run'"),
        ({"max_batch_size": 0}, ValueError, "max_batch_size must be at least 1.*: 0"),
        ({"version": 0}, ValueError, "version must be at least 1. Received: 0"),
        ({"version": "1"}, TypeError, "version must be an integer. Received: '1'"),
        ({"directory": None}, TypeError, "directory must be a path. Received: None"),
        ({"directory": __file__}, NotADirectoryError, "`directory` is a file"),
    ],
)
def test_wrong_arguments(change, error, message, tmp_path):
    arguments = {"translator": word_translator(), "directory": tmp_path, "version": 1}
    with pytest.raises(error, match=message):
        export_saved_model(**{**arguments, **change})
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("preset, fields", MODELS.values(), ids=MODELS)
def test_every_model_says_the_same_as_keras(preset, fields, tmp_path):
    source = WordTokenizer(["the", "red", "dog", "cat", "is"])
    pair = TokenizerPair(source, WordTokenizer(["der", "Hund", "ist"]))
    model = opinionated(build(preset, 9, 7, units=4, **fields))
    translator = Translator(model, pair, BeamSearch(2, max_length=6))
    path = export_saved_model(translator, tmp_path / "model")
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    sentences = ["the red dog", "", "cat", "is is is the red dog the cat", "x"]
    translations = translator.translate(sentences)
    said = serve(text=tf.constant(sentences))
    texts = [text.decode() for text in said["translation"].numpy()]
    assert texts == [t.text for t in translations]
    np.testing.assert_allclose(said["score"], [t.score for t in translations], 1e-4)


@pytest.mark.slow
def test_the_command_that_the_page_gives_for_saved_model_cli(tmp_path):
    page = Path(__file__).parents[1] / "docs" / "serving.md"
    blocks = [x for x in page.read_text().split("```") if x.startswith("bash\n")]
    (block,) = [x for x in blocks if "saved_model_cli" in x]
    command = block.removeprefix("bash\n").replace("python", sys.executable, 1)
    path = export_saved_model(sentencepiece_translator(), tmp_path / "models/mine")
    assert path.relative_to(tmp_path).as_posix() == "models/mine/1"
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Result for output key translation:\n[b'" in done.stdout
