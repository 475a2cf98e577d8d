"""Exports: SavedModels for servers, `.tflite` files for devices, pages for browsers."""

from keras_luong.export.saved_model import export_saved_model
from keras_luong.export.tflite import export_tflite
from keras_luong.export.warmup import warm_up
from keras_luong.export.web import export_web

__all__ = ["export_saved_model", "export_tflite", "export_web", "warm_up"]
