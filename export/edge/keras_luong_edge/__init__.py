"""Translates with the `.tflite` files that keras_luong exports, without TensorFlow.

Example:
    >>> from keras_luong_edge import EdgeTranslator
    >>> [translation] = EdgeTranslator("mine.tflite").translate(["the red dog"])
    >>> translation.source_tokens
    ['the', 'red', 'dog', '</s>']
"""

from keras_luong_edge.translation import Translation
from keras_luong_edge.translator import EdgeTranslator

__version__ = "0.1.0"

__all__ = ["EdgeTranslator", "Translation", "__version__"]
