"""Weights of other libraries' checkpoints in models of this one."""

from keras_luong.migration.addons import LoadedCheckpoint, load_addons_checkpoint

__all__ = ["LoadedCheckpoint", "load_addons_checkpoint"]
