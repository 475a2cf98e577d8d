"""Dates as people write them to ISO 8601: the classic of attention, letter by letter.

"Thursday, 5 March 1987" becomes "1987-03-05". Ids of letters go into `kl.Seq2Seq`,
which is trained by `fit` and asked by `kl.generate`. The picture shows where it looks
when it writes the year, the month and the day.
"""

import datetime
import random
from pathlib import Path

import keras
import numpy as np

import keras_luong as kl
from keras_luong.evaluation.plots import save_attention

FORMATS = "%d %B %Y|%A, %d %B %Y|%B %d, %Y|%a %b %d %Y|%d.%m.%Y|%d %b %y|%A %d %B %Y"
LETTERS = sorted(set("abcdefghijklmnopqrstuvwxyz0123456789 ,.-"))
TOKENS = kl.SpecialTokens()
FIRST = TOKENS.eos_id + 1  # the ids before are padding, unknown, begin and end
ID = {letter: FIRST + i for i, letter in enumerate(LETTERS)}
VOCABULARY = FIRST + len(LETTERS)
PICTURE = Path("dates.png")


def pair(rng: random.Random) -> tuple[str, str]:
    """A date as somebody writes it, and in ISO 8601."""
    # In these hundred years two digits of a year are enough.
    day = datetime.date(1970, 1, 1) + datetime.timedelta(rng.randrange(100 * 365))
    written = day.strftime(rng.choice(FORMATS.split("|"))).lower()
    return written.replace(" 0", " "), day.isoformat()


def ids(texts: list[str], length: int) -> np.ndarray:
    """Rows of ids, with the end id, padded with 0."""
    rows = [[*map(ID.__getitem__, text), TOKENS.eos_id] for text in texts]
    return np.array([row + [TOKENS.pad_id] * (length - len(row)) for row in rows])


def main(examples: int = 8000, epochs: int = 3) -> float:
    """Trains, and returns the share of dates that are read without any error."""
    rng = random.Random(0)
    written, iso = zip(*{pair(rng) for _ in range(examples + 500)}, strict=True)
    source, label = ids(written, 30), ids(iso, 11)
    before = np.full((len(label), 1), TOKENS.bos_id)
    target = np.concatenate([before, label[:, :-1]], axis=1)  # what was written so far

    keras.utils.set_random_seed(1)
    config = kl.Seq2SeqConfig(VOCABULARY, VOCABULARY, units=64, score_mode="concat")
    model = kl.Seq2Seq(config)
    loss = kl.SequenceCrossentropy(reduction="sum_over_batch_size")
    model.compile(keras.optimizers.Adam(0.003), loss)
    inputs = {"source": source[500:], "target": target[500:]}
    model.fit(inputs, label[500:], batch_size=64, epochs=epochs, verbose=2)

    found = kl.generate(model, source[:500], max_length=11)
    right = np.all(np.array(found.ids[:, 0]) == label[:500, : found.ids.shape[2]], 1)
    print(f"{right.mean():.1%} of 500 new dates are right")
    length = len(written[0]) + 1
    weights = np.array(found.weights[0, 0, :, :length])
    letters = [letter(token) for token in found.ids[0, 0]]
    save_attention(PICTURE, weights, [*written[0], "</s>"], letters, written[0])
    print(f"Where it looked: {PICTURE}")
    return float(right.mean())


def letter(token) -> str:
    """The letter of an id."""
    return LETTERS[int(token) - FIRST] if token >= FIRST else "</s>"


if __name__ == "__main__":
    main()
