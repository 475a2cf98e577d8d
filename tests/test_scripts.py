"""Every script, example and benchmark can be imported, and runs small, end to end.

Each runs in a process of its own, with real input. What compares with TensorFlow Addons
asks a stand-in (`stand_in_peer.py`), and Addons itself where `TFA_PYTHON` names the
Python that has it. So with CTranslate2, by `CT2_PYTHON`:

    python -m venv CT2 && CT2/bin/pip install ctranslate2 numpy
    CT2_PYTHON=CT2/bin/python pytest -m slow tests/test_scripts.py -k decode
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_training import write_corpus
from small_translator import word_translator, written_run

from keras_luong.decoding import BeamSearch, Shortlist

ROOT = Path(__file__).parents[1]
FOLDERS = ("examples", "export", "export/serving", "benchmarks", "benchmarks/peers")
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).iterdir()
    if path.suffix in (".py", ".sh")
)
PYTHON = [x for x in SCRIPTS if x.endswith(".py")]
#: What runs in another file's tests, or is only imported by others.
EXAMPLES = "captions custom_score dates forecast pooling sorting speech".split()
ELSEWHERE = {
    "benchmarks/curves.py": "by compare_attention.py; test_curves.py",
    "benchmarks/peers/ct2_transformer.py": "by decode.py, where CT2_PYTHON is set",
    "benchmarks/peers/tfa_beam.py": "by compare_search.py",
    "benchmarks/peers/tfa_train.py": "by compare_train.py",
    "benchmarks/runtimes.py": "by decode.py",
    "benchmarks/workers.py": "by decode.py, compare_search.py and compare_train.py",
    **{f"examples/{name}.py": "test_examples.py" for name in EXAMPLES},
    "examples/train_distilled.sh": "test_cli_distill.py",
    "examples/train_wmt.py": "test_train_wmt.py",
    "export/packages.py": "test_release.py",
    "export/serving/lines.py": "by the clients, load.py and ../evaluate.py",
    "export/serving/c_client.py": "by verify.py; test_serving_clients.py",
    "export/serving/grpc_client.py": "test_server.py",
    "export/serving/load.py": "test_serving_clients.py",
    "export/serving/rest_client.py": "test_server.py",
    "export/serving/server.py": "test_server.py",
    "export/serving/connections.py": "by server.py",
    "export/serving/micro_batches.py": "test_micro_batches.py",
    "export/serving/predict_requests.py": "test_predict_requests.py",
    "export/serving/saved_models.py": "test_digests.py",
    "export/serving/versions.py": "test_versions.py",
}
NEEDS = {
    "tensorflow_serving": ["export/serving/grpc_client.py"],
    "uvicorn": ["export/serving/connections.py"],
    "starlette": ["export/serving/predict_requests.py"],
    "ray.serve": ["export/serving/server.py"],
}
TINY = "--units 8 --num_layers 1 --tokenizer word --optimizer adam --batch_tokens 99"
TINY = [*TINY.split(), "--epochs", "1", "--beam_width", "2"]


def run(script, *arguments, cwd=None):
    """What a script prints, with this checkout's code, whatever is installed."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "export" / "edge")])
    done = subprocess.run(
        [sys.executable, ROOT / script, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_every_script_runs_somewhere():
    here = Path(__file__).read_text()
    left = [x for x in SCRIPTS if x not in ELSEWHERE and f'run("{x}"' not in here]
    assert not left


@pytest.mark.parametrize("script", [x for x in PYTHON if "/peers/" not in x])
def test_import(script, monkeypatch):
    for needs, scripts in NEEDS.items():
        if script in scripts:
            pytest.importorskip(needs)
    monkeypatch.syspath_prepend(ROOT / Path(script).parent)
    # evaluate.py takes it away from its process.
    monkeypatch.setitem(sys.modules, "keras_luong", sys.modules["keras_luong"])
    spec = importlib.util.spec_from_file_location(f"a {script}", ROOT / script)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def names_of_ours(tree):
    """(module, name) of all that a script takes from this library, wherever it does."""
    packages = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and is_ours(node.module):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            ours = [alias for alias in node.names if is_ours(alias.name)]
            packages.update({alias.asname or alias.name: alias.name for alias in ours})
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            package, *names = ast.unparse(node).split(".")
            if package in packages and all(map(str.isidentifier, names)):
                yield packages[package], ".".join(names)


def is_ours(module):
    return (module or "").split(".")[0] in ("keras_luong", "keras_luong_edge")


@pytest.mark.parametrize("script", PYTHON)
def test_what_it_takes_from_the_library_is_there(script):
    for module, names in names_of_ours(ast.parse((ROOT / script).read_text())):
        found = importlib.import_module(module)
        for name in names.split("."):
            if not hasattr(found, name):  # a module that nothing has imported yet
                importlib.import_module(f"{found.__name__}.{name}")
            found = getattr(found, name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, as if it had been trained, texts that it knows, and a shortlist."""
    path = tmp_path_factory.mktemp("trained")
    written_run(path / "run", word_translator(BeamSearch(2, max_length=6)))
    texts = ["the red dog", "the cat is red", "is", "dog is cat"]
    (path / "in.txt").write_text("\n".join(texts) + "\n")
    (path / "out.txt").write_text("der Hund\nist\nder\nHund ist\n")
    Shortlist([4, 5], [[6]] * 9, 7).save(path / "shortlist.npz")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A corpus in text files, as options."""
    path = tmp_path_factory.mktemp("data")
    write_corpus(path, train=30, val=6, test=6)
    return ["--data", path, "--source", "xx", "--target", "yy"]


@pytest.fixture(params=["stand-in", "tfa"])
def peer(request, stand_in):
    """The Python that has TensorFlow Addons, or seems to."""
    if request.param == "tfa":
        return os.environ.get("TFA_PYTHON") or pytest.skip("there is no TFA_PYTHON")
    return stand_in


@pytest.fixture
def ctranslate2(stand_in):
    """The Python that has CTranslate2, or seems to."""
    return os.environ.get("CT2_PYTHON") or stand_in


@pytest.fixture
def stand_in(tmp_path):
    """What answers as the Python that has a peer."""
    path = tmp_path / "python"
    script = Path(__file__).with_name("stand_in_peer.py")
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.slow
def test_attention_length():
    size = "--lengths 30 60 --units 4 --batch 2 --queries 3 --rounds 1".split()
    said = run("benchmarks/attention_length.py", *size)
    table = [line.split() for line in said.splitlines()[2:5]]
    assert [row[0] for row in table] == ["S", "30", "60"]
    assert "local-p is faster than global" in said


@pytest.mark.slow
def test_one_layer():
    said = run("benchmarks/one_layer.py", *"--shapes 2,3,4,8 --rounds 1".split())
    table = [line.split("|") for line in said.splitlines()[4:]]
    assert [row[1].strip() for row in table[::2]] == ["dot", "concat", "multi-head"]
    assert all(float(cell) > 0 for row in table for cell in row[4:6])


@pytest.mark.slow
def test_train_step():
    changes = '{"attention": "local-m", "window": 2}'
    size = ["--shape", "2,3,4,20,5,6,1", "--steps", 2, "--changes", changes]
    line = json.loads(run("benchmarks/train_step.py", *size).splitlines()[-1])
    assert line["median_s"] > 0 and line["peak_mb"] > 0
    assert line["target_tokens_per_s"] == pytest.approx(2 * 4 / line["median_s"])


@pytest.mark.slow
def test_input_speed():
    size = "--limit_examples 300 --vocab_size 200 --batch_tokens 200 --rounds 1".split()
    cut, few = map(
        json.loads, run("benchmarks/input_speed.py", "phrases", *size).split("\n")[:2]
    )
    assert 0 < few["shapes"] <= 15 and few["target_tokens_per_s"] > 0
    assert 1 < few["positions_per_token"] < 1.1 * cut["positions_per_token"]


@pytest.mark.slow
def test_gpu_step(data):
    """Rows that are measured, and one that fails beside them."""
    rows = ["4 x 1000 mixed_bfloat16 TensorFlow, neither", "512 float32 JAX", "train"]
    train = " ".join(map(str, [*data[1:], *TINY]))
    given = ["--rehearse", "--train", train, "--jax", "false", "--only", *rows]
    said = run("benchmarks/gpu_step.py", *given)
    _, _, jax, step, command = (
        [cell.strip() for cell in line.split("|")[3:-1]]
        for line in said.splitlines()
        if line.startswith("|")
    )
    assert jax == ["JAX", "ended with 1: nothing", *[""] * 4]
    assert step[0] == "TensorFlow, neither" and step[2] == step[5] == "-"
    tokens = float(step[3].replace(",", ""))  # 2 rows of 5
    assert tokens == pytest.approx(2 * 5 / float(step[1]) * 1000, rel=0.1)
    assert command[0] == "keras-luong train" and int(command[3].replace(",", "")) > 0


@pytest.mark.slow
def test_constraints(tmp_path):
    path = written_run(tmp_path / "run", word_translator()).path
    (tmp_path / "a.en").write_text("the dog\nthe cat\n")
    (tmp_path / "a.de").write_text("der Hund ist\nist der\n")
    test = ["--test", tmp_path / "a.en", tmp_path / "a.de", "--beam_widths", 3]
    *_, line = run("benchmarks/constraints.py", path, *test).splitlines()
    met, wanted = re.search(r"\| (\d) of (\d) \|", line).groups()
    assert met == wanted


@pytest.mark.slow
def test_compare_train(peer):
    size = ["--shape", "2,3,4,20,5,6,1", "--steps", 2]
    said = run("benchmarks/compare_train.py", "--peer", peer, *size)
    assert "times Addons' speed" in said.splitlines()[-1]


@pytest.mark.slow
def test_c7_compare_search_of_a_run(trained):
    said = run(
        "benchmarks/compare_search.py",
        *("--run_dir", trained / "run", "--sources", trained / "in.txt"),
        *("--batch_size", 2, "--max_length", 6, "--beam_width", 2, "--rounds", 1),
    )
    assert said.count("sentences/s") == 3 and "batches of 1:" in said


@pytest.mark.slow
def test_compare_search_of_a_run_with_a_peer(trained, peer):
    said = run(
        "benchmarks/compare_search.py",
        *("--run_dir", trained / "run", "--sources", trained / "in.txt"),
        *("--batch_size", 2, "--max_length", 6, "--beam_width", 2, "--rounds", 1),
        *("--shortlist", trained / "shortlist.npz", "--peer", peer),
    )
    same = int(re.search(r"best hypotheses: (\d) of 4 the same", said)[1])
    assert same == 4 or peer == os.environ.get("TFA_PYTHON")  # it says padding too
    assert "with the shortlist 100.0% of the translations are the same" in said


@pytest.mark.slow
def test_compare_search_of_random_weights_with_a_peer(peer):
    shape = ["--shape", "2,3,4,20,6,6,1,2", "--rounds", 1]
    said = run("benchmarks/compare_search.py", *shape, "--peer", peer)
    assert "ours is" in said


@pytest.mark.slow
def test_decode(trained, ctranslate2):
    pytest.importorskip("ai_edge_litert.interpreter")
    given = [trained / "run", trained / "in.txt", "--rounds", 1, "--beams", 2]
    given += ["--ctranslate2", ctranslate2, "--size", "1,16,32,2,50"]
    given += ["--references", trained / "in.txt"]
    said = run("benchmarks/decode.py", *given, "--batch_sizes", 1, 4)
    names, one, four, memory = (
        [cell.strip() for cell in line.split("|")[2:-1]]
        for line in said.splitlines()
        if re.match(r"\| (batch|1|4|MB) ", line)
    )
    assert names == columns(os.cpu_count())
    in_turn = [name.startswith("LiteRT") for name in names]
    assert all(one) and [not cell for cell in four] == in_turn
    megabytes = dict(zip(names, map(int, memory), strict=True))
    assert megabytes["Keras"] > megabytes["LiteRT"] > 0
    assert megabytes["Keras"] > megabytes["CTranslate2 int8"] > 0
    assert re.search(r"\| BLEU( \| [\d.]+){4,6} \|\n.*\|tok:13a\|", said)


def columns(cores):
    """Those of decode.py's table."""
    several = f", {cores} threads"
    ours = ["Keras", "SavedModel", "LiteRT", "LiteRT int8"]
    peers = ["CTranslate2 float32", "CTranslate2 int8"]
    if cores == 1:
        return [*ours, *peers]
    ours += ["SavedModel, 1 thread", f"LiteRT{several}"]
    return [*ours, *(name + x for name in peers for x in ("", several))]


def test_what_decode_starts(trained, monkeypatch):
    """Each of the columns with its threads."""

    class Worker:
        process = SimpleNamespace(pid="self")

        def __init__(self, *command, **environment):
            self.command, self.environment = [*map(str, command)], environment

        def ask(self, question):
            return {"found": [[3, 2]]}

    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    decode = importlib.import_module("decode")
    monkeypatch.setattr(decode, "Worker", Worker)
    monkeypatch.setattr(decode, "reset_peak", lambda process: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    given = [trained / "run", trained / "in.txt", "--ctranslate2", "python"]
    monkeypatch.setattr(sys, "argv", ["decode.py", *map(str, given)])
    models = {name: f"a {name}" for name in ("SavedModel", "LiteRT", "LiteRT int8")}
    workers = decode.started(decode.parse(), trained, models, 5)
    assert [*workers] == columns(3)
    alone = [name for name, worker in workers.items() if worker.environment]
    assert alone == ["SavedModel, 1 thread"]
    assert workers[alone[0]].environment == {"TF_NUM_INTRAOP_THREADS": "1"}
    for name, worker in workers.items():
        threads = 3 if name.endswith(", 3 threads") else 1
        if name.startswith("CTranslate2"):
            kind = name.split()[1].strip(",")
            assert worker.command[-3:] == [kind, str(threads), "5"]
        else:
            assert json.loads(worker.command[-1])["threads"] == threads


def test_a_worker_has_the_environment_that_is_given(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    code = "import os; print(os.environ['TF_NUM_INTRAOP_THREADS'])"
    worker = importlib.import_module("workers").Worker
    one = worker(sys.executable, "-c", code, TF_NUM_INTRAOP_THREADS="1")
    assert one.ready == 1 and one.process.wait() == 0


@pytest.mark.slow
def test_compare_attention(data, tmp_path):
    pytest.importorskip("matplotlib")
    given = [*data, *TINY, "--variants", "local-p (general)"]
    said = run("benchmarks/compare_attention.py", "--out", tmp_path, *given)
    assert said.strip().splitlines()[-1].startswith("| local-p (general) |")
    pictures = {path.name for path in tmp_path.glob("*.png")}
    assert pictures == {"bleu.png", "bleu_by_length.png", "learning_curves.png"}


@pytest.mark.slow
def test_demo(tmp_path):
    pytest.importorskip("babel")
    size = ["--epochs", 1, "--limit_examples", 200]
    said = run("examples/demo.py", *size, cwd=tmp_path)
    assert "from the SavedModel alone" in said and "BLEU" in said
    assert "Attention picture  runs/demo/attention.png" in said


@pytest.mark.slow
def test_exports_agree(trained, tmp_path):
    """What is exported by one script is what the others read."""
    pytest.importorskip("ai_edge_litert.interpreter")
    texts = [trained / "in.txt", trained / "out.txt"]
    given = [trained / "run", tmp_path / "model", "--check", "the red dog"]
    run("export/to_saved_model.py", *given)
    given[1] = tmp_path / "x.tflite"
    run("export/to_tflite.py", *given)
    version = tmp_path / "model" / "1"
    exports = ["--saved_model", version, "--tflite", tmp_path / "x.tflite"]
    said = run("export/verify.py", trained / "run", texts[0], *exports)
    assert "All agree." in said
    assert "BLEU" in run("export/evaluate.py", version, *texts, "--tokenize", "none")
