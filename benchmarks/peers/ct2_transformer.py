"""The peer of benchmarks/decode.py: CTranslate2 on a Transformer of random weights.

    ct2_transformer.py LAYERS,UNITS,FEED_FORWARD,HEADS,VOCABULARY LENGTHS
        TYPE THREADS BEAM

Runs in an environment of its own (ctranslate2, numpy), as a worker: says in a line of
JSON that it is ready, and answers each line of standard input by another. LENGTHS has
the tokens of the source and of the translation for each sentence; every hypothesis is
forced to have as many.
"""

import json
import multiprocessing
import random
import sys
import tempfile
import time

import ctranslate2
import numpy as np
from ctranslate2.specs import transformer_spec

RESERVED = ["<blank>", "<unk>", "<s>", "</s>"]


class Weights:
    """Random ones."""

    def __init__(self, units):
        self.units, self.rng = units, np.random.default_rng(0)

    def matrix(self, *shape):
        """Any matrix."""
        return (self.rng.normal(size=shape) * 0.05).astype("float32")

    def linear(self, layer, rows, columns):
        """A dense layer."""
        layer.weight, layer.bias = self.matrix(rows, columns), np.zeros(rows, "float32")

    def norm(self, layer):
        """A layer normalisation."""
        layer.gamma = np.ones(self.units, "float32")
        layer.beta = np.zeros(self.units, "float32")

    def attention(self, layer, sizes):
        """An attention, its projections as large as so many of the units."""
        self.norm(layer.layer_norm)
        for part, size in zip(layer.linear, sizes, strict=True):
            self.linear(part, size * self.units, self.units)


def build(path, layers, units, feed_forward, heads, vocabulary):
    """Writes the model."""
    spec = transformer_spec.TransformerSpec.from_config((layers, layers), heads)
    weights = Weights(units)
    embedding = weights.matrix(vocabulary, units)
    tables = spec.encoder.embeddings[0], spec.decoder.embeddings
    for side, table in zip((spec.encoder, spec.decoder), tables, strict=True):
        table.weight, side.scale_embeddings = embedding, True
        side.position_encodings.encodings = np.zeros((512, units), "float32")
        weights.norm(side.layer_norm)
        for layer in side.layer:
            weights.attention(layer.self_attention, [3, 1])
            if side is spec.decoder:
                weights.attention(layer.attention, [1, 2, 1])
            weights.norm(layer.ffn.layer_norm)
            weights.linear(layer.ffn.linear_0, feed_forward, units)
            weights.linear(layer.ffn.linear_1, units, feed_forward)
    spec.decoder.projection.weight = embedding
    spec.decoder.projection.bias = np.zeros(vocabulary, "float32")
    words = RESERVED + [f"w{i}" for i in range(vocabulary - len(RESERVED))]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    spec.save(path)
    return words[len(RESERVED) :]


def main(size, lengths, compute_type, threads, beam_width):
    """Answers until standard input ends."""
    with open(lengths) as file:
        pairs = json.load(file)
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as path:
        with multiprocessing.Pool(1) as pool:  # whose memory is not this one's
            words = pool.apply(build, (path, *map(int, size.split(","))))
        translator = ctranslate2.Translator(
            path, compute_type=compute_type, intra_threads=int(threads)
        )
    sources = [rng.choices(words, k=length) for length, _ in pairs]

    def seconds(sentences, batch_size):
        start = time.perf_counter()
        # By the translation, as all of a batch go on until the longest ends.
        order = sorted(range(sentences), key=lambda i: pairs[i][::-1])
        for i in range(0, sentences, batch_size):
            some = order[i : i + batch_size]
            steps = max(pairs[j][1] for j in some)
            translator.translate_batch(
                [sources[j] for j in some],
                beam_size=int(beam_width),
                max_decoding_length=steps,
                min_decoding_length=steps,
            )
        return time.perf_counter() - start

    seconds(min(128, len(pairs)), 32)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        taken = seconds(question["sentences"], question["batch_size"])
        print(json.dumps({"seconds": taken}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
