"""The peer of benchmarks/compare_train.py: a training step by TensorFlow Addons.

Runs in an environment of its own (tensorflow 2.15, tensorflow-addons 0.23). The same
work as benchmarks/train_step.py: stacked LSTMs, the general score, input feeding, all
logits, clipping at norm 5, SGD. The output layer is outside of the decoder's loop,
which is the fastest that Addons has. A worker: says in a line of JSON that it is
ready, and answers each line of standard input by the seconds of a step.
"""

import json
import sys
import time

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa


class Model(tf.keras.Model):
    """Encoder, attention wrapper, basic decoder, output layer."""

    def __init__(self, V, E, H, L):
        super().__init__()
        layers, addons = tf.keras.layers, tfa.seq2seq
        self.source_embedding = layers.Embedding(V, E)
        self.target_embedding = layers.Embedding(V, E)
        self.encoder = [
            layers.LSTM(H, return_sequences=True, return_state=True) for _ in range(L)
        ]
        self.attention = addons.LuongAttention(H)
        self.cell = addons.AttentionWrapper(
            layers.StackedRNNCells([layers.LSTMCell(H) for _ in range(L)]),
            self.attention,
            attention_layer=layers.Dense(H, activation="tanh", use_bias=False),
        )
        self.decoder = addons.BasicDecoder(self.cell, addons.TrainingSampler())
        self.output_layer = layers.Dense(V, use_bias=False)

    def call(self, source, target):
        """Logits [B, T, V] of ids [B, S] and [B, T]."""
        batch, source_length = source.shape
        x, states = self.source_embedding(source), []
        for layer in self.encoder:
            x, h, c = layer(x)
            states.append([h, c])
        lengths = tf.fill([batch], source_length)
        self.attention.setup_memory(x, memory_sequence_length=lengths)
        start = self.cell.get_initial_state(batch_size=batch, dtype=tf.float32)
        outputs, _, _ = self.decoder(
            self.target_embedding(target),
            initial_state=start.clone(cell_state=tuple(states)),
            sequence_length=tf.fill([batch], target.shape[1]),
        )
        return self.output_layer(outputs.rnn_output)


def main():
    """Measures and prints."""
    B, S, T, V, E, H, L = map(int, sys.argv[1].split(","))
    rng = np.random.default_rng(0)
    source, target, label = (
        tf.constant(rng.integers(4, V, size), tf.int32)
        for size in ((B, S), (B, T), (B, T))
    )
    model, optimizer = Model(V, E, H, L), tf.keras.optimizers.SGD(0.1)

    @tf.function
    def train():
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                label, model(source, target)
            )
            loss = tf.reduce_mean(losses)
        weights = model.trainable_variables
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, weights), 5.0)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return loss

    for _ in range(2):
        train()
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        float(train())
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
