"""The models, one paper a file, and their configurations."""

from keras_luong.models.bahdanau import Bahdanau2015
from keras_luong.models.cho import Cho2014
from keras_luong.models.config import Seq2SeqConfig
from keras_luong.models.gnmt import GNMT
from keras_luong.models.presets import PRESETS, build
from keras_luong.models.seq2seq import Seq2Seq
from keras_luong.models.transformer import Transformer, TransformerConfig

__all__ = [
    "GNMT",
    "PRESETS",
    "Bahdanau2015",
    "Cho2014",
    "Seq2Seq",
    "Seq2SeqConfig",
    "Transformer",
    "TransformerConfig",
    "build",
]
