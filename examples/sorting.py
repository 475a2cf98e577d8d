"""A pointer network sorts numbers: what it writes are places of its source.

The answer is where the smallest number stands, then the next, and so on: the
"vocabulary" is the source itself, of any length (Vinyals et al. 2015). What is drawn is
a row of numbers as it was read and as it was pointed at.
"""

import math

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_luong as kl

SEARCH = kl.BeamSearch(4, no_repeat_ngram=1, bos_id=0, eos_id=0, pad_id=0)


def data(seed: int, size: int, length: int = 8):
    """Numbers [B, S, 1], and their places in order as ids [B, S + 1], 0 at the end."""
    numbers = np.random.default_rng(seed).random((size, length, 1), "float32")
    order = np.argsort(numbers[..., 0], axis=1) + 1
    return numbers, np.pad(order, [(0, 0), (0, 1)])


class Sorter(keras.Model):
    """Numbers and the ids before to logits; and, place by place, for a search."""

    def __init__(self, units: int = 64) -> None:
        super().__init__()
        self.encoder = kl.RecurrentEncoder(units)
        glimpse = kl.LuongAttention("concat")
        self.pointer = kl.PointerNetwork(kl.InputFeedingDecoderCell(units, glimpse))

    def call(self, inputs, training=None):
        numbers, before = inputs
        memory, *state = self.encoder(numbers)
        return self.pointer(before, memory, initial_state=state)

    def encode(self, numbers):
        memory, *state = self.encoder(numbers)
        return self.pointer.encode(memory, initial_state=state)

    def step(self, tokens, state, memory):
        return self.pointer.step(tokens, state, memory)


def main(size: int = 20000, epochs: int = 9, picture: str = "sorting.png") -> float:
    """Trains, and returns the share of new rows that are sorted without a mistake."""
    keras.utils.set_random_seed(1)
    model, (numbers, order), (new, wanted) = Sorter(), data(0, size), data(1, 500)
    before = np.pad(order[:, :-1], [(0, 0), (1, 0)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # Ever smaller steps: near the end, large ones undo what was learned.
    rate = keras.optimizers.schedules.CosineDecay(0.003, epochs * math.ceil(size / 64))
    model.compile(keras.optimizers.Adam(rate, clipnorm=1.0), loss)
    model.fit((numbers, before), order, batch_size=64, epochs=epochs, verbose=2)
    found = kl.generate(model, new, SEARCH)
    right = float(np.mean(np.all(found.ids[:, 0] == wanted, axis=1)))
    print(f"{right:.1%} of 500 rows of 8 numbers are sorted")
    draw(new[0, :, 0], found.ids[0, 0].numpy(), picture)
    return right


def draw(numbers, ids, picture):
    """The numbers as they were and as they were pointed at."""
    places = ids[ids > 0] - 1
    figure, plots = plt.subplots(1, 2, figsize=(8, 2.5), layout="constrained")
    for plot, order in zip(plots, (np.arange(8), places), strict=True):
        row = numbers[order]
        plot.bar(range(len(row)), row, color=plt.cm.Blues(0.3 + 0.7 * row))
        plot.set_xticks(range(len(row)), order + 1)
        plot.set(xlabel="place", yticks=[])
    figure.savefig(picture)


if __name__ == "__main__":
    main()
