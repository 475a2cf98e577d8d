"""Old names of modules, and of what is in them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings

import pytest

from keras_luong import moved
from keras_luong.moved import MOVED, moved_names, refuse_old_names

#: Something of each old module, by the name that it had there.
CONTENTS = {
    "keras_luong.api": "Translator",
    "keras_luong.edge": "EdgeTranslator",
    "keras_luong.layers.attentional_vector": "AttentionalVector",
    "keras_luong.layers.cell_input": "CellInput",
    "keras_luong.layers.layer_norm_lstm": "LayerNormLSTM",
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
    "keras_luong.training.averaging": "load_average",
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


def test_what_is_left_of_an_old_directory_is_not_found(tmp_path, monkeypatch):
    import keras_luong

    (tmp_path / "serving" / "__pycache__").mkdir(parents=True)
    monkeypatch.setattr(keras_luong, "__path__", [*keras_luong.__path__, str(tmp_path)])
    with pytest.warns(DeprecationWarning):
        from keras_luong.serving import export_saved_model
    assert export_saved_model is keras_luong.export_saved_model


@pytest.mark.slow
def test_the_old_command_runs():
    pytest.importorskip("keras_luong_edge")
    command = [sys.executable, "-m", "keras_luong.edge", "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "usage: " in done.stdout, done.stderr


def test_the_old_command_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code = moved._Finder().get_code("keras_luong.edge")
    with pytest.raises(SystemExit, match="pip install keras-luong-edge"):
        exec(code, {})


@pytest.mark.parametrize("name", ["average_weights", "weight_names"])
def test_what_is_gone_says_what_to_use(name):
    with pytest.warns(DeprecationWarning):
        importlib.import_module("keras_luong.training.averaging")
    message = f"{name} is gone; use (load_average|h5py)"
    with pytest.raises(ImportError, match=message):
        exec(f"from keras_luong.training.averaging import {name}")


def test_old_names_of_methods_are_refused():
    class Base:
        pass

    refuse_old_names(Base, {"old": "new"})

    class Good(Base):
        def new(self):
            pass

    with pytest.raises(TypeError, match="Bad.old would .* its name is new now"):

        class Bad(Good):
            def old(self):
                pass


@pytest.mark.parametrize(
    "base, old",
    [
        ("LuongAttention", "dropout_noise"),
        ("LocalAttention", "recurrent"),
        ("LocalAttention", "centres"),
        ("InputFeedingDecoderCell", "advance"),
        ("InputFeedingDecoderCell", "run_layer"),
        ("Seq2Seq", "advance"),
    ],
)
def test_a_subclass_of_an_older_version_is_refused(base, old):
    import keras_luong

    with pytest.raises(TypeError, match=f"Mine.{old} would never be called"):
        type("Mine", (getattr(keras_luong, base),), {old: lambda self: None})
