"""A command that says READY at a moment, and then does not go on."""

import functools
import importlib
import os
import signal
import sys
import time

told = os.fdopen(os.dup(2), "w")  # also while TensorFlow is imported


def ready():
    print("READY", file=told, flush=True)


def hold(*_, **__):
    """In Python."""
    ready()
    time.sleep(600)


def hold_lock(*_, **__):
    """In C: all threads wait."""
    ready()
    sum(range(10**11))


def hold_operation(*_, **__):
    """In an operation of TensorFlow's, within a graph."""
    import tensorflow as tf

    tf.function(lambda: tf.py_function(hold, [], tf.float32))()


def hold_input(lines):
    """As it waits for lines that nobody types."""
    from keras_luong.files import read_raw_lines

    ready()
    return read_raw_lines(lines)


class Importing:
    """Finds no module, and holds where TensorFlow is looked for."""

    def find_spec(self, name, *_):
        if name == "tensorflow":
            hold()


OURS = "keras_luong."
PLACES = {
    "vocabulary": ("sentencepiece", "SentencePieceTrainer.train", hold_lock),
    "step": (OURS + "runs.epochs", "FollowEpoch.on_train_batch_end", hold_operation),
    "checkpoint": (OURS + "runs.checkpoints", "Checkpoints._save", hold_operation),
    "ray works": (OURS + "runs.ray_engine", "_mapped", hold),
    "stdin": (OURS + "cli.translate", "read_raw_lines", hold_input),
    "saving": ("tensorflow", "saved_model.save", hold_operation),
}

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal
    moment = sys.argv.pop(1)
    if moment == "importing":
        sys.meta_path.insert(0, Importing())
    elif moment in PLACES:
        module, path, function = PLACES[moment]
        *names, last = path.split(".")
        owner = functools.reduce(getattr, names, importlib.import_module(module))
        setattr(owner, last, function)

    from keras_luong.cli.main import main

    main()
