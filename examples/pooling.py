"""Attention pooling: what a sentence is about, and which words say so.

One learned query attends to the words, however many there are, and what it brings back
is classified. The data are the embedded phrases: is a sentence about money, the time of
day, a date, or something else? The picture shows the words that decide it.
"""

import re

import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_luong as kl
from keras_luong.text import load_corpus, sentences

# Found in the German translation, which the model does not see.
MONEY, TIME, DATE = "€|Euro|Dollar|Cent", "Uhr|halb|um .* (nach|vor)", r"\. \w+ \d{4}"
TOPICS = ["money", "time", "date", "something else"]


def data(part: str):
    """English sentences, and their topics as classes."""
    english, german = sentences(load_corpus("phrases", "en", "de"), part)
    found = [[re.search(x, text) for x in (MONEY, TIME, DATE)] for text in german]
    return english, np.array([[*map(bool, x), True].index(True) for x in found])


def make(vocabulary: int) -> keras.Model:
    """Ids [B, S] to the topics' probabilities [B, C], and the attention [B, S]."""
    ids = keras.Input((None,), dtype="int32")
    words = keras.layers.Embedding(vocabulary, 32)(ids)
    words = keras.layers.Conv1D(32, 3, padding="same", activation="relu")(words)
    query = keras.layers.Embedding(1, 32)(keras.ops.zeros_like(ids[:, :1]))  # learned
    attention, mask = kl.LuongAttention("concat"), keras.ops.not_equal(ids, 0)
    options = {"value_mask": mask, "return_attention_scores": True}
    context, weights = attention(query, words, **options)
    topics = keras.layers.Dense(len(TOPICS), activation="softmax")(context[:, 0])
    return keras.Model(ids, {"topics": topics, "attention": weights[:, 0]})


def main(examples: int = 5000, epochs: int = 4, picture: str = "pooling.png") -> float:
    """Trains, and returns the share of new sentences whose topic is found."""
    keras.utils.set_random_seed(1)
    (texts, labels), (new, wanted) = data("train"), data("test")
    read = keras.layers.TextVectorization(standardize="lower")
    read.adapt(texts)
    model = make(read.vocabulary_size())
    model.compile("adam", {"topics": "sparse_categorical_crossentropy"})
    ids, labels = np.array(read(texts[:examples])), {"topics": labels[:examples]}
    model.fit(ids, labels, epochs=epochs, verbose=2)
    found = model.predict(np.array(read(new)), verbose=0)
    right = float(np.mean(found["topics"].argmax(-1) == wanted))
    print(f"The topic of {right:.1%} of {len(new)} new sentences is found")
    draw(new[:12], found, picture)
    return right


def draw(texts, found, picture):
    """Writes sentences: the darker a word, the more it was attended to."""
    figure, plot = plt.subplots(figsize=(9, 4.5), layout="constrained")
    plot.set(xlim=(0, 100), ylim=(len(texts), -1))
    plot.axis("off")
    for row, text in enumerate(texts):
        plot.text(0, row, TOPICS[found["topics"][row].argmax()], weight="bold")
        x = 17.0
        for word, weight in zip(text.split(), found["attention"][row], strict=False):
            box = {"color": plt.cm.Blues(0.6 * weight), "pad": 2}
            plot.text(x, row, word, family="monospace", size=9, bbox=box)
            x += 0.87 * len(word) + 1.5
    figure.savefig(picture)


if __name__ == "__main__":
    main()
