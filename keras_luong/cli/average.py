"""Averages the weights of a run's last epochs, as a new run."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY
from pathlib import Path

from keras_luong.cli.options import (
    AnyFile,
    Options,
    RunDir,
    check_writable,
    refuse_both,
)

MOST = 5  # epochs, where nothing is said


@dataclasses.dataclass(frozen=True)
class AverageOptions(Options):
    """Run.

    Args:
        run_dir: A run directory that kept the weights of its epochs.
        out: New run directory; by default RUN_DIR-average.
        last: Number of last epochs to average; by default up to 5.
        weights: Weight files to average instead.
    """

    run_dir: RunDir
    _: KW_ONLY
    out: Path | None = None
    last: int | None = None
    weights: tuple[AnyFile, ...] = ()

    def __post_init__(self) -> None:
        """Checks all fields."""
        super().__post_init__()
        refuse_both(self, "last", "weights")

    @property
    def place(self) -> Path:
        """The new run directory."""
        path = self.run_dir.resolve()
        return self.out or path.with_name(f"{path.name}-average")

    def check_places(self) -> None:
        """Checks the paths, and that the new run directory is new or empty."""
        super().check_places()
        check_writable(self.place)
        if self.place.exists() and any(self.place.glob("*")):
            raise FileExistsError(
                f"{self.place} exists and is not empty: give another directory, as "
                f"--out {self.place}-2, or remove it."
            )


def run(options: AverageOptions) -> None:
    """Writes the new run, and says what it is the average of."""
    from keras_luong.runs.average import average_run, epoch_weights
    from keras_luong.runs.run import read_record

    read_record(options.run_dir)  # says what is wrong if it is no run directory
    paths = options.weights or epoch_weights(options.run_dir, options.last)
    if options.last is None and not options.weights:
        paths = paths[-MOST:]
    average_run(options.run_dir, options.place, paths)
    names = "".join(f"\n    {path}" for path in paths)
    print(f"{options.place} is the average of {len(paths)}:{names}")
