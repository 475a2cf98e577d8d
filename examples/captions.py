"""Captions of pictures: attention over two dimensions, and a search for any model.

Two shapes are "red disc above blue square". The memory has 6 x 6 places; `encode` and
`step` are all that `kl.generate` asks of a model. It draws where each word was seen.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_luong as kl

COLOURS = {"red": (1, 0.2, 0.2), "green": (0.2, 0.8, 0.3), "blue": (0.3, 0.4, 1)}
WORDS = ["", "?", "<s>", "</s>", "disc", "square", "above", "beside", *COLOURS]
Y, X = np.mgrid[:24, :24]


def data(seed: int, size: int):
    """Pictures [B, 24, 24, 5], whose last two channels say where; captions [B, 7]."""
    rng, captions = np.random.default_rng(seed), []
    empty = np.dstack([np.ones((24, 24, 3)), Y / 24, X / 24])
    for picture in (pictures := np.stack([empty] * size)):
        places, words = sorted(rng.permutation(4)[:2]), []  # quarters of the picture
        for place in places:
            colour, shape = rng.choice([*COLOURS]), rng.choice(["disc", "square"])
            y, x = 6 + 12 * np.array(divmod(place, 2)) + rng.integers(-1, 2, 2)
            distance = np.hypot if shape == "disc" else np.maximum
            picture[distance(abs(Y - y), abs(X - x)) < 4.2, :3] = COLOURS[colour]
            words += [colour, shape]
        words.insert(2, "beside" if places[0] // 2 == places[1] // 2 else "above")
        captions.append(["<s>", *words, "</s>"])
    return pictures.astype("float32"), np.vectorize(WORDS.index)(captions)


class Captioner(keras.Model):
    """Pictures and words to logits; and, word by word, what a search asks for."""

    def __init__(self, units: int = 64) -> None:
        super().__init__()
        options = {"padding": "same", "activation": "relu"}
        see = [keras.layers.Conv2D(n, 3, 2, **options) for n in (32, units)]
        self.see = keras.Sequential([*see, keras.layers.Reshape((-1, units))])
        self.embed = keras.layers.Embedding(len(WORDS), units)
        self.cell = kl.InputFeedingDecoderCell(units, kl.LuongAttention("concat"))
        self.decoder = kl.InputFeedingDecoder(self.cell)
        self.score = keras.layers.Dense(len(WORDS))

    def call(self, inputs, training=None):
        return self.score(self.decoder(self.embed(inputs[1]), self.see(inputs[0])))

    def encode(self, pictures):
        return self.cell.start(self.see(pictures))

    def step(self, tokens, state, memory):
        h_tilde, state, weights = self.cell(self.embed(tokens), state, memory)
        return self.score(h_tilde), state, weights


def main(size: int = 4000, epochs: int = 8, picture: str = "captions.png") -> float:
    """Trains, and returns the share of new pictures whose whole caption is right."""
    keras.utils.set_random_seed(1)
    model, (pictures, words), (new, wanted) = Captioner(), data(0, size), data(1, 300)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit((pictures, words[:, :-1]), words[:, 1:], epochs=epochs, verbose=2)
    found = kl.generate(model, new, min_length=6, max_length=6)
    right = np.mean(np.all(found.ids[:, 0] == wanted[:, 1:], axis=1))
    print(f"{right:.1%} of 300 captions are right")
    figure, plots = plt.subplots(3, 5, figsize=(9, 6), layout="constrained")
    for (row, word), plot in np.ndenumerate(plots):
        seen = np.kron(np.reshape(found.weights[row, 0, word], (6, 6)), np.ones((4, 4)))
        plot.imshow(new[row, ..., :3] * (0.25 + 0.75 * seen / seen.max())[..., None])
        plot.set(title=WORDS[found.ids[row, 0, word]], xticks=[], yticks=[])
    figure.savefig(picture)
    return float(right)


if __name__ == "__main__":
    main()
