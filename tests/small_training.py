"""A small model to train, and a small corpus in text files, for several tests."""

import random

import keras

from keras_luong.training.losses import SequenceCrossentropy


def small_model(optimizer, metrics=()):
    """Tells a word from the word before, with dropout."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(9, 4),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(9),
        ]
    )
    model.compile(optimizer, SequenceCrossentropy(), metrics=list(metrics))
    return model


def write_corpus(directory, **sizes):
    """Text files in which the translation is the source, upper-cased."""
    rng = random.Random(0)
    for split, size in sizes.items():
        lines = [
            " ".join(rng.choices("abcdefg", k=rng.randint(4, 7))) for _ in range(size)
        ]
        (directory / f"{split}.xx").write_text("\n".join(lines) + "\n")
        (directory / f"{split}.yy").write_text("\n".join(lines).upper() + "\n")
