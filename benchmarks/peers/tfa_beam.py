"""The peer of compare_search.py: beam search by TensorFlow Addons, same weights.

Runs in an environment of its own (tensorflow 2.15, tensorflow-addons 0.23), as a
worker: reads its task from a directory, says in a line of JSON that it is ready, and
answers each line of standard input, a name of batches in JSON, by another.
"""

import json
import sys
import time

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa

PAD, BOS, EOS = 0, 2, 3


def lstm(units, weights, name):
    """A Keras LSTM cell with given weights."""
    cell = tf.keras.layers.LSTMCell(units)
    kernel = weights[f"{name}_kernel"]
    cell.build((None, kernel.shape[0]))
    cell.set_weights([kernel, weights[f"{name}_recurrent"], weights[f"{name}_bias"]])
    return cell


def layer(cell, backwards=False):
    """A cell run over time."""
    return tf.keras.layers.RNN(
        cell, return_sequences=True, return_state=True, go_backwards=backwards
    )


class Encoder:
    """Stacked LSTMs, in one direction or both."""

    def __init__(self, task, weights):
        units, depth = task["encoder_units"], task["num_layers"]
        self.levels = []
        for i in range(depth):
            level = [layer(lstm(units, weights, f"forward_{i}"))]
            if task["bidirectional"]:
                level.append(layer(lstm(units, weights, f"backward_{i}"), True))
            self.levels.append(level)

    def __call__(self, x, mask):
        """Memory, and the states of each level."""
        states = []
        for level in self.levels:
            outputs, finals = [], []
            for i, run in enumerate(level):
                y, h, c = run(x, mask=mask)
                outputs.append(tf.reverse(y, [1]) if i else y)
                finals.append((h, c))
            x = tf.concat(outputs, -1)
            states.append([tf.concat(pair, -1) for pair in zip(*finals, strict=True)])
        return x, states


def build(task, weights):
    """A function from padded ids to hypotheses."""
    K, units = task["beam_width"], task["units"]
    encoder = Encoder(task, weights)
    cells = [lstm(units, weights, f"decoder_{i}") for i in range(task["num_layers"])]
    memory_units = weights["attention_kernel"].shape[1]
    mechanism = tfa.seq2seq.LuongAttention(units)
    mechanism.memory_layer.build((None, None, memory_units))
    mechanism.memory_layer.set_weights([weights["attention_kernel"].T])
    vector = tf.keras.layers.Dense(units, activation="tanh", use_bias=False)
    vector.build((None, memory_units + units))
    # Addons puts the query's rows first, the paper the context's.
    kernel = weights["vector_kernel"]
    vector.set_weights([np.concatenate([kernel[memory_units:], kernel[:memory_units]])])
    wrapper = tfa.seq2seq.AttentionWrapper(
        tf.keras.layers.StackedRNNCells(cells), mechanism, attention_layer=vector
    )
    output = tf.keras.layers.Dense(weights["output"].shape[1], use_bias=False)
    output.build((None, units))
    output.set_weights([weights["output"]])
    decoder = tfa.seq2seq.BeamSearchDecoder(
        wrapper,
        beam_width=K,
        output_layer=output,
        maximum_iterations=task["max_length"],
        length_penalty_weight=task["length_penalty"],
    )
    source = tf.constant(weights["source_embedding"])
    target = tf.constant(weights["target_embedding"])
    end = EOS if task["ends"] else weights["output"].shape[1] + 1

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def translate(ids):
        mask = ids != PAD
        memory, states = encoder(tf.gather(source, ids), mask)
        # The backward direction of a padded sentence begins with its padding, which
        # the mask skips; its outputs come out in the sentence's order.
        memory = tf.where(mask[..., None], memory, 0.0)
        lengths = tf.math.count_nonzero(mask, axis=1, dtype=tf.int32)

        def tile(x):
            return tfa.seq2seq.tile_batch(x, K)

        mechanism.setup_memory(tile(memory), memory_sequence_length=tile(lengths))
        batch = tf.shape(ids)[0]
        initial = wrapper.get_initial_state(batch_size=batch * K, dtype=tf.float32)
        initial = initial.clone(cell_state=tuple(tile(s) for s in states))
        out, _, _ = decoder(
            target,
            start_tokens=tf.fill([batch], BOS),
            end_token=end,
            initial_state=initial,
        )
        return out.predicted_ids[..., 0]

    return translate


def load(path):
    """Batches in order."""
    return [x for _, x in sorted(np.load(path).items())]


def main(directory):
    """Answers until standard input ends."""
    with open(f"{directory}/task.json") as file:
        task = json.load(file)
    weights = dict(np.load(f"{directory}/weights.npz"))
    translate = build(task, weights)
    translate(tf.constant([[EOS]]))
    print(json.dumps({"ready": True}), flush=True)
    for name in map(json.loads, sys.stdin):
        batches = [tf.constant(x) for x in load(f"{directory}/{name}.npz")]
        start = time.perf_counter()
        found = [translate(x).numpy() for x in batches]
        answer = {"seconds": time.perf_counter() - start}
        answer["ids"] = [row.tolist() for ids in found for row in ids]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
