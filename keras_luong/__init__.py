"""Luong attention for Keras 3: layers, translation models, beam search and export.

The names are in `__init__.pyi`. They are imported when they are used, so that
`import keras_luong` and `keras-luong --help` do not wait for TensorFlow.
"""

import importlib
import sys
from typing import Any

from keras_luong.lazy import lazy_names
from keras_luong.version import __version__ as __version__

_get, __dir__, __all__ = lazy_names(__name__)

#: Where the classes are that `keras.saving.load_model` looks up by their names.
_REGISTERED = (
    "layers",
    "models",
    "training.losses",
    "training.metrics",
    "training.optimizers",
    "training.schedules",
)


def __getattr__(name: str) -> Any:
    value = _get(name)
    _register()
    return value


def _register() -> None:
    """Has Keras know all of the library's classes, once it is imported."""
    if {"keras", "tensorflow"} & sys.modules.keys():
        for module in _REGISTERED:
            importlib.import_module(f"keras_luong.{module}")


_register()
