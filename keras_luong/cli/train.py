"""`keras-luong train`: see `keras_luong.runs.train`."""

from __future__ import annotations

import shlex
from pathlib import Path

from keras_luong.config.auto import AutoTraining
from keras_luong.config.training import TrainingConfig
from keras_luong.runs.run import read_record
from keras_luong.runs.synthetic import train_distilled
from keras_luong.runs.train import train

NEXT = """
Translate:  keras-luong translate {run_dir}{tag} < in.txt > out.txt
Export:     keras-luong export {run_dir} {models}
Look:       tensorboard --logdir {logs}"""


def run(options: tuple[TrainingConfig | AutoTraining, Path, bool]) -> None:
    """Trains, and says what to do next."""
    config, run_dir, distill = options
    (train_distilled if distill else train)(config, run_dir)
    print(next_steps(run_dir))


def next_steps(run_dir: Path) -> str:
    """Commands that can be pasted as they are."""
    tag = read_record(run_dir)["settings"].get("tag")
    paths = {
        "run_dir": run_dir,
        "models": Path("models", run_dir.resolve().name),
        "logs": run_dir / "logs",
    }
    quoted = {name: shlex.quote(str(path)) for name, path in paths.items()}
    return NEXT.format(**quoted, tag=f" --tag {tag}" if tag else "")
