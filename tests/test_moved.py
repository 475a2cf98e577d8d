"""Old names of modules, and of what is in them."""

from __future__ import annotations

import importlib
import sys
import warnings

import pytest

from keras_luong import moved
from keras_luong.moved import MOVED, moved_names

#: Something of each old module, by the name that it had there.
CONTENTS = {
    "keras_luong.api": "Translator",
    "keras_luong.edge": "EdgeTranslator",
    "keras_luong.layers.attentional_vector": "AttentionalVector",
    "keras_luong.layers.cell_input": "CellInput",
    "keras_luong.layers.input_feeding_cell": "InputFeedingDecoderCell",
    "keras_luong.layers.layer_norm_lstm": "LayerNormLSTM",
    "keras_luong.layers.memory": "Memory",
    "keras_luong.layers.readout": "MaxoutCell",
    "keras_luong.models.config": "Seq2SeqConfig",
    "keras_luong.models.presets": "PRESETS",
    "keras_luong.serving": "export_saved_model",
    "keras_luong.serving.edge": "EdgeTranslator",
    "keras_luong.serving.graph": "answers",
    "keras_luong.serving.saved_model": "export_saved_model",
    "keras_luong.serving.signatures": "signatures",
    "keras_luong.serving.tflite": "export_tflite",
    "keras_luong.serving.translation": "Translation",
    "keras_luong.serving.translator": "Translator",
    "keras_luong.serving.warmup": "write_warmup",
    "keras_luong.text.corpora": "load_corpus",
    "keras_luong.text.tokenizers": "TokenizerPair",
    "keras_luong.training.averaging": "average_weights",
    "keras_luong.training.callbacks": "training_callbacks",
    "keras_luong.training.checkpoints": "Checkpoints",
    "keras_luong.training.distillation": "write_distilled",
    "keras_luong.training.run_directory": "RunDirectory",
    "keras_luong.training.run_ensemble": "load_ensemble",
    "keras_luong.training.run_lock": "owned",
    "keras_luong.training.translation_evaluation": "TranslationEvaluation",
}


@pytest.fixture(autouse=True)
def not_yet_imported(monkeypatch):
    """Only the first import of a process warns."""
    for name in MOVED:
        monkeypatch.delitem(sys.modules, name, raising=False)
        parent, _, child = name.rpartition(".")
        if parent in sys.modules:
            monkeypatch.delattr(sys.modules[parent], child, raising=False)


def test_every_old_module_is_tested():
    assert CONTENTS.keys() == MOVED.keys()


@pytest.mark.parametrize("name", MOVED)
def test_an_old_module_warns_and_has_what_the_new_one_has(name):
    pytest.importorskip(MOVED[name])
    with pytest.warns(DeprecationWarning, match=f"^{name} is {MOVED[name]} now$"):
        old = importlib.import_module(name)
    new, content = importlib.import_module(MOVED[name]), CONTENTS[name]
    assert getattr(old, content) is getattr(new, content)
    assert old.__name__ == name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.import_module(name)  # again


def test_from_old_import_new():
    with pytest.warns(DeprecationWarning):
        from keras_luong.serving.translator import Translator
    import keras_luong

    assert Translator is keras_luong.Translator


def test_what_there_never_was_is_still_an_error():
    for name in ("keras_luong.servant", "keras_luong.serving.servant"):
        with pytest.raises(ModuleNotFoundError, match=name):
            importlib.import_module(name)
    with pytest.warns(DeprecationWarning):
        old = importlib.import_module("keras_luong.serving.graph")
    with pytest.raises(AttributeError, match="nothing"):
        _ = old.nothing


def test_names_that_have_gone_to_other_modules():
    find = moved_names("here", {"load": "keras_luong.runs.loading"})
    with pytest.warns(DeprecationWarning, match="here.load is keras_luong.runs.loadi"):
        found = find("load")
    assert found is importlib.import_module("keras_luong.runs.loading").load
    with pytest.raises(AttributeError, match="module 'here' has no attribute 'save'"):
        find("save")


@pytest.mark.parametrize(
    "name", ["read_record", "load", "write_record", "check_settings", "FORMAT"]
)
def test_the_old_run_directory_has_all_that_it_had(name):
    """Its parts are in several modules now."""
    with pytest.warns(DeprecationWarning):
        old = importlib.import_module("keras_luong.training.run_directory")
    with pytest.warns(DeprecationWarning, match=name):
        assert getattr(old, name)


def test_is_installed_once():
    before = list(sys.meta_path)
    moved.install()
    assert sys.meta_path == before
