"""Location-aware attention, as for speech: it moves on where all phones sound alike.

An utterance is a row of frames, some for each phone, of unknown number. With few phones
the same ones come again and again, and frames that sound alike score alike: attention by
content does not know which of them is next. Location-aware attention sees where it was
(Chorowski et al. 2015). The picture shows both.

    python examples/speech.py
"""

from __future__ import annotations

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

import keras_luong as kl
from keras_luong.special_ids import BOS_ID, EOS_ID

PHONES, FIRST, LENGTH, FRAMES, FEATURES = 4, 4, 10, 60, 16  # ids before are special


def data(seed: int, size: int):
    """Frames [B, 60, 16], how many there are [B]; phones [B, 12] from begin to end."""
    rng = np.random.default_rng(seed)
    sounds = np.random.default_rng(0).normal(size=(PHONES, FEATURES))
    phones = rng.integers(PHONES, size=(size, LENGTH))
    frames = 0.5 * rng.normal(size=(size, FRAMES, FEATURES))
    durations = rng.integers(3, 7, size=(size, LENGTH))
    for row, (said, long) in enumerate(zip(phones, durations, strict=True)):
        heard = sounds[np.repeat(said, long)]
        frames[row, : len(heard)] += heard
    begin, end = np.full((size, 1), BOS_ID), np.full((size, 1), EOS_ID)
    ids = np.concatenate([begin, phones + FIRST, end], axis=1)
    return frames.astype("float32"), durations.sum(1).astype("int32"), ids


class Recognizer(keras.Model):
    """Frames and phones to logits; and, phone by phone, what a search asks for."""

    def __init__(self, attention, units: int = 64) -> None:
        super().__init__()
        self.hear = keras.layers.Dense(units, activation="tanh")
        self.embed = keras.layers.Embedding(FIRST + PHONES, units)
        self.decoder = kl.InputFeedingDecoder(kl.InputFeedingDecoderCell(units, attention))
        self.score = keras.layers.Dense(FIRST + PHONES)

    def call(self, inputs):
        (frames, lengths), phones = inputs
        mask = ops.arange(FRAMES) < lengths[:, None]
        h_tilde = self.decoder(self.embed(phones), self.hear(frames), memory_mask=mask)
        return self.score(h_tilde)

    def encode(self, source):
        frames, lengths = source
        cell, mask = self.decoder.cell, ops.arange(FRAMES) < lengths[:, None]
        memory = cell.prepare(self.hear(frames), mask)
        return memory, cell.initial_states((ops.shape(frames)[0], 1), None, memory)

    def step(self, tokens, state, memory):
        h_tilde, state, weights = self.decoder.cell(self.embed(tokens), state, memory)
        return self.score(h_tilde), state, weights


def train(attention, size: int, epochs: int):
    """A recognizer, the share of utterances that it gets right, and some attention."""
    keras.utils.set_random_seed(1)
    model, (frames, lengths, ids), new = Recognizer(attention), data(1, size), data(2, 300)
    model.compile(
        keras.optimizers.Adam(0.003),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(((frames, lengths), ids[:, :-1]), ids[:, 1:], epochs=epochs, verbose=0)
    found = kl.generate(model, new[:2], max_length=LENGTH + 4)
    said = found.ids[:, 0, : LENGTH + 1].numpy()
    right = np.mean([np.array_equal(a, b) for a, b in zip(said, new[2][:, 1:])])
    return float(right), found.weights[0, 0].numpy()


def main(size: int = 3000, epochs: int = 12, picture: str = "speech.png"):
    """Trains both, and returns how many utterances each gets right."""
    kinds = {"content": kl.LuongAttention, "location": kl.LocationAwareAttention}
    figure, plots = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    rights = {}
    for plot, (name, kind) in zip(plots, kinds.items(), strict=True):
        rights[name], weights = train(kind("concat"), size, epochs)
        print(f"{name:9} {rights[name]:.1%} of 300 new utterances are right")
        plot.imshow(weights, cmap="Blues", vmin=0, aspect="auto")
        plot.set(xlabel="frame", ylabel="phone", title=name)
    figure.savefig(picture)
    return rights


if __name__ == "__main__":
    main()
