"""Exports: SavedModels for servers, `.tflite` files for devices."""

from keras_luong.export.saved_model import export_saved_model
from keras_luong.export.tflite import export_tflite

__all__ = ["export_saved_model", "export_tflite"]
