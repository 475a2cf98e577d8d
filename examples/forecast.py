"""Forecasting a day by hours: attention reads the hour where it was before.

Each series repeats a pattern of its own every 24 hours, with noise; three days are
known. A plain LSTM keeps 24 values in its state; attention goes and looks. The picture
shows where: at the same hour of the days before.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_luong as kl

DAY, KNOWN, NOISE, UNITS = 24, 72, 0.2, 64
HORIZONS = (1, 6, 12, 24)


def data(seed: int, size: int):
    """Past [B, 72, 1 + 24] with its clock, the future's [B, 24, 24]; y [B, 24]."""
    rng = np.random.default_rng(seed)
    pattern = rng.normal(size=(size, DAY))
    series = np.tile(pattern, (1, 4)) + NOISE * rng.normal(size=(size, KNOWN + DAY))
    start = rng.integers(DAY, size=(size, 1))  # it is not always midnight
    clock = np.eye(DAY)[(start + np.arange(KNOWN + DAY)) % DAY]
    past = np.concatenate([series[:, :KNOWN, None], clock[:, :KNOWN]], axis=-1)
    return [past.astype("float32"), clock[:, KNOWN:].astype("float32")], series[
        :, KNOWN:
    ]


def plain(past, clock):
    """The last state of an LSTM says all hours at once."""
    return keras.layers.Dense(DAY)(keras.layers.LSTM(2 * UNITS)(past))


def attentive(past, clock):
    """A decoder with attention says them one after the other: y [B, 24], weights."""
    memory, *states = kl.RecurrentEncoder(UNITS)(past)
    cell = kl.InputFeedingDecoderCell(UNITS, kl.LuongAttention("general"))
    h_tilde, weights = kl.InputFeedingDecoder(cell)(
        clock, memory, initial_state=states, return_attention_scores=True
    )
    return keras.layers.Dense(1)(h_tilde)[..., 0], weights


def main(series: int = 4000, epochs: int = 8, picture: str = "forecast.png"):
    """Trains both, and returns each one's mean squared error at some horizons."""
    keras.utils.set_random_seed(7)
    past, clock = keras.Input((KNOWN, 1 + DAY)), keras.Input((DAY, DAY))
    y, weights = attentive(past, clock)
    outputs, errors = {"plain LSTM": plain(past, clock), "attention": y}, {}
    (x, wanted), (new, future) = data(0, series), data(1, 500)
    print("mean squared error of hour   " + "".join(f"{h:8}" for h in HORIZONS))
    for name, output in outputs.items():
        model = keras.Model([past, clock], output)
        model.compile(keras.optimizers.Adam(0.003), "mse")
        model.fit(x, wanted, batch_size=64, epochs=epochs, verbose=0)
        square = np.mean((model.predict(new, verbose=0) - future) ** 2, axis=0)
        errors[name] = {h: float(square[h - 1]) for h in HORIZONS}
        print(f"{name:29}" + "".join(f"{e:8.3f}" for e in errors[name].values()))
    # Nobody knows the noise of the hour itself, nor that of the three that were seen.
    print(f"{'the best that is possible':29}{NOISE**2 * (1 + 1 / 3):8.3f}")
    looked = keras.Model([past, clock], weights).predict(
        [x[:1] for x in new], verbose=0
    )
    draw(looked[0], picture)
    return errors


def draw(weights, picture):
    """A row for each hour to come, a column for each that was."""
    figure, plot = plt.subplots(figsize=(8, 3.2), layout="constrained")
    plot.imshow(weights, cmap="Blues", vmin=0, aspect="auto")
    plot.set(xlabel="hour of the past", ylabel="hour to come", title="attention")
    figure.savefig(picture)


if __name__ == "__main__":
    main()
