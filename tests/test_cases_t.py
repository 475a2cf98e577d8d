"""Texts that came out wrong in use: of each case, the right answer."""

from __future__ import annotations

import gzip
import io
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from commands import options
from export_scripts import export_script
from small_translator import sentencepiece_translator, written_run

from keras_luong import export_saved_model, export_tflite
from keras_luong.cli import evaluate, score, translate, translators, verify
from keras_luong.decoding import BeamSearch

BOM = "\ufeff".encode()
TEXTS = ["in is in in is under", "is cat is", "", "under is dog", "the red dog"]
LOWEST = np.finfo("float32").min


@pytest.fixture(scope="module")
def translator():
    """Some of its sentences have hypotheses of one text in other pieces."""
    keras.utils.set_random_seed(1)
    search = BeamSearch(12, n_best=4, max_length=5, length_penalty=0.6)
    return sentencepiece_translator().with_search(search)


@pytest.fixture(scope="module")
def run(translator, tmp_path_factory):
    return written_run(tmp_path_factory.mktemp("run"), translator).path


@pytest.fixture(scope="module")
def version(translator, tmp_path_factory):
    return export_saved_model(translator, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def ask(version):
    loaded = tf.saved_model.load(version)

    def ask(signature, **inputs):
        said = loaded.signatures[signature](**inputs)
        return {name: x.numpy() for name, x in said.items()}

    return ask


@pytest.fixture(scope="module")
def on_edge(translator, tmp_path_factory):
    pytest.importorskip("ai_edge_litert.interpreter")
    edge = pytest.importorskip("keras_luong_edge")
    path = export_tflite(translator, tmp_path_factory.mktemp("edge") / "x.tflite")
    return edge.EdgeTranslator(path)


@pytest.fixture
def traced(translator, monkeypatch):
    """The commands' translator, which need not be traced again."""
    monkeypatch.setattr(translators, "load_translator", lambda options: translator)
    monkeypatch.setattr(translator, "with_search", lambda n_best: translator)
    return translator


def files(tmp_path, pack):
    """The same text as source and as reference, marked or packed, and plain."""
    plain = tmp_path / "plain"
    plain.write_text("".join(f"{text}\n" for text in TEXTS))
    odd = tmp_path / "odd"
    odd.write_bytes(pack(plain.read_bytes()))
    return plain, odd


def marked(content):
    return BOM + content


PACKS = pytest.mark.parametrize("pack", [marked, gzip.compress])


def of_command(name, run, path, out, capsys):
    """What a command writes, or prints, of a file."""
    words = {
        "translate": ["--input", path, "--output", out],
        "score": [path, path, "--output", out],
        "evaluate": ["--test", path, path, "--bleu_tokenize", "13a"],
    }[name]
    module = {"translate": translate, "score": score, "evaluate": evaluate}[name]
    module.run(options(name, run, *words))
    if name != "evaluate":
        return out.read_bytes()
    return capsys.readouterr().out.replace(f"{path.name}: ", "")


@PACKS
@pytest.mark.parametrize("name", ["translate", "score", "evaluate"])
@pytest.mark.usefixtures("traced")
def test_t2_t4_commands_read_marked_and_packed_files(name, pack, run, tmp_path, capsys):
    """The mark made the first word <unk>; gzip was "no UTF-8" to evaluate."""
    plain, odd = files(tmp_path, pack)
    out = tmp_path / "out"
    expected = of_command(name, run, plain, out, capsys)
    assert of_command(name, run, odd, out, capsys) == expected


@PACKS
@pytest.mark.usefixtures("traced")
def test_t2_t4_verify_reads_marked_and_packed_files(pack, run, tmp_path):
    """A reference with a mark cost BLEU; gzip was "no UTF-8"."""
    _, odd = files(tmp_path, pack)
    seen = []
    asked = options("verify", run, odd, "--reference", odd, "--bleu_tokenize", "13a")

    def parrot(texts):
        seen.extend(texts)
        return [t.text for t in translators.load_translator(asked).translate(texts)]

    verify.run(asked, {"Parrot": parrot})
    assert seen == TEXTS


@PACKS
@pytest.mark.parametrize("name", ["rest_client", "grpc_client"])
def test_t2_t4_clients_read_marked_and_packed_input(name, pack, monkeypatch, tmp_path):
    """The mark was sent as a part of the first word, and gzip as it was."""
    if name == "grpc_client":
        pytest.importorskip("tensorflow_serving.apis")
    client, seen = export_script(name), []

    def predict(*args):
        seen.extend(args[-1]["text"])
        texts = [b"x" if name == "grpc_client" else "x" for _ in args[-1]["text"]]
        return {"translation": texts, "truncated": [False] * len(texts)}

    if name == "grpc_client":
        stub = SimpleNamespace(predict=predict)
        monkeypatch.setattr(client, "Client", lambda *_: stub)
    else:
        monkeypatch.setattr(client, "predict", predict)
    _, odd = files(tmp_path, pack)
    monkeypatch.setattr(sys, "argv", ["client", "server", "model"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=odd.open("rb")))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=io.BytesIO()))
    client.main()
    assert seen == [text.encode() for text in TEXTS]
    assert sys.stdout.buffer.getvalue() == b"x\n" * len(TEXTS)


