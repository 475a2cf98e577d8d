"""From other libraries to this one: what their checkpoints hold, in models of ours.

Reading order: object_graph, pieces, placings, decoder_weights, matching, report,
addons.
"""

from keras_luong.migration.addons import load_addons_checkpoint
from keras_luong.migration.report import LoadedCheckpoint

__all__ = ["LoadedCheckpoint", "load_addons_checkpoint"]
