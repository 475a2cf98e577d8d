"""What can be chosen, as data: models, presets, how a run is trained.

Nothing here imports Keras or TensorFlow, so that the command line can list all of it at
once.
"""
