"""Old names of modules, and of what is in them: they still import, and warn.

Remove a row once nobody can be expected to import it any more.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import pkgutil
import runpy
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any

MOVED = {
    "keras_luong.api": "keras_luong",
    "keras_luong.edge": "keras_luong_edge",  # a distribution of its own
    "keras_luong.layers.attentional_vector": "keras_luong.layers.attentional_output",
    "keras_luong.layers.cell_input": "keras_luong.layers.cells",
    "keras_luong.layers.layer_norm_lstm": "keras_luong.layers.cells",
    "keras_luong.layers.readout": "keras_luong.layers.maxout_cell",
    "keras_luong.models.config": "keras_luong.config.seq2seq",
    "keras_luong.models.presets": "keras_luong.models",
    "keras_luong.serving": "keras_luong",
    "keras_luong.serving.edge": "keras_luong_edge",
    "keras_luong.serving.graph": "keras_luong.translation.graph",
    "keras_luong.serving.saved_model": "keras_luong.export.saved_model",
    "keras_luong.serving.signatures": "keras_luong.export.signatures",
    "keras_luong.serving.tflite": "keras_luong.export.tflite",
    "keras_luong.serving.translation": "keras_luong.translation.translation",
    "keras_luong.serving.translator": "keras_luong.translation.translator",
    "keras_luong.serving.warmup": "keras_luong.export.warmup",
    "keras_luong.text.corpora": "keras_luong.text.find_corpus",
    "keras_luong.text.tokenizers": "keras_luong.text.tokenizer_pair",
    "keras_luong.training.averaging": "keras_luong.runs.averaging",
    "keras_luong.training.callbacks": "keras_luong.runs.callbacks",
    "keras_luong.training.checkpoints": "keras_luong.runs.checkpoints",
    "keras_luong.training.distillation": "keras_luong.runs.distillation",
    "keras_luong.training.run_directory": "keras_luong.runs.directory",
    "keras_luong.training.run_ensemble": "keras_luong.runs.ensemble",
    "keras_luong.training.run_lock": "keras_luong.runs.lock",
    "keras_luong.training.translation_evaluation": "keras_luong.runs.validation",
}

#: Methods that subclasses may have overridden by other names: a base -> old -> new.
RENAMED = {
    "keras_luong.layers.attention:LuongAttention": {
        "dropout_noise": "draw_noise",
        "recurrent": "has_state",
    },
    "keras_luong.layers.local_attention:LocalAttention": {"centres": "_centres"},
    "keras_luong.layers.decoder_cell:DecoderCell": {
        "advance": "step",
        "dropout_noise": "sequence_mode",
        "look": "attend",
        "run_above": "step_layers_above",
        "run_layer": "step_layer",
        "run_layers": "scan_layers",
    },
    "keras_luong.models.translation_model:TranslationModel": {
        "advance": "step_features"
    },
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what has moved, and answers for nothing else."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec that loads the module by its new name."""
        if name not in MOVED:
            return None
        is_package = any(other.startswith(f"{name}.") for other in MOVED)
        return importlib.machinery.ModuleSpec(name, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        """Gives the old module all that the new one has."""
        name = module.__name__
        warnings.warn(f"{name} is {MOVED[name]} now", DeprecationWarning, stacklevel=2)
        new = importlib.import_module(MOVED[name])
        public = {k: v for k, v in vars(new).items() if not k.startswith("__")}
        vars(module).update(public, __getattr__=lambda name: getattr(new, name))

    def get_code(self, name: str) -> CodeType:
        """What `python -m` runs."""
        source = f"from keras_luong import moved; moved.run({name!r})"
        return compile(source, f"<{name}>", "exec")


def run(name: str) -> None:
    """Runs a module by its old name, as `python -m` does."""
    new = MOVED[name]
    if importlib.util.find_spec(new) is None:
        package = new.replace("_", "-")
        sys.exit(f"{name} is {new} now, which is not installed: pip install {package}")
    warnings.warn(f"{name} is {new} now", DeprecationWarning, stacklevel=2)
    runpy.run_module(new, run_name="__main__", alter_sys=True)


def moved_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes a module's `__getattr__` for names that have gone to other modules.

    Args:
        module: The module's `__name__`.
        names: Name → the module that has it now.

    Example:
        >>> from keras_luong.moved import moved_names
        >>> __getattr__ = moved_names("mine", {"load": "keras_luong.runs.loading"})
        >>> __getattr__("load") is kl.load
        True
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        message = f"{module}.{name} is {names[name]}.{name} now"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(names[name]), name)

    return find


def gone_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes a module's `__getattr__` for names that nothing has any more.

    Args:
        module: The module's `__name__`.
        names: Name → what to use in its place.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        # No AttributeError, of which `from ... import` would hide the message.
        raise ImportError(f"{module}.{name} is gone; use {names[name]}", name=name)

    return find


def refuse_old_names(base: Any, renamed: Mapping[str, str]) -> None:
    """Lets nobody subclass a class with methods that are never called any more.

    Args:
        base: The class; to define such a method in a subclass is a TypeError then.
        renamed: The new name of each method by its old one.
    """

    def check(cls: Any, **kwargs: Any) -> None:
        super(base, cls).__init_subclass__(**kwargs)
        for old in renamed.keys() & vars(cls).keys():
            raise TypeError(
                f"{cls.__name__}.{old} would never be called: its name is "
                f"{renamed[old]} now, and its arguments may be others"
            )

    setattr(base, "__init_subclass__", classmethod(check))  # noqa: B010


def install() -> None:
    """Lets the old names be imported, and refuses them in subclasses."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        # First: where a directory has gone, `git pull` may leave its `__pycache__`, and
        # Python would take that for an empty package.
        sys.meta_path.insert(0, _Finder())
        for base, renamed in RENAMED.items():
            refuse_old_names(pkgutil.resolve_name(base), renamed)
