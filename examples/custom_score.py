"""A score of your own: attention by distance, which a dot product cannot see.

Points of the plane have colours; asked for is the colour of the nearest point.
`-‖h - h̄‖² = 2 h·h̄ - ‖h̄‖² - ‖h‖²`: the first is a dot product, the second is the
source's, and a softmax ignores the third. So it is one product, `[h; 1] · [2h̄; -‖h̄‖²]`.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

import keras_luong as kl
from keras_luong.layers import dot, matmul

COLOURS = np.array([[0.9, 0.3, 0.2], [0.2, 0.6, 0.3], [0.2, 0.4, 0.8]])


@keras.saving.register_keras_serializable("examples")
class DistanceScore(kl.Score):
    """`-p ‖h_t - h̄_s‖²`. Weight: `log_precision` [], the logarithm of p."""

    def build(self, query_shape, key_shape):
        self.log_precision = self.add_weight((), "zeros", name="log_precision")

    def prepare(self, key):  # once for each source: [B, S, H] -> [B, S, H + 1]
        square = ops.sum(ops.square(key), axis=-1, keepdims=True)
        longer = ops.concatenate([2 * key, -square], axis=-1)
        return longer * ops.exp(self.log_precision)

    def call(self, query, key, project=matmul):
        longer = ops.concatenate([query, ops.ones_like(query[..., :1])], axis=-1)
        return dot(longer, key, project)


def batch(seed: int, size: int):
    """Places [B, Q, 2], points [B, S, 2] and colours [B, S, 3]; the colours wanted."""
    rng = np.random.default_rng(seed)
    there, places = (rng.uniform(-1, 1, (size, n, 2)) for n in (8, 16))
    colours = np.eye(3)[rng.integers(3, size=(size, 8))]
    distances = np.sum((places[:, :, None] - there[:, None]) ** 2, axis=-1)
    nearest = np.take_along_axis(colours, distances.argmin(-1)[..., None], axis=1)
    return [x.astype("float32") for x in (places, there, colours)], nearest


def make(score) -> keras.Model:
    """Attention and nothing else: the colours are mixed by its weights."""
    places, points, colours = (keras.Input((None, n)) for n in (2, 2, 3))
    mixed = kl.LuongAttention(score)(places, colours, key=points)
    model = keras.Model([places, points, colours], mixed)
    optimizer, metrics = keras.optimizers.Adam(0.05), ["categorical_accuracy"]
    model.compile(optimizer, "categorical_crossentropy", metrics=metrics)
    return model


def main(steps: int = 300, picture: str = "custom_score.png") -> dict[str, float]:
    """Trains both kinds, and returns how often each finds the colour."""
    right, axis = {}, np.linspace(-1, 1, 120, dtype="float32")
    everywhere = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(1, -1, 2)
    (_, points, colours), _ = batch(seed=2, size=1)
    figure, plots = plt.subplots(1, 2, figsize=(7, 3.6), layout="constrained")
    for plot, score in zip(plots, (DistanceScore(), "general"), strict=True):
        model, name = make(score), getattr(score, "name", score)
        model.fit(*batch(0, 64 * steps), batch_size=64, verbose=0)
        right[name] = model.evaluate(*batch(1, 500), verbose=0)[1]
        print(f"{name:15} {right[name]:.1%} of the colours are right")
        mixed = model.predict([everywhere, points, colours], verbose=0) @ COLOURS
        plot.imshow(mixed.reshape(120, 120, 3), extent=(-1, 1, 1, -1))
        plot.scatter(*points[0].T, c=colours[0] @ COLOURS, edgecolors="white")
        plot.set(title=name, xticks=[], yticks=[])
    figure.savefig(picture)
    return right


if __name__ == "__main__":
    main()