@PACKS
def test_t2_t4_the_edge_command_reads_marked_and_packed_input(
    pack, on_edge, monkeypatch, capfdbinary, tmp_path
):
    """The mark was a part of the first word; of gzip the bytes were translated."""
    command = pytest.importorskip("keras_luong_edge.command")
    seen = []  # as translations of other texts may be the same

    def translate(texts, n_best):
        seen.extend(texts)
        return on_edge.translate(texts, n_best=n_best)

    stub = SimpleNamespace(n_best=on_edge.n_best, translate=translate)
    monkeypatch.setattr(command, "EdgeTranslator", lambda *_: stub)
    _, odd = files(tmp_path, pack)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=odd.open("rb")))
    assert command.main(["x.tflite"]) == 0
    assert seen == [text.encode() for text in TEXTS]
    lines = capfdbinary.readouterr().out.decode().split("\n")
    assert lines == [*(t.text for t in on_edge.translate(TEXTS)), ""]


@PACKS
def test_t2_t4_the_script_on_a_saved_model_reads_marked_and_packed_files(
    pack, tmp_path
):
    """Its own reader, and that of load.py, took marks as text and refused gzip."""
    lines = export_script("lines")
    _, odd = files(tmp_path, pack)
    assert lines.read_pairs(odd, odd) == (TEXTS, TEXTS)
    assert lines.read_file(odd) == [text.encode() for text in TEXTS]


@pytest.mark.slow
def test_t2_the_c_program_drops_the_mark(version, translator, tmp_path):
    """The mark was a part of the first word, also without c_client.py before it."""
    c_client = export_script("serving.c_client")
    if c_client.compiler() is None:
        pytest.skip("there is no C compiler")
    program = c_client.build(tmp_path)
    for content, count in ((BOM + b"is cat is\n" + BOM, 2), (BOM, 0)):
        command = c_client.command(program, version)
        done = c_client.subprocess.run(command, input=content, capture_output=True)
        assert done.returncode == 0, done.stderr
        texts = ["is cat is", "\ufeff"][:count]
        expected = [t.text for t in translator.translate(texts)] if texts else []
        assert done.stdout.decode().split("\n") == [*expected, ""]


@pytest.fixture(scope="module")
def whole(translator):
    """All that the beam finds: (text, score) of each hypothesis of each sentence."""
    search = BeamSearch(12, n_best=12, max_length=5, length_penalty=0.6)
    found = search(translator.model, translator.graph.read(tf.constant(TEXTS)).ids)
    texts = translator.target_tokenizer.decode(found.ids).numpy()
    rows = zip(texts, found.scores.numpy(), strict=True)
    return [[(text.decode(), x) for text, x in zip(*row, strict=True)] for row in rows]


def assert_these(found, expected):
    assert [text for text, _ in found] == [text for text, _ in expected]
    np.testing.assert_allclose(*([x for _, x in y] for y in (found, expected)), 1e-4)


def best_distinct(hypotheses, most):
    """The first of each text, in their order."""
    first = {text: (text, x) for text, x in reversed(hypotheses)}
    return sorted(first.values(), key=hypotheses.index)[:most]


def test_t6_the_beam_has_one_text_twice(whole):
    """Else the tests below would show nothing: it is among the first four."""
    firsts = [[text for text, _ in hypotheses[:4]] for hypotheses in whole]
    assert any(len(set(texts)) < 4 for texts in firsts)


