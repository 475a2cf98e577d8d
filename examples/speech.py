"""Location-aware attention, as for speech: it moves on where all phones sound alike.

An utterance is a row of frames, some for each phone. What sounds alike scores alike,
so attention by content does not know which of them is next. Location-aware attention
sees where it was before (Chorowski et al. 2015). The picture shows both.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_luong as kl

PHONES, LENGTH, FRAMES, FEATURES = 4, 10, 64, 16
TOKENS = kl.SpecialTokens()
FIRST = TOKENS.eos_id + 1  # the ids before are special


def data(seed: int, size: int):
    """Frames [B, 64, 16], zeros at the end; phones [B, 12], none twice in a row."""
    rng = np.random.default_rng(seed)
    sounds = np.random.default_rng(0).normal(size=(PHONES + 1, FEATURES))
    phones = rng.integers(1, PHONES, size=(size, LENGTH)).cumsum(axis=1) % PHONES
    frames = np.zeros((size, FRAMES, FEATURES), "float32")
    for row, said in enumerate(phones):
        long = rng.integers(3, 7, size=LENGTH)
        heard = sounds[np.repeat([PHONES, *said], [2, *long])]  # after a silence
        frames[row, : len(heard)] = heard + 0.5 * rng.normal(size=heard.shape)
    ends = {"constant_values": (TOKENS.bos_id, TOKENS.eos_id)}
    return frames, np.pad(phones + FIRST, [(0, 0), (1, 1)], **ends)


class Recognizer(keras.Model):
    """Frames and phones to logits; and, phone by phone, what a search asks for."""

    def __init__(self, attention, units: int = 64) -> None:
        super().__init__()
        self.hear = keras.layers.Conv1D(units, 5, padding="same", activation="tanh")
        self.embed = keras.layers.Embedding(FIRST + PHONES, units)
        self.cell = kl.InputFeedingDecoderCell(units, attention)
        self.decoder = kl.InputFeedingDecoder(self.cell)
        self.score = keras.layers.Dense(FIRST + PHONES)

    def call(self, inputs, training=None):
        frames, phones = inputs
        memory, mask = self.hear(frames), keras.ops.any(frames != 0, axis=-1)
        return self.score(self.decoder(self.embed(phones), memory, memory_mask=mask))

    def encode(self, frames):
        return self.cell.start(self.hear(frames), keras.ops.any(frames != 0, axis=-1))

    def step(self, tokens, state, memory):
        h_tilde, state, weights = self.cell(self.embed(tokens), state, memory)
        return self.score(h_tilde), state, weights


def main(size: int = 3000, epochs: int = 5, picture: str = "speech.png"):
    """Trains both kinds, and returns the share of phones that each gets right."""
    right, (frames, ids), (new, wanted) = {}, data(1, size), data(2, 300)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    figure, plots = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    kinds = kl.LuongAttention("concat"), kl.LocationAwareAttention("concat")
    for plot, attention in zip(plots, kinds, strict=True):
        keras.utils.set_random_seed(1)
        model, name = Recognizer(attention), type(attention).__name__
        model.compile(keras.optimizers.Adam(0.003), loss)
        model.fit((frames, ids[:, :-1]), ids[:, 1:], epochs=epochs, verbose=0)
        found = kl.generate(model, new, beam_width=1, min_length=11, max_length=11)
        right[name] = float(np.mean(found.ids[:, 0] == wanted[:, 1:]))
        print(f"{name:22} {right[name]:.1%} of the phones are right")
        plot.imshow(found.weights[0, 0], cmap="Blues", vmin=0, aspect="auto")
        plot.set(xlabel="frame", ylabel="phone", title=name)
    figure.savefig(picture)
    return right


if __name__ == "__main__":
    main()
