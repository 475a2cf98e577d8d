"""`keras-luong` in this process: its errors are raised as they are."""

import importlib

from keras_luong.cli.main import parse


def options(*words):
    """What a command line says."""
    return parse([str(word) for word in words])[1]


def run(name, *words):
    """Runs a command."""
    module = importlib.import_module(f"keras_luong.cli.{name}")
    return module.run(options(name, *words))