def test_t6_n_best_texts_differ_in_keras(translator, whole):
    """A text came twice where it had two segmentations, and a worse one was missing."""
    found = translator.translate(TEXTS, n_best=True)
    for text, hypotheses, row in zip(TEXTS, found, whole, strict=True):
        said = [(t.text, t.score) for t in hypotheses]
        assert_these(said, best_distinct(row, 4) if text else [("", 0.0)])
        assert all(t.tokens and len(t.log_probs) for t in hypotheses if text)


def test_t6_n_best_texts_differ_with_prefixes(translator):
    """Which take another way through the graph."""
    found = translator.translate(TEXTS, n_best=True, prefixes=[""] * len(TEXTS))
    expected = translator.translate(TEXTS, n_best=True)
    assert [[t.text for t in x] for x in found] == [
        [t.text for t in x] for x in expected
    ]


def test_t6_the_best_one_does_not_change(translator, whole):
    """What leaves out repetitions keeps the first of them."""
    best = translator.with_search(n_best=1).translate(TEXTS)
    for text, t, row in zip(TEXTS, best, whole, strict=True):
        assert_these([(t.text, t.score)], row[:1] if text else [("", 0.0)])


def test_t6_n_best_texts_differ_in_the_saved_model(ask, whole):
    """Its signature repeated them too; the places that are left over are empty."""
    said = ask("n_best", text=tf.constant(TEXTS))
    assert said["translation"].shape == (len(TEXTS), 12)
    for i, row in enumerate(whole):
        if TEXTS[i]:
            expected = best_distinct(row, 12)
            texts = [x.decode() for x in said["translation"][i]]
            pairs = list(zip(texts, said["score"][i], strict=True))
            assert_these(pairs[: len(expected)], expected)
            assert pairs[len(expected) :] == [("", LOWEST)] * (12 - len(expected))


def test_t6_n_best_texts_differ_on_the_edge(on_edge, whole):
    """A file holds the whole beam, and says how many of it are an answer."""
    assert on_edge.n_best == 4
    for text, hypotheses, row in zip(
        TEXTS, on_edge.translate(TEXTS, n_best=True), whole, strict=True
    ):
        said = [(t.text, t.score) for t in hypotheses]
        assert_these(said, best_distinct(row, 4) if text else [("", 0.0)])


def test_t6_one_hypothesis_costs_no_more():
    """A wider pool would make this search longer."""
    assert BeamSearch(5).with_spares() == BeamSearch(5)
    assert BeamSearch(5, n_best=2).with_spares() == BeamSearch(5, n_best=5)


@pytest.mark.parametrize("text", ["", " \t\u3000"])
def test_t9_an_empty_text_has_one_hypothesis(text, translator, ask, on_edge):
    """All places of the signature scored 0.0, as the best of anything would."""
    said = ask("n_best", text=tf.constant([text]))
    assert said["translation"].tolist() == [[b""] * 12]
    assert said["score"].tolist() == [[0.0] + [LOWEST] * 11]
    for runtime in (translator, on_edge):
        ((only,),) = runtime.translate([text], n_best=True)
        assert (only.text, only.score) == ("", 0.0)


INPUTS = {
    "serving_default": {"text": ["a dog"]},
    "n_best": {"text": ["a dog"]},
    "align": {"text": ["a dog"]},
    "score": {"text": ["a dog"], "target": ["a dog"]},
    "ids": {"ids": [[4, 5]], "length": [2]},
}


@pytest.mark.parametrize("change", [lambda x: [x], lambda x: x[0]], ids=["up", "down"])
@pytest.mark.parametrize(
    "name, given", [(name, key) for name, keys in INPUTS.items() for key in keys]
)
def test_t10_inputs_of_another_rank_are_refused_by_their_shape(
    name, given, change, ask
):
    """[["A dog runs."]] had an answer of shape [1, 1], a scalar a riddle for error."""
    inputs = {key: tf.constant(x) for key, x in INPUTS[name].items()}
    assert all(len(x) == 1 for x in ask(name, **inputs).values())
    inputs[given] = tf.constant(change(INPUTS[name][given]))
    shape = str(inputs[given].shape.as_list()).replace(" ", "")
    with pytest.raises(tf.errors.InvalidArgumentError) as refused:
        ask(name, **inputs)
    said = str(refused.value)
    assert f"Shape of tensor {given} {shape} is not compatible with" in said
