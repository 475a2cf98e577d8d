"""The library's models, as a preset and what is changed of it, for tests of exports.

And a batch for any model with 11 words or more, of which 4 are special.
"""

import numpy as np
import tensorflow as tf

LOCAL = {"attention": "local-m", "window": 1}
SMALL = {
    "small": {},
    "local-m": LOCAL,
    "local-p": {"attention": "local-p", "window": 2},
    "local variants": {**LOCAL, "gaussian": True, "renormalize": True},
    "monotonic": {"attention": "monotonic"},
    "monotonic, parallel": {"attention": "monotonic", "monotonic_mode": "parallel"},
    "monotonic, hard": {"attention": "monotonic", "hard_attention": True},
    "coverage": {"coverage": True, "input_feeding": False},
    "hard": {"hard_attention": True},
    "location": {"score_mode": "location", "max_source_length": 15},
    "concat": {"score_mode": "concat", "num_layers": 2},
    "cosine": {"score_mode": "cosine"},
    **{x: {"cell_type": x} for x in ("gru", "simple_rnn")},
    "layer_norm": {"cell_type": "layer_norm_lstm"},
}
MODELS = {
    **{name: ("small", fields) for name, fields in SMALL.items()},
    **{"sutskever": ("sutskever2014", {"num_layers": 2}), "cho": ("cho2014", {})},
    "bahdanau": ("bahdanau2015", {"encoder_units": 4}),
    "gnmt": ("gnmt", {"num_layers": 2}),
    "transformer": ("vaswani2017-base", {"num_heads": 2, "num_layers": 1}),
}


def batch(target_length=4, seed=0):
    """Sources of 6, 4, 1 and 0 words of 6, and targets."""
    rng = np.random.default_rng(seed)
    source = rng.integers(4, 11, (4, 6), dtype="int32")
    source[1, 4:] = source[2, 1:] = source[3] = 0  # the last is all padding
    target = rng.integers(4, 11, (4, target_length), dtype="int32")
    return {"source": source, "target": target}


def stepped(model, inputs):
    """Logits [B, T, V] and weights [B, T, S], a word at a time."""
    memory, state = model.encode(tf.constant(inputs["source"]))
    logits, weights = [], []
    for t in range(inputs["target"].shape[1]):
        tokens = tf.constant(inputs["target"][:, t : t + 1])
        step, state, a = model.step(tokens, state, memory)
        logits.append(step[:, 0])
        weights.append(a[:, 0])
    return np.stack(logits, 1), np.stack(weights, 1)
