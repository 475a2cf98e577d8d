"""Translates with the `.tflite` files that keras_luong exports, without TensorFlow.

Example:
    >>> from keras_luong_edge import EdgeTranslator
    >>> EdgeTranslator("mine.tflite").translate(["A dog runs."])[0].text
"""

from keras_luong_edge.translation import Translation
from keras_luong_edge.translator import EdgeTranslator

__version__ = "0.1.0"

__all__ = ["EdgeTranslator", "Translation", "__version__"]
