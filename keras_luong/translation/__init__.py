"""Translation of texts by a model, its tokenizers and a search."""

from keras_luong.translation.batching import Translation
from keras_luong.translation.translator import Translator

__all__ = ["Translation", "Translator"]
