"""Every script, example, benchmark and notebook runs, small and end to end.

Each runs in a process of its own, with real input. What compares with TensorFlow Addons
asks a stand-in (`stand_in_peer.py`), and Addons itself where `TFA_PYTHON` names the
Python that has it. So with CTranslate2, by `CT2_PYTHON`:

    python -m venv CT2 && CT2/bin/pip install ctranslate2 numpy
    CT2_PYTHON=CT2/bin/python pytest -m slow tests/test_scripts.py -k decode
"""

import ast
import importlib
import importlib.util
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from processes import ROOT, python
from small_training import write_corpus
from small_translator import word_translator, written_run

import keras_luong as kl

EXPORT = ROOT / "export"
FOLDERS = ("examples", "export", "export/serving", "benchmarks")
#: What a script needs besides, to be imported or run.
NEEDS = {
    "benchmarks/compare_attention.py": ("matplotlib", "babel"),
    "benchmarks/decode.py": ("ai_edge_litert.interpreter",),
    "examples/demo.py": ("matplotlib", "babel"),
    "export/serving/grpc_client.py": ("tensorflow_serving",),
    "export/serving/connections.py": ("uvicorn",),
    "export/serving/predict_requests.py": ("starlette",),
    "export/serving/server.py": ("ray.serve",),
}


def run(*words, cwd=None):
    """What a script prints, with this checkout's code, whatever is installed."""
    return python(*words, cwd=cwd).stdout


@pytest.mark.parametrize("folder", FOLDERS)
def test_scripts_find_what_they_import(folder, monkeypatch):
    """Within their functions too, and what they take from `kl`."""
    monkeypatch.syspath_prepend(ROOT / folder)
    for path in sorted((ROOT / folder).glob("*.py")):
        # evaluate.py takes it away from its process.
        monkeypatch.setitem(sys.modules, "keras_luong", kl)
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and "keras_luong" in str(node.module):
                exec(ast.unparse(node), {})
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "kl":
                is_module = is_there(f"keras_luong.{node.attr}")
                assert is_module or hasattr(kl, node.attr), f"{path.name}: {node.attr}"
        if all(map(is_there, NEEDS.get(f"{folder}/{path.name}", ()))):
            spec = importlib.util.spec_from_file_location(f"a {path.stem}", path)
            spec.loader.exec_module(importlib.util.module_from_spec(spec))


