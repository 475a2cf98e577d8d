"""Layers; read scores, attention, cells, recurrence, decoder_cell, decoder, encoder."""

from keras_luong.layers.attention import AttentionalVector, LuongAttention, Memory
from keras_luong.layers.decoder import InputFeedingDecoder
from keras_luong.layers.decoder_cell import InputFeedingDecoderCell
from keras_luong.layers.encoder import RecurrentEncoder
from keras_luong.layers.scores import Score

__all__ = [
    "AttentionalVector",
    "InputFeedingDecoder",
    "InputFeedingDecoderCell",
    "LuongAttention",
    "Memory",
    "RecurrentEncoder",
    "Score",
]
