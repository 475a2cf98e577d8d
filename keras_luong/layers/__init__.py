"""The layers.

Reading order: scores, memory, attention, local_attention, cells, recurrence,
decoder_cell, input_feeding_cell, decoder, encoder, coverage_loss.
"""

from keras_luong.layers.attention import LuongAttention
from keras_luong.layers.attentional_vector import AttentionalVector
from keras_luong.layers.coverage_loss import CoverageLoss
from keras_luong.layers.decoder import InputFeedingDecoder
from keras_luong.layers.decoder_cell import DecoderCell
from keras_luong.layers.encoder import RecurrentEncoder
from keras_luong.layers.input_feeding_cell import InputFeedingDecoderCell
from keras_luong.layers.local_attention import LocalAttention
from keras_luong.layers.memory import Memory
from keras_luong.layers.monotonic_attention import MonotonicAttention
from keras_luong.layers.scores import Score

__all__ = [
    "AttentionalVector",
    "CoverageLoss",
    "DecoderCell",
    "InputFeedingDecoder",
    "InputFeedingDecoderCell",
    "LocalAttention",
    "LuongAttention",
    "Memory",
    "MonotonicAttention",
    "RecurrentEncoder",
    "Score",
]
