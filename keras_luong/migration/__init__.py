"""From other libraries to this one: what their checkpoints hold, in models of ours.

Reading order: object_graph, pieces, placings, decoder_weights, matching, report,
addons.
"""

from keras_luong.migration.addons import LoadedCheckpoint, load_addons_checkpoint

__all__ = ["LoadedCheckpoint", "load_addons_checkpoint"]
