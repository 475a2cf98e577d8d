"""The models, one paper a file, and their configurations."""

from keras_luong.config.models import Seq2SeqConfig, TransformerConfig
from keras_luong.config.presets import PRESETS
from keras_luong.models.bahdanau import Bahdanau2015
from keras_luong.models.cho import Cho2014
from keras_luong.models.gnmt import GNMT
from keras_luong.models.seq2seq import Seq2Seq
from keras_luong.models.transformer import Transformer
from keras_luong.models.translation_model import TranslationModel

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

#: The model of any preset.
build = TranslationModel.from_preset
