"""Losses, metrics, optimizers, schedules and devices. The names: `__init__.pyi`."""

from keras_luong.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
