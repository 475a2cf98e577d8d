"""A small model to train, and a small corpus in text files, for several tests."""

import contextlib
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong.runs import train
from keras_luong.training.losses import SequenceCrossentropy


def small_model(optimizer, metrics=()):
    """Tells a word from the word before, with dropout."""
    keras.utils.set_random_seed(3)
    inputs, layers = keras.Input((None,), dtype="int32"), keras.layers
    parts = [inputs, layers.Embedding(9, 4), layers.Dropout(0.3), layers.Dense(9)]
    model = keras.Sequential(parts)
    model.compile(optimizer, SequenceCrossentropy(), metrics=list(metrics))
    return model


def small_data(batches=3, rows=2, width=4):
    """Batches of sentences in which a word tells the next."""
    labels = np.random.default_rng(0).integers(1, 9, (batches * rows, width))
    weights = np.full(labels.shape, 1 / (rows * width), "float32")
    data = tf.data.Dataset.from_tensor_slices((np.roll(labels, 1, 1), labels, weights))
    return data.batch(rows)


def write_corpus(directory, **sizes):
    """Text files in which the translation is the source, upper-cased."""
    rng = random.Random(0)
    for split, size in sizes.items():
        lines = [
            " ".join(rng.choices("abcdefg", k=rng.randint(4, 7))) for _ in range(size)
        ]
        (directory / f"{split}.xx").write_text("\n".join(lines) + "\n")
        (directory / f"{split}.yy").write_text("\n".join(lines).upper() + "\n")


def train_words(data, run_dir, **changes):
    """What to say to `keras-luong train`, to train a tiny model on `write_corpus`."""
    values = {
        **{"run_dir": run_dir, "data": data, "source": "xx", "target": "yy"},
        **{"preset": "small", "units": 8, "tokenizer": "word", "optimizer": "adam"},
        **{"learning_rate": 0.01, "batch_tokens": 60, "epochs": 2, "beam_width": 2},
        "dropout": 0.3,  # its random numbers too must go on where they were
        **changes,
    }
    words = []
    for name, value in values.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", str(value)]
    return words


@contextlib.contextmanager
def not_training():
    """Lets a training end where it begins, with the weights that it begins with."""

    def fit(model, batches, epochs, checkpoints, **more):
        model.save_weights(checkpoints.run.best_weights)

    with pytest.MonkeyPatch.context() as patch:
        nothing = tf.data.Dataset.range(0)
        patch.setattr(train, "evaluation_batches", lambda *_, **__: nothing)
        patch.setattr(train, "fit", fit)
        patch.setattr(train, "evaluate", lambda run: {})
        yield
