"""Attentions and decoder cells of every kind, and what they are called with."""

import keras
import numpy as np

import keras_luong as kl
from keras_luong.layers.scores import SCORES
from keras_luong.models.bahdanau import BahdanauDecoderCell
from keras_luong.models.cho import ChoDecoderCell
from keras_luong.models.gnmt import GNMTDecoderCell

UNITS, WIDTH, STEPS, POSITIONS = 4, 3, 3, 5
rng = np.random.default_rng(0)
INPUTS = rng.normal(size=(2, STEPS, WIDTH)).astype("float32")
MEMORY = rng.normal(size=(2, POSITIONS, UNITS)).astype("float32")
MASK = np.arange(POSITIONS) < np.array([[POSITIONS], [3]])
OTHER = rng.normal(size=(2, 3, 2)).astype("float32")
WORDS = np.arange(STEPS) < np.array([[2], [STEPS]])


def randomized(layer):
    """Weights that are none of them zeros."""
    random = np.random.default_rng(3)
    for weight in layer.trainable_weights:
        weight.assign(random.normal(size=weight.shape) * 0.7)
    return layer


def source_of(cell):
    """Memory and mask, as the cell's attention wants them."""
    if isinstance(cell.attention, kl.MultiSourceAttention):
        return [MEMORY, OTHER], [MASK, np.ones((2, 3), bool)]
    return MEMORY, MASK


#: Attentions of every kind.
ATTENTIONS = {
    "global": lambda **o: kl.LuongAttention("general", **o),
    "coverage": lambda **o: kl.LuongAttention("concat", coverage=True, **o),
    "local-m": lambda **o: kl.LocalAttention(1, "monotonic", coverage=True, **o),
    "local-p": lambda **o: kl.LocalAttention(2, renormalize=True, **o),
    "monotonic": lambda **o: kl.MonotonicAttention("general", **o),
    "chunkwise": lambda **o: kl.MonotonicChunkwiseAttention("concat", **o),
    "location-aware": lambda **o: kl.LocationAwareAttention(
        filters=2, kernel_size=3, **o
    ),
    "multi-head": lambda **o: kl.MultiHeadLuongAttention(2, score_mode="general", **o),
}


def fed(attention="general", **options):
    if isinstance(attention, str):
        attention = kl.LuongAttention(attention, units=3, max_source_length=8)
    return kl.InputFeedingDecoderCell(UNITS, attention, **options)


def not_fed(attention="general", **options):
    return fed(attention, input_feeding=False, **options)


def several(second="concat", **options):
    """Attends to two sources; "monotonic" attention remembers, "concat" does not."""
    remembers = second == "monotonic"
    second = kl.MonotonicAttention() if remembers else kl.LuongAttention(second)
    return fed(kl.MultiSourceAttention([kl.LuongAttention(), second]), **options)


def wrapped(*cells, **options):
    cells = cells if len(cells) > 1 else cells[0]
    return kl.AttentionWrapper(cells, kl.LuongAttention("general"), **options)


LSTM, GRU = keras.layers.LSTMCell, keras.layers.GRUCell
CELLS = {
    "lstm": fed,
    "gru": lambda: fed(cell_type="gru", num_layers=3, residual=True),
    "layer_norm_lstm": lambda: fed(cell_type="layer_norm_lstm"),
    "simple_rnn": lambda: fed(cell_type="simple_rnn", num_layers=2),
    "lstm, not fed": lambda: not_fed(num_layers=3, residual=True),
    "gru, not fed": lambda: not_fed(cell_type="gru"),
    "no attention": lambda: fed(None, num_layers=2),
    "no attention, not fed": lambda: not_fed(None),
    "coverage, not fed": lambda: not_fed(ATTENTIONS["coverage"]()),
    "linear": lambda: fed(
        attentional_units=3, attentional_activation=None, attentional_bias=True
    ),
    "context": lambda: fed(use_attentional_vector=False),
    "h": lambda: fed(output_attention=False, attentional_units=3),
    "h, not fed": lambda: not_fed(output_attention=False),
    "several": lambda: several("monotonic"),
    "several, not fed": lambda: several(input_feeding=False),
    "wrapped": lambda: wrapped(LSTM(UNITS)),
    "wrapped stack": lambda: wrapped(LSTM(5), GRU(6), LSTM(UNITS)),
    "wrapped, not fed": lambda: wrapped(GRU(5), GRU(UNITS), input_feeding=False),
    "called": lambda: wrapped(LSTM(UNITS, recurrent_activation="hard_sigmoid")),
    "called, not fed": lambda: wrapped(
        GRU(UNITS, reset_after=False), input_feeding=False
    ),
    "bahdanau": lambda: BahdanauDecoderCell(UNITS, kl.LuongAttention("concat")),
    "cho": lambda: ChoDecoderCell(UNITS, maxout_units=3, cell_type="gru"),
    "gnmt": lambda: GNMTDecoderCell(UNITS, kl.LuongAttention(), 3, residual=True),
    **{name: lambda make=make: fed(make()) for name, make in ATTENTIONS.items()},
    "cumulative": lambda: fed(kl.LocationAwareAttention(filters=2, cumulative=True)),
    **{mode: lambda mode=mode: fed(mode) for mode in SCORES if mode != "general"},
    **{f"{x}, not fed": lambda x=x: not_fed(x) for x in ("dot", "concat", "location")},
}
del CELLS["global"]  # as "lstm"
