"""Models: configurations and the networks made from them."""

from keras_luong.models.config import PRESETS, Seq2SeqConfig
from keras_luong.models.seq2seq import Seq2Seq

__all__ = ["PRESETS", "Seq2Seq", "Seq2SeqConfig"]
