"""The models of the papers by name: which class, in which configuration."""

from __future__ import annotations

from typing import Any, NamedTuple

from keras_luong.checks import check_choice
from keras_luong.models import (
    bahdanau,
    cho,
    gnmt,
    luong,
    multi30k,
    sutskever,
    transformer,
)
from keras_luong.models.bahdanau import Bahdanau2015
from keras_luong.models.cho import Cho2014
from keras_luong.models.gnmt import GNMT
from keras_luong.models.seq2seq import Seq2Seq
from keras_luong.models.transformer import Transformer


class Preset(NamedTuple):
    """A model in a paper's configuration.

    Attributes:
        model: The model's class.
        fields: What differs from its configuration class's defaults.
    """

    model: type
    fields: dict


_FILES = [
    (Seq2Seq, {"small": {}}),
    (Seq2Seq, multi30k.PRESETS),
    (Seq2Seq, luong.PRESETS),
    (Seq2Seq, sutskever.PRESETS),
    (Cho2014, cho.PRESETS),
    (Bahdanau2015, bahdanau.PRESETS),
    (GNMT, gnmt.PRESETS),
    (Transformer, transformer.PRESETS),
]
PRESETS = {
    name: Preset(model, fields)
    for model, presets in _FILES
    for name, fields in presets.items()
}


def configure(
    name: str, source_vocab_size: int, target_vocab_size: int, **changes: Any
) -> Any:
    """The configuration of a preset.

    Args:
        name: A name in `PRESETS`.
        source_vocab_size: Number of source ids, the four special ones included.
        target_vocab_size: Number of target ids, likewise.
        **changes: Fields that are to differ from the preset's.

    Returns:
        A `Seq2SeqConfig`, or the configuration class of the preset's model.

    Raises:
        ValueError, TypeError: An unknown preset, or values that cannot be.

    Example:
        >>> config = configure("luong2015-local-p-general", 50000, 50000)
    """
    preset = PRESETS[check_choice("preset", name, PRESETS)]
    fields = {**preset.fields, **changes}
    return preset.model.config_class(source_vocab_size, target_vocab_size, **fields)


def build(
    name: str,
    source_vocab_size: int,
    target_vocab_size: int,
    dtype: str | None = None,
    **changes: Any,
) -> Any:
    """The model of a preset, with random weights.

    Args:
        name: A name in `PRESETS`.
        source_vocab_size: Number of source ids, the four special ones included.
        target_vocab_size: Number of target ids, likewise.
        dtype: Dtype policy.
        **changes: Fields of the configuration that are to differ from the preset's.

    Returns:
        A model such as `Seq2Seq`.

    Raises:
        ValueError, TypeError: An unknown preset, or values that cannot be.

    Example:
        >>> model = build("bahdanau2015", 30000, 30000, units=512, encoder_units=512)
    """
    config = configure(name, source_vocab_size, target_vocab_size, **changes)
    return PRESETS[name].model(config, dtype=dtype)
