"""`keras-luong` in this process: its errors are raised as they are."""

import importlib

from keras_luong.cli.command_line import parse


def options(*words):
    """What a command line says."""
    return parse([str(word) for word in words])[1]


def run(name, *words):
    """Runs a command, without the checks before TensorFlow is imported."""
    module = importlib.import_module(f"keras_luong.cli.{name}")
    return module.run(options(name, *words))


def run_checked(name, *words):
    """Runs a command, with them."""
    options(name, *words).check_places()
    return run(name, *words)
