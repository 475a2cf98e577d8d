"""The examples in docstrings run, and every public name has one.

An example may use four names without importing them, `kl`, `keras`, `np` and `tf`, and
runs in a directory of its own, those of layers on any backend. Examples that are about
a run or an export find in their directory what `workplace.py` makes.
"""

import contextlib
import dataclasses
import doctest
import importlib
import inspect
import pkgutil
import shutil

import docstring_parser
import keras
import numpy as np
import pytest
import tensorflow as tf
from small_translator import untraced

import keras_luong as kl
import keras_luong_edge
from keras_luong import evaluation, training
from keras_luong.files import write_json
from keras_luong.runs.run import read_json

#: Examples that cannot run everywhere, and what they need.
NEEDS = {
    "keras_luong.training.strategies.Mirrored": "two GPUs",
    "keras_luong.training.strategies.MultiWorker": "several machines",
}
if shutil.which("npm") is None:
    NEEDS["keras_luong.export.web.export_web"] = "npm"

#: Examples that take more than a few seconds.
SLOW = {
    f"keras_luong.{name}"
    for name in (
        "export.saved_model.check_saved_model export.saved_model.export_saved_model "
        "export.warmup.warm_up export.web.export_web runs.synthetic.train_distilled "
        "runs.synthetic.write_backtranslated runs.synthetic.write_distilled "
        "runs.train.train runs.validation.TranslationEvaluation "
        "text.corpora.TfdsCorpus text.terminology.Terminology "
        "export.tflite.export_tflite translation.translator.Translator.translate "
        "translation.translator.Translator.stream text.batches.evaluation_batches "
        "decoding.lexical.Constraints decoding.generate.SequenceGenerator "
        "runs.load_save.load_ensemble"
    ).split()
}

LAYERS = "keras_luong.layers."
TRACED = "keras_luong.decoding.hoisting.hoisted"  # is about graphs
#: Packages and modules whose examples take longest: each is a case.
ALONE = {"decoding", "export", "runs", "translation", "batches", "survey"}
SEARCHES = {"keras_luong.layers.pointer_network.PointerNetwork"}  # on TensorFlow


def modules():
    """All modules of the library and of the edge runtime."""
    for package in (kl, keras_luong_edge):
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):  # which runs when imported
                yield importlib.import_module(found.name)


def examples():
    """(module, docstring) of all that have examples."""
    finder = doctest.DocTestFinder()
    for module in modules():
        for test in finder.find(module, globs={}):
            if test.examples:
                yield module.__name__, test


def cases():
    """The examples of each module that can run here; those that take long alone."""
    found = {}
    for module, test in examples():
        if test.name not in NEEDS:
            is_alone = test.name in SLOW | SEARCHES or ALONE & {*module.split(".")}
            found.setdefault(test.name if is_alone else module, []).append(test)
    for case, tests in found.items():
        marks = [pytest.mark.slow] * (case in SLOW)
        if not case.startswith(LAYERS) or case in SEARCHES:
            marks.append(pytest.mark.tensorflow)
        yield pytest.param(tests, id=case, marks=marks)


def without_downloads(name):
    """Lets tensorflow-datasets make a corpus up, as its own tests do."""
    if "tfds" not in name.lower():
        return contextlib.nullcontext()
    from tensorflow_datasets.testing import mock_data

    return mock_data(num_examples=2)


@pytest.fixture(scope="module")
def plain(workplace, tmp_path_factory):
    """The directory in which examples find a corpus, runs and an export."""
    path = tmp_path_factory.mktemp("plain")
    shutil.copytree(workplace, path, dirs_exist_ok=True)
    for file in path.glob("runs/*/run.json"):
        write_json(file, {**read_json(file), "settings": {"epochs": 3}})
    return path


@pytest.fixture
def files(request, tests):
    """The directory that examples need; those of layers need none."""
    if not tests[0].name.startswith(LAYERS):
        return request.getfixturevalue("plain")


@pytest.mark.parametrize("tests", list(cases()))
def test_examples(tests, files, tmp_path, monkeypatch, capsys):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed = []
    for test in tests:
        here = tmp_path / test.name
        here.mkdir()
        if files is not None:
            shutil.copytree(files, here, dirs_exist_ok=True)
        monkeypatch.chdir(here)
        np.random.seed(0)
        test.globs = {"kl": kl, "keras": keras, "np": np, "tf": tf}
        eager = untraced(test.name not in SLOW | {TRACED})
        with eager, without_downloads(test.name):
            if doctest.DocTestRunner(verbose=False, optionflags=flags).run(test).failed:
                failed.append(test.name)
    assert not failed, capsys.readouterr().out


def test_what_is_said_of_examples_is_of_some():
    assert {*NEEDS, *SLOW} <= {test.name for _, test in examples()}


ROOMS = ("decoding export layers migration models text translation").split()
UNLISTED = (evaluation, training)  # public is what a module of theirs defines


def public_names():
    """Classes and functions that a user meets, by their names."""
    found = {}
    for room in (kl, *(importlib.import_module(f"keras_luong.{x}") for x in ROOMS)):
        found |= {
            f"{room.__name__}.{name}": getattr(room, name) for name in room.__all__
        }
    for room in UNLISTED:
        for info in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            for name, x in vars(importlib.import_module(info.name)).items():
                if getattr(x, "__module__", "") == info.name and name[0] != "_":
                    found[f"{info.name}.{name}"] = x
    kinds = inspect.isroutine, inspect.isclass
    once = {x: n for n, x in reversed(found.items()) if any(is_a(x) for is_a in kinds)}
    return {name: x for x, name in once.items()}


PUBLIC = public_names()


def docstring(x):
    """Of the thing itself: `inspect.getdoc` would take a parent's."""
    own = vars(x).get("__doc__") if inspect.isclass(x) else x.__doc__
    return inspect.cleandoc(own or "")


def explained(x):
    """The names of the arguments and attributes that a docstring tells."""
    parsed = docstring_parser.parse(docstring(x), docstring_parser.Style.GOOGLE)
    kinds = ("param", "attribute")
    names = [part.args[1] for part in parsed.meta if part.args[0] in kinds]
    return {name.strip(" *`") for line in names for name in line.split(",")}


def arguments(x):
    """What a function or a class is called with; of Keras's constructors, nothing."""
    if inspect.isclass(x):
        if getattr(x, "_is_protocol", False):
            return set()
        if issubclass(x, tuple):
            return set(x._fields)
        module = getattr(x.__init__, "__module__", None)
        if not (dataclasses.is_dataclass(x) or str(module).startswith("keras_luong")):
            return set()
    return set(inspect.signature(x).parameters)


def lacking(x):
    """What a docstring has to say and does not."""
    text = docstring(x)
    if "\nExample:" not in text or "    >>> " not in text:
        yield "an example"
    yield from arguments(x) - explained(x)


def test_public_names_have_an_example_and_tell_their_arguments():
    found = {name: list(lacking(x)) for name, x in PUBLIC.items()}
    assert not {name: lacks for name, lacks in found.items() if lacks}
