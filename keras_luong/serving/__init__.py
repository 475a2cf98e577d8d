"""Text in, text out: in Python, and in a SavedModel without Python."""

from keras_luong.serving.saved_model import export_saved_model
from keras_luong.serving.translator import Translation, Translator

__all__ = ["Translation", "Translator", "export_saved_model"]
