"""The examples in docstrings run, and every public name has one.

An example may use four names without importing them, `kl`, `keras`, `np` and `tf`, and
runs in a directory of its own. Those that are about a run or an export find there what
`workplace` makes:

```
my/corpus/    train, validation and test, in `.en` and `.de`
runs/mine     a run that has kept the weights of two epochs
runs/yours    a run of the same corpus
mine.tflite   the export of `runs/mine`
```
"""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import shutil
from pathlib import Path

import keras
import keras_luong_edge
import numpy as np
import pytest
import tensorflow as tf
from small_translator import word_translator, written_run

import keras_luong as kl

#: Examples that cannot run everywhere, and what they need.
NEEDS = {
    "keras_luong.training.strategies.Mirrored": "two GPUs",
    "keras_luong.training.strategies.MultiWorker": "several machines",
    "keras_luong.text.tfds_corpus.TfdsCorpus": "a download",
}

#: Examples that take more than a few seconds.
SLOW = {
    "keras_luong.export.saved_model.export_saved_model",
    "keras_luong.runs.train.train",
}

LINES = {
    "train": (["the dog", "the cat", "the red dog"], ["der Hund", "der", "der Hund"]),
    "validation": (["the dog is red", "the cat"], ["der Hund ist rot", "der"]),
    "test": (["the cat is the dog"], ["der ist der Hund"]),
}


def modules():
    """All modules of the library and of the edge runtime."""
    for package in (kl, keras_luong_edge):
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):  # which runs when imported
                yield importlib.import_module(found.name)


def examples():
    """Each docstring that has examples."""
    finder = doctest.DocTestFinder()
    for module in modules():
        for test in finder.find(module, globs={}):
            if test.examples:
                marks = [pytest.mark.slow] if test.name in SLOW else []
                if test.name in NEEDS:
                    marks.append(pytest.mark.skip(f"needs {NEEDS[test.name]}"))
                yield pytest.param(test, id=test.name, marks=marks)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """The directory in which examples find a corpus, runs and an export."""
    place = tmp_path_factory.mktemp("workplace")
    corpus = place / "my" / "corpus"
    corpus.mkdir(parents=True)
    for split, sides in LINES.items():
        for language, lines in zip(("en", "de"), sides, strict=True):
            (corpus / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    translator = word_translator(kl.BeamSearch(2, max_length=6))
    runs = [written_run(place / "runs" / name, translator) for name in ("mine", "yours")]
    for epoch in (1, 2):
        path = runs[0].epochs / f"epoch-{epoch:04d}.weights.h5"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(runs[0].best_weights, path)
    shutil.copy(runs[0].best_weights, runs[0].last_weights)
    history = [{"epoch": epoch, "val_perplexity": 9.0 - epoch} for epoch in (1, 2)]
    runs[0].history.write_text("".join(json.dumps(line) + "\n" for line in history))
    kl.export_tflite(translator, place / "mine.tflite")
    return place


@pytest.mark.tensorflow
@pytest.mark.parametrize("test", examples())
def test_an_example(test, workplace, tmp_path, monkeypatch, capsys):
    here = tmp_path / "here"
    shutil.copytree(workplace, here)
    monkeypatch.chdir(here)
    test.globs = {"kl": kl, "keras": keras, "np": np, "tf": tf}
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    failed = runner.run(test, clear_globs=True).failed
    assert not failed, capsys.readouterr().out
