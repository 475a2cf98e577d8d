"""Every script, example, benchmark and notebook runs, small and end to end.

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
import operator
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

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
NEEDS = {
    "export/serving/grpc_client.py": "tensorflow_serving",
    "export/serving/connections.py": "uvicorn",
    "export/serving/predict_requests.py": "starlette",
    "export/serving/server.py": "ray.serve",
}


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
    """In a test here, or by its module's name in another file or script."""
    others = [ROOT / x for x in SCRIPTS] + sorted(Path(__file__).parent.glob("*.py"))
    texts = {path: path.read_text() for path in others}
    for script in SCRIPTS:
        name = Path(script).stem
        called = rf'{script}"|{name}\.(py|sh)"|import {name}\b|from {name} |[".]{name}"'
        elsewhere = (texts[x] for x in others if x != ROOT / script)
        assert any(re.search(called, text) for text in elsewhere), script


@pytest.mark.parametrize("place", [*FOLDERS[:4], *NEEDS])
def test_import(place, monkeypatch):
    scripts = [place]
    if place in NEEDS:
        pytest.importorskip(NEEDS[place])
    else:
        scripts = [x for x in PYTHON if Path(x).parent == Path(place)]
    # evaluate.py takes it away from its process.
    monkeypatch.setitem(sys.modules, "keras_luong", sys.modules["keras_luong"])
    for script in {*scripts} - {*NEEDS} or scripts:
        monkeypatch.syspath_prepend(ROOT / Path(script).parent)
        spec = importlib.util.spec_from_file_location(f"a {script}", ROOT / script)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def taken(tree):
    """(module, name) of all that a script takes from this library, or from `kl`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and "keras_luong" in (node.module or ""):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute):
            package, *names = ast.unparse(node).split(".")
            if package == "kl" and all(map(str.isidentifier, names)):
                yield "keras_luong", ".".join(names)


def test_what_scripts_take_from_the_library_is_there():
    for script in PYTHON:
        for module, names in taken(ast.parse((ROOT / script).read_text())):
            found, name = importlib.import_module(module), names.split(".")[0]
            if not hasattr(found, name):  # a module that nothing has imported yet
                importlib.import_module(f"{module}.{name}")
            try:
                operator.attrgetter(names)(found)
            except AttributeError as error:
                pytest.fail(f"{script}: {error}")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, as if it had been trained, texts that it knows, and a shortlist."""
    path = tmp_path_factory.mktemp("trained")
    written_run(path / "run", word_translator(BeamSearch(2, max_length=6)))
    texts = ["the red dog", "the cat is red", "is", "dog is cat"]
    (path / "in.txt").write_text("\n".join(texts) + "\n")
    (path / "out.txt").write_text("der Hund\nist\nder\nHund ist\n")
    write_corpus(path, train=30, val=6, test=6)
    Shortlist([4, 5], [[6]] * 9, 7).save(path / "shortlist.npz")
    return path


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """What answers as the Python that has a peer."""
    path = tmp_path_factory.mktemp("peer") / "python"
    script = Path(__file__).with_name("stand_in_peer.py")
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    path.chmod(0o755)
    return path


OF_RUN = "--run_dir {run}/run --sources {run}/in.txt --rounds 1"
OF_RUN += " --batch_size 2 --max_length 6 --beam_width 2"
LENGTHS = "--lengths 30 60 --units 4 --batch 2 --queries 3 --rounds 1"
DATA = "--data {run} --source xx --target yy"
TINY = "--units 8 --num_layers 1 --tokenizer word --optimizer adam --batch_tokens 99"
TINY += " --epochs 1 --beam_width 2"
GPU = "--only '4 x 1000 mixed_bfloat16 TensorFlow, neither' '512 float32 JAX' train"
GPU += f" --train '{DATA.removeprefix('--data ')} {TINY}'"
STEP = "--shape 2,3,4,20,5,6,1 --steps 2"
SAME = "with the shortlist 100.0% of the translations are the same"