def is_there(module):
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, as if it had been trained, texts that it knows, and a shortlist."""
    path = tmp_path_factory.mktemp("trained")
    written_run(path / "run", word_translator(kl.BeamSearch(2, max_length=6)))
    texts = ["the red dog", "the cat is red", "is", "dog is cat"]
    (path / "in.txt").write_text("\n".join(texts) + "\n")
    (path / "out.txt").write_text("der Hund\nist\nder\nHund ist\n")
    write_corpus(path, train=30, val=6, test=6)
    kl.Shortlist([4, 5], [[6]] * 9, 7).save(path / "shortlist.npz")
    return path


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """The Pythons that have Addons and CTranslate2, or what answers as they do."""
    path = tmp_path_factory.mktemp("peer") / "python"
    script = Path(__file__).with_name("stand_in_peer.py")
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    path.chmod(0o755)
    names = {"tfa": "TFA_PYTHON", "ct2": "CT2_PYTHON"}
    return {name: os.environ.get(x) or path for name, x in names.items()}


OF_RUN = "--run_dir {run}/run --sources {run}/in.txt --rounds 1"
OF_RUN += " --batch_size 2 --max_length 6 --beam_width 2"
LENGTHS = "--lengths 30 60 --units 4 --batch 2 --queries 3 --rounds 1"
DATA = "--data {run} --source xx --target yy"
TINY = "--units 8 --num_layers 1 --tokenizer word --optimizer adam --batch_tokens 99"
TINY += " --epochs 1 --beam_width 2"
GPU = "--only '4 x 1000 mixed_bfloat16 TensorFlow, neither' '512 float32 JAX' train"
GPU += f" --train '{DATA.removeprefix('--data ')} {TINY}'"
STEP = "--shape 2,3,4,20,5,6,1 --steps 2"
DECODE = "{run}/run {run}/in.txt --references {run}/in.txt --ctranslate2 {ct2}"
DECODE += " --size 1,16,32,2,50 --rounds 1 --beams 2 --batch_sizes 1 4"
DECODED = r"\| Keras \| SavedModel \| LiteRT \| LiteRT int8 .*\| CTranslate2 float32 "
DECODED += r".*\| MB \| [1-9].*\| BLEU( \| [\d.]+){4,6} \|\n.*\|tok:13a\|"
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
    ("benchmarks/decode.py", DECODE, DECODED),
    ("benchmarks/gpu_step.py", f"--rehearse --jax false {GPU}",
     r" train \|.*[1-9].*JAX \| ended with 1: nothing.* TensorFlow, neither \| [1-9]"),
    ("benchmarks/compare_attention.py", f"{DATA} {TINY} --out {{tmp}} --variants none "
     "'local-p (general)'", r"\n\| none \|[^\n]*\n\| local-p \(general\) \|[^\n]*\n?$"),
    ("examples/demo.py", "--epochs 1 --limit_examples 200",
     "BLEU.*from the SavedModel alone.*Attention picture  runs/demo/attention.png"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("script, words, wanted", SAID)
def test_it_says(script, words, wanted, trained, peers, tmp_path):
    for module in NEEDS.get(script, ()):
        pytest.importorskip(module)
    words = words.format(run=trained, tmp=tmp_path, **peers)
    said = run(ROOT / script, *shlex.split(words), cwd=tmp_path)
    assert re.search(wanted, said, re.S), said


@pytest.mark.slow
def test_exports_agree(trained, tmp_path):
    """What is exported by one script is what the others read."""
    pytest.importorskip("ai_edge_litert.interpreter")
    path, texts = trained / "run", (trained / "in.txt", trained / "out.txt")
    model, tflite = tmp_path / "model", tmp_path / "x.tflite"
    run(EXPORT / "to_saved_model.py", path, model, "--check", "the red dog")
    run(EXPORT / "to_tflite.py", path, tflite, "--check", "the red dog")
    exports = ["--saved_model", model / "1", "--tflite", tflite]
    assert "All agree." in run(EXPORT / "verify.py", path, texts[0], *exports)
    words = [model / "1", *texts, "--tokenize", "none"]
    assert "BLEU" in run(EXPORT / "evaluate.py", *words)


def forecasts_well(error):
    """Almost as well as can be."""
    of_attention, noise = error["attention"], sys.modules["forecast"].NOISE
    assert max(of_attention.values()) < 2 * noise**2 * 4 / 3
    return all(of_attention[x] < 0.5 * error["plain LSTM"][x] for x in (1, 6, 12))


#: What examples of layers return, and learn.
LEARN = {
    **dict.fromkeys(("captions", "dates", "pooling", "sorting"), lambda x: x > 0.8),
    "custom_score": lambda x: x["distance_score"] > 0.95 > 0.8 > x["general"],
    "forecast": forecasts_well,
    "speech": lambda x: x["LocationAwareAttention"] > 0.95 > 0.7 > x["LuongAttention"],
}


def run_example(name, folder, monkeypatch, **options):
    """What its `main` returns, which draws a picture."""
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(folder)
    path = ROOT / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # where Keras looks for its classes
    spec.loader.exec_module(module)
    returned = module.main(**options)
    (picture,) = folder.iterdir()
    assert picture.name == f"{name}.png" and picture.stat().st_size > 5000
    return returned


@pytest.mark.usefixtures("eagerly")
def test_an_example_runs_and_draws(tmp_path, monkeypatch):
    run_example("custom_score", tmp_path, monkeypatch, steps=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARN)
def test_an_example_learns(name, tmp_path, monkeypatch):
    assert LEARN[name](run_example(name, tmp_path, monkeypatch))


NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def test_none_is_forgotten():
    assert {path.stem for path in NOTEBOOKS} == {"attention_tour", "forecasting"}
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert examples == {*LEARN, "demo", "train_wmt"}  # which has tests of its own


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    for name in ("nbmake", "ipykernel", "babel"):
        pytest.importorskip(name)
    options = "--nbmake --nbmake-timeout=1200 -q -p no:cacheprovider -c /dev/null"
    run("-m", "pytest", *options.split(), path, cwd=tmp_path)
