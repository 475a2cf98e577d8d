"""Models as a user writes them: an `encode` and a `step`, and ids of their own."""

import keras
import numpy as np
import tensorflow as tf

import keras_luong as kl

BEGIN, END, PAD = 1, 2, 0  # as in tfa's examples
IDS = {"bos_id": BEGIN, "eos_id": END, "pad_id": PAD}
VOCABULARY = 6


def dense(units, seed):
    """Opinionated enough for different answers to different sources."""
    normal = keras.initializers.RandomNormal(stddev=1.5, seed=seed)
    return keras.layers.Dense(units, kernel_initializer=normal)


class Captioner(keras.Model):
    """Reads images [B, 7, 7, 1]; a functional model is one of its pieces."""

    def __init__(self, units=6, attend=True, seed=0):
        super().__init__()
        image = keras.Input((7, 7, 1))
        see = keras.layers.Conv2D(units, 3, activation="tanh")(image)
        self.see = keras.Model(image, keras.layers.Reshape((-1, units))(see))
        self.embed = keras.layers.Embedding(VOCABULARY, units)
        self.cell = keras.layers.GRUCell(units)
        self.attention = kl.LuongAttention()
        self.score = dense(VOCABULARY, seed)
        self.attend = attend

    def encode(self, images):
        memory = self.see(images)
        return memory, keras.ops.mean(memory, axis=1, keepdims=True)

    def step(self, tokens, state, memory):
        shape = keras.ops.shape(state)
        both = self.embed(tokens), state
        rows = [keras.ops.reshape(x, (-1, shape[-1])) for x in both]
        h, _ = self.cell(*rows)
        h = keras.ops.reshape(h, shape)
        context, weights = self.attention(h, memory, return_attention_scores=True)
        return self.score(context + h), h, weights if self.attend else None


class Transcriber(keras.Model):
    """Reads features [B, S, 3], with a state of two tensors."""

    def __init__(self, units=5, seed=1):
        super().__init__()
        self.read = keras.layers.GRU(units, return_sequences=True, return_state=True)
        self.embed = keras.layers.Embedding(VOCABULARY, units)
        self.cell = keras.layers.LSTMCell(units)
        self.attention = kl.LuongAttention()
        self.score = dense(VOCABULARY, seed)

    def encode(self, features):
        memory, last = self.read(features)
        return memory, {"h": last[:, None], "c": last[:, None]}

    def step(self, tokens, state, memory):
        shape = keras.ops.shape(state["h"])
        both = self.embed(tokens), state["h"], state["c"]
        x, h, c = (keras.ops.reshape(x, (-1, shape[-1])) for x in both)
        _, (h, c) = self.cell(x, [h, c])
        h, c = keras.ops.reshape(h, shape), keras.ops.reshape(c, shape)
        context, weights = self.attention(h, memory, return_attention_scores=True)
        return self.score(context + h), {"h": h, "c": c}, weights


class Both:
    """No Keras model; reads a nest of features [B, S, 3] and styles [B, n]."""

    def __init__(self):
        self.model = Transcriber()
        self.style = keras.layers.Embedding(4, 3)

    def encode(self, source):
        style = tf.reduce_sum(self.style(source["style"]), axis=1, keepdims=True)
        return self.model.encode(source["features"] + style)

    def step(self, tokens, state, memory):
        return self.model.step(tokens, state, memory)


def images(count=3):
    return np.random.default_rng(2).normal(size=(count, 7, 7, 1)).astype("float32")


def features(count=3, length=4):
    return np.random.default_rng(3).normal(size=(count, length, 3)).astype("float32")


def exhaustive(model, source, limit, *, bos_id, eos_id, pad_id, words=VOCABULARY):
    """All sequences of one source with their log-probabilities, the best first.

    Every finished one, then every one that the limit cuts.
    """
    never = {bos_id, pad_id} - {eos_id}
    words = [x for x in range(words) if x not in never]
    memory, state = model.encode(source)
    found = []

    def extend(tokens, total, before, state):
        logits, state, _ = model.step(tf.constant([[before]]), state, memory)
        log_probs = tf.nn.log_softmax(logits)[0, 0].numpy()
        for word in words:
            longer, log_prob = [*tokens, word], total + float(log_probs[word])
            if word == eos_id or len(longer) == limit:
                found.append((word != eos_id, -log_prob, longer))
            else:
                extend(longer, log_prob, word, state)

    extend([], 0.0, bos_id, state)
    return [(tokens, -total) for _, total, tokens in sorted(found)]
