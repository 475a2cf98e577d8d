"""The layers.

Reading order: projection, scores, cells, recurrence, memory, attention,
local_attention, decoder_cell, decoder, encoder; then normalizers, quantization,
attention_call, monotonic_attention and coverage_loss.
"""

from keras_luong.layers.attention import LuongAttention
from keras_luong.layers.coverage_loss import CoverageLoss
from keras_luong.layers.decoder import (
    AttentionalVector,
    InputFeedingDecoder,
    InputFeedingDecoderCell,
)
from keras_luong.layers.decoder_cell import DecoderCell
from keras_luong.layers.encoder import RecurrentEncoder
from keras_luong.layers.local_attention import LocalAttention
from keras_luong.layers.memory import Memory
from keras_luong.layers.monotonic_attention import MonotonicAttention
from keras_luong.layers.normalizers import entmax15, masked_softmax, sparsemax
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
    "entmax15",
    "masked_softmax",
    "sparsemax",
]
