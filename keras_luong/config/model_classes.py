"""Which class of configuration a preset's model has."""

from __future__ import annotations

from keras_luong.config.model import ModelConfig
from keras_luong.config.presets import PRESETS
from keras_luong.config.seq2seq import Seq2SeqConfig
from keras_luong.config.transformer import TransformerConfig


def model_config_class(preset: str) -> type[ModelConfig]:
    """Returns the class of the configuration of a preset's model."""
    is_transformer = PRESETS[preset].model == "Transformer"
    return TransformerConfig if is_transformer else Seq2SeqConfig
