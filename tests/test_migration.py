"""Checkpoints that TensorFlow Addons wrote, in our models: the same numbers.

`fixtures/tfa/make_fixtures.py` made them, with Addons itself.
"""

import json
import shutil
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_luong as kl
from keras_luong.migration import load_addons_checkpoint

pytestmark = pytest.mark.tensorflow

FIXTURES = Path(__file__).parent / "fixtures" / "tfa"
FILE = json.loads((FIXTURES / "cases.json").read_text("utf-8"))
CASES = {name: {**FILE["defaults"], **case} for name, case in FILE["cases"].items()}
SOURCE_WORDS, TARGET_WORDS, TARGET_WIDTH, UNITS = 12, 11, 3, 4
BEGIN, END, LONGEST = 1, 2, 12

#: Ours for what Addons calls it, without and with scale=True or normalize=True.
SCORES = {
    "Luong": ("general", "scaled_general"),
    "Bahdanau": ("concat", "normed_concat"),
}


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def numbers(name):
    return np.load(FIXTURES / f"{name}.npz")


def attention(case):
    theirs = case["attention"].removesuffix("Attention")
    kind = kl.LuongAttention
    options = {}
    if theirs.endswith("Monotonic"):
        theirs, kind = theirs.removesuffix("Monotonic"), kl.MonotonicAttention
        options = {"mode": "parallel"}
    score = SCORES[theirs][bool(case["attention_options"])]
    if theirs == "Bahdanau":
        options["units"] = UNITS
    return kind(score, **options)


def options(case):
    """How h̃ is made."""
    has_layer = case["attention_layer"] is not None
    return {
        "attentional_units": case["attention_layer"],
        "attentional_activation": case["activation"],
        "attentional_bias": case["attention_bias"],
        "use_attentional_vector": has_layer,
        "output_attention": case["output_attention"],
    }


def wrapped(case):
    """A wrapper around cells of Keras."""
    cells = [getattr(keras.layers, f"{kind}Cell")(UNITS) for kind in case["cells"]]
    return kl.AttentionWrapper(cells, attention(case), **options(case))


def own_cell(case):
    """The library's own cell."""
    kinds = case["cells"]
    return kl.InputFeedingDecoderCell(
        UNITS,
        attention(case),
        num_layers=len(kinds),
        cell_type=kinds[0].lower(),
        **options(case),
    )


class Translator(keras.Model):
    """What make_fixtures.py has, of our layers."""

    def __init__(self, case, cell):
        super().__init__()
        self.source_embedding = keras.layers.Embedding(
            SOURCE_WORDS, case["source_width"]
        )
        self.encoder = encoder(case)
        self.target_embedding = keras.layers.Embedding(TARGET_WORDS, TARGET_WIDTH)
        self.decoder = kl.InputFeedingDecoder(
            cell,
            output_layer=keras.layers.Dense(TARGET_WORDS, use_bias=case["output_bias"]),
        )

    def read(self, source):
        mask = keras.ops.not_equal(source, 0)
        outputs, *states = self.encoder(self.source_embedding(source), mask=mask)
        return outputs, mask, keras.tree.flatten(states)

    def call(self, inputs):
        memory, mask, states = self.read(inputs["source"])
        words = self.target_embedding(inputs["target"])
        return self.decoder(
            words,
            memory,
            mask,
            initial_state=states,
            return_attention_scores=True,
        )

    def encode(self, source):
        memory, mask, states = self.read(source)
        cell = self.decoder.cell
        prepared = cell.prepare(memory, mask)
        states = [keras.ops.expand_dims(x, 1) for x in states]
        return prepared, cell.initial_states((len(source), 1), states, prepared)

    def step(self, tokens, state, memory):
        words = self.target_embedding(tokens)
        h_tilde, state, weights = self.decoder.cell(words, state, memory)
        return self.decoder.output_layer(h_tilde), state, weights


def encoder(case):
    """The library's own where there is one of its kind, or else Keras's."""
    kinds = case["cells"]
    if len(set(kinds)) > 1:
        cells = [getattr(keras.layers, f"{kind}Cell")(UNITS) for kind in kinds]
        return keras.layers.RNN(cells, return_sequences=True, return_state=True)
    both = case["bidirectional"]
    return kl.RecurrentEncoder(
        UNITS // 2 if both else UNITS, len(kinds), both, kinds[0].lower()
    )


def built(name, make_cell=wrapped):
    """A model of a case, with weights of its own; and its inputs."""
    given = numbers(name)
    inputs = {"source": given["source"], "target": given["target"]}
    model = Translator(CASES[name], make_cell(CASES[name]))
    model(inputs)
    return model, inputs


WAYS = [(name, wrapped) for name in CASES] + [
    (name, own_cell) for name, case in CASES.items() if len(set(case["cells"])) == 1
]


@pytest.mark.parametrize(("name", "make_cell"), WAYS)
def test_a_whole_model_gives_addons_numbers(name, make_cell):
    model, inputs = built(name, make_cell)
    loaded = load_addons_checkpoint(FIXTURES / name, model)
    assert loaded.complete and not loaded.hints
    logits, weights = model(inputs)
    expected = numbers(name)
    np.testing.assert_allclose(logits, expected["logits"], atol=1e-5)
    np.testing.assert_allclose(weights[:, -1], expected["alignments"], atol=1e-5)
