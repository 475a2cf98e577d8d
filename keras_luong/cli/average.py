"""`keras-luong average`: see `keras_luong.runs.average`."""

from __future__ import annotations

from keras_luong.cli.options import AverageOptions
from keras_luong.runs.average import average_run, epoch_weights
from keras_luong.runs.run import read_record

MOST = 5  # epochs, where nothing is said


def run(options: AverageOptions) -> None:
    """Writes the new run, and says what it is the average of."""
    read_record(options.run_dir)  # says what is wrong if it is no run directory
    paths = options.weights or epoch_weights(options.run_dir, options.last)
    if options.last is None and not options.weights:
        paths = paths[-MOST:]
    average_run(options.run_dir, options.place, paths)
    names = "".join(f"\n    {path}" for path in paths)
    print(f"{options.place} is the average of {len(paths)}:{names}")
