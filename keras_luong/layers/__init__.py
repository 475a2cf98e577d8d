"""The layers.

Reading order: projection, scores, cells, recurrence, memory, attention,
local_attention, decoder_cell, stacked_cell, attentional_output, decoder, encoder; then
what is built on these: normalizers, quantization, attention_call, monotonic_attention,
coverage_loss, state_bridge, multi_source_attention, attention_wrapper,
cell_with_memory.
"""

from keras_luong.layers.attention import LuongAttention
from keras_luong.layers.attention_wrapper import AttentionWrapper
from keras_luong.layers.cell_with_memory import CellWithMemory
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
from keras_luong.layers.multi_source_attention import MultiSourceAttention
from keras_luong.layers.normalizers import entmax15, masked_softmax, sparsemax
from keras_luong.layers.scores import Score
from keras_luong.layers.stacked_cell import StackedDecoderCell
from keras_luong.layers.state_bridge import StateBridge

__all__ = [
    "AttentionWrapper",
    "AttentionalVector",
    "CellWithMemory",
    "CoverageLoss",
    "DecoderCell",
    "InputFeedingDecoder",
    "InputFeedingDecoderCell",
    "LocalAttention",
    "LuongAttention",
    "Memory",
    "MonotonicAttention",
    "MultiSourceAttention",
    "RecurrentEncoder",
    "Score",
    "StackedDecoderCell",
    "StateBridge",
    "entmax15",
    "masked_softmax",
    "sparsemax",
]
