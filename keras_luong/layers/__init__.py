"""The layers.

Reading order: base (what all layers have), projection, memory, normalizers, scores,
cells, recurrence, inputs, attention; then the decoder: decoder_cell,
input_feeding_cell, decoder, fast_recurrence, encoder, state_bridge; then other
attentions: local_attention, location_attention, monotonic_attention,
multi_head_attention, multi_source_attention; and what is built on both:
attention_wrapper, feeding, pointer_generator, pointer_network.
"""

from keras_luong.layers.attention import LuongAttention, attention_weights
from keras_luong.layers.attention_wrapper import AttentionWrapper
from keras_luong.layers.base import BaseLayer, Kernel
from keras_luong.layers.cells import CellInput, LayerNormLSTM, LayerNormLSTMCell
from keras_luong.layers.decoder import InputFeedingDecoder
from keras_luong.layers.decoder_cell import CellStates, DecoderCell, RecurrentStack
from keras_luong.layers.encoder import RecurrentEncoder
from keras_luong.layers.feeding import (
    CustomFeeding,
    Feeding,
    FreeRunning,
    ScheduledEmbedding,
    ScheduledOutput,
)
from keras_luong.layers.input_feeding_cell import (
    AttentionalVector,
    InputFeedingDecoderCell,
)
from keras_luong.layers.local_attention import LocalAttention
from keras_luong.layers.location_attention import LocationAwareAttention
from keras_luong.layers.memory import Memory
from keras_luong.layers.monotonic_attention import (
    MonotonicAttention,
    MonotonicChunkwiseAttention,
)
from keras_luong.layers.multi_head_attention import MultiHeadLuongAttention
from keras_luong.layers.multi_source_attention import MultiSourceAttention
from keras_luong.layers.normalizers import entmax15, masked_softmax, sparsemax
from keras_luong.layers.pointer_generator import CoverageLoss, PointerGenerator
from keras_luong.layers.pointer_network import PointerNetwork
from keras_luong.layers.projection import Project, dot, matmul
from keras_luong.layers.recurrence import INFERENCE, Mode
from keras_luong.layers.scores import Score
from keras_luong.layers.state_bridge import StateBridge

__all__ = [
    "AttentionWrapper",
    "AttentionalVector",
    "BaseLayer",
    "CellInput",
    "CellStates",
    "CoverageLoss",
    "CustomFeeding",
    "DecoderCell",
    "Feeding",
    "FreeRunning",
    "INFERENCE",
    "InputFeedingDecoder",
    "InputFeedingDecoderCell",
    "Kernel",
    "LayerNormLSTM",
    "LayerNormLSTMCell",
    "LocalAttention",
    "LocationAwareAttention",
    "LuongAttention",
    "Memory",
    "Mode",
    "MonotonicAttention",
    "MonotonicChunkwiseAttention",
    "MultiHeadLuongAttention",
    "MultiSourceAttention",
    "PointerGenerator",
    "PointerNetwork",
    "Project",
    "RecurrentEncoder",
    "RecurrentStack",
    "ScheduledEmbedding",
    "ScheduledOutput",
    "Score",
    "StateBridge",
    "attention_weights",
    "dot",
    "entmax15",
    "masked_softmax",
    "matmul",
    "sparsemax",
]