#: Scripts with arguments, and what they print.
SAID = [
    ("benchmarks/attention_length.py", LENGTHS, "30 .* 60 .*local-p is faster than g"),
    ("benchmarks/one_layer.py", "--shapes 2,3,4,8 --rounds 1", "dot .*concat .*multi-"),
    ("benchmarks/train_step.py", STEP, r'"median_s": \d.*"peak_mb": [1-9]'),
    ("benchmarks/constraints.py", "{run}/run --test {run}/in.txt {run}/out.txt "
     "--beam_widths 3", r"\| ([1-9]) of \1 \|"),
    ("benchmarks/compare_train.py", f"--peer {{tfa}} {STEP}", "times Addons' speed"),
    ("benchmarks/compare_search.py", OF_RUN,
     "(sentences/s.*){2}batches of 1:.*sentences/s"),
    ("benchmarks/compare_search.py", f"{OF_RUN} --shortlist {{run}}/shortlist.npz "
     "--peer {tfa}", rf"best hypotheses: \d of 4 the same.*{SAME}"),
    ("benchmarks/compare_search.py", "--shape 2,3,4,20,6,6,1,2 --rounds 1 --peer {tfa}",
     "ours is"),
    ("benchmarks/input_speed.py", "phrases --limit_examples 300 --vocab_size 200 "
     "--batch_tokens 200 --rounds 1", r'\n.*"shapes": ([1-9]|1[0-5]),'),
    ("benchmarks/gpu_step.py", f"--rehearse --jax false {GPU}",
     r"JAX \| ended with 1: nothing.* TensorFlow, neither \| [1-9].* train \|.*[1-9]"),
    ("benchmarks/compare_attention.py", f"{DATA} {TINY} --out {{tmp}} --variants "
     "'global (dot)'",
     r"\n\| global \(dot\) \|[^\n]*\n?$"),
    ("examples/demo.py", "--epochs 1 --limit_examples 200",
     "BLEU.*from the SavedModel alone.*Attention picture  runs/demo/attention.png"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("script, words, wanted", SAID)
def test_it_says(script, words, wanted, trained, stand_in, tmp_path):
    if script in ("benchmarks/compare_attention.py", "examples/demo.py"):
        pytest.importorskip("matplotlib") and pytest.importorskip("babel")
    tfa = os.environ.get("TFA_PYTHON") or stand_in
    words = words.format(run=trained, tfa=tfa, tmp=tmp_path)
    said = run(script, *shlex.split(words), cwd=tmp_path)
    assert re.search(wanted, said, re.S), said


@pytest.mark.slow
def test_decode(trained, stand_in):
    pytest.importorskip("ai_edge_litert.interpreter")
    given = [trained / "run", trained / "in.txt", "--rounds", 1, "--beams", 2]
    given += ["--ctranslate2", os.environ.get("CT2_PYTHON") or stand_in]
    given += ["--size", "1,16,32,2,50", "--references", trained / "in.txt"]
    said = run("benchmarks/decode.py", *given, "--batch_sizes", 1, 4)
    rows = [x for x in said.splitlines() if re.match(r"\| (batch|1|4|MB) ", x)]
    names, one, four, memory = ([x.strip() for x in y.split("|")[2:-1]] for y in rows)
    first = "Keras SavedModel LiteRT".split()
    assert names[:4] == [*first, "LiteRT int8"] and "CTranslate2 float32" in names
    assert ("SavedModel, 1 thread" in names) == (os.cpu_count() > 1)
    in_turn = [name.startswith("LiteRT") for name in names]
    assert all(one) and [not cell for cell in four] == in_turn
    megabytes = dict(zip(names, map(int, memory), strict=True))
    assert megabytes["Keras"] > megabytes["LiteRT"] > 0
    assert megabytes["Keras"] > megabytes["CTranslate2 int8"] > 0
    assert re.search(r"\| BLEU( \| [\d.]+){4,6} \|\n.*\|tok:13a\|", said)


def test_a_worker_has_the_environment_that_is_given(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    code = "import os; print(os.environ['TF_NUM_INTRAOP_THREADS'])"
    worker = importlib.import_module("workers").Worker
    one = worker(sys.executable, "-c", code, TF_NUM_INTRAOP_THREADS="1")
    assert one.ready == 1 and one.process.wait() == 0


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


#: What examples of layers return, and learn.
LEARN = {
    "captions": lambda x: x > 0.8,
    "dates": lambda x: x > 0.8,
    "pooling": lambda x: x > 0.8,
    "sorting": lambda x: x > 0.8,
    "custom_score": lambda x: x["distance_score"] > 0.95 > 0.8 > x["general"],
    "speech": lambda x: x["LocationAwareAttention"] > 0.95 > 0.7 > x["LuongAttention"],
}


def example(name):
    """An example's module; it is no package."""
    pytest.importorskip("matplotlib").use("agg")
    path = ROOT / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where Keras looks for its classes
    spec.loader.exec_module(module)
    return module


def drawn(name, folder):
    (picture,) = folder.iterdir()
    return picture.name == f"{name}.png" and picture.stat().st_size > 5000


def test_an_example_runs_and_draws(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example("custom_score").main(steps=2)
    assert drawn("custom_score", tmp_path)


def test_examples_are_short_and_none_is_forgotten():
    others = {"demo", "train_wmt"}  # with tests of their own
    texts = {x.stem: x.read_text("utf-8") for x in (ROOT / "examples").glob("*.py")}
    assert texts.keys() == {*LEARN, "forecast", *others}
    assert not [x for x in texts if x not in others and texts[x].count("\n") > 80]


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARN)
def test_an_example_learns(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert LEARN[name](example(name).main()) and drawn(name, tmp_path)


@pytest.mark.slow
def test_attention_forecasts_almost_as_well_as_can_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = (module := example("forecast")).main()
    for horizon in (1, 6, 12):
        assert error["attention"][horizon] < 0.5 * error["plain LSTM"][horizon]
    assert max(error["attention"].values()) < 2 * module.NOISE**2 * 4 / 3
    assert drawn("forecast", tmp_path)


NOTEBOOKS = [
    ROOT / "examples" / f"{name}.ipynb" for name in ("attention_tour", "forecasting")
]


def cells(path, kind):
    found = json.loads(path.read_text("utf-8"))["cells"]
    return [x for x in found if x["cell_type"] == kind]


def test_notebooks_are_small_and_readable_on_their_own():
    """Outputs are stored, without warnings and without names of folders."""
    assert NOTEBOOKS == sorted((ROOT / "examples").glob("*.ipynb"))
    for path in NOTEBOOKS:
        assert path.stat().st_size < 200_000
        outputs = [x for cell in cells(path, "code") for x in cell["outputs"]]
        assert any("image/png" in x.get("data", {}) for x in outputs)
        assert not [x for x in outputs if x.get("name") == "stderr"]
        assert not re.search(r"/(home|root|tmp|work|usr)/", json.dumps(outputs))
        for cell in cells(path, "code"):
            ast.parse("".join(cell["source"]))
        words = " ".join("".join(cell["source"]) for cell in cells(path, "markdown"))
        assert words.startswith("# ") and "Where to go on" in words
        links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", words)
        assert links and all((ROOT / "examples" / link).exists() for link in links)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    for name in ("nbmake", "ipykernel", "babel"):
        pytest.importorskip(name)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "pytest", "--nbmake", "--nbmake-timeout=1200"]
    done = subprocess.run(
        [*command, "-q", "-p", "no:cacheprovider", "-c", "/dev/null", path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
