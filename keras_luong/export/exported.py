"""What can be exported: a translator of texts, or a generator of sequences."""

from __future__ import annotations

from typing import TypeAlias

from keras_luong.checks import check_tensorflow
from keras_luong.decoding.generation import SequenceGenerator
from keras_luong.export.sequence_export import SequenceExport
from keras_luong.export.text_export import TextExport
from keras_luong.translation.translator import Translator

#: Both say the same to whoever writes a file: what is asked of them, what they need
#: beside their weights, and what describes them.
Exported: TypeAlias = TextExport | SequenceExport


def exported(translator: Translator | SequenceGenerator) -> Exported:
    """Returns what an export has of a translator or a generator of sequences.

    Raises:
        TypeError: If it is neither.
    """
    check_tensorflow()
    if isinstance(translator, Translator):
        return TextExport(translator)
    if isinstance(translator, SequenceGenerator):
        return SequenceExport(translator)
    raise TypeError(
        "`translator` must be a Translator or a SequenceGenerator. Received: "
        f"{translator!r}"
    )
