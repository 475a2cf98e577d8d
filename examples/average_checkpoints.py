"""Averages the weights of a run's last epochs into a run directory of their own.

Of a run that examples/train_wmt.py trained and that kept the weights of its epochs, as
`epochs/epoch-0007.weights.h5` and so on; or of any files of weights of its model. What
it writes, keras_luong.load reads, and with it the export and every other script. Some
commands:

    python examples/average_checkpoints.py runs/m30k --last 5
    python examples/average_checkpoints.py runs/m30k --last 10 --out runs/m30k-mean
    python examples/average_checkpoints.py runs/m30k --out runs/both \
        --weights runs/m30k/model.weights.h5 runs/m30k/last.weights.h5
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from keras_luong.files import write_json
from keras_luong.runs.averaging import average_weights, epoch_weights
from keras_luong.runs.directory import RunDirectory, load, read_record


def main(argv: list[str] | None = None) -> Path:
    """Averages, and returns the new run directory."""
    args = parse(argv)
    read_record(args.run_dir)  # says what is wrong if it is no run directory
    paths = args.weights or epoch_weights(args.run_dir, args.last)
    run = args.run_dir.resolve()
    out = args.out or run.with_name(f"{run.name}-average")
    average(args.run_dir, paths, out)
    names = "".join(f"\n    {path}" for path in paths)
    print(f"{out} is the average of {len(paths)}:{names}")
    return out


def average(run_dir: Path, paths: Sequence[Path], out: Path) -> None:
    """Writes a run directory with averaged weights, whole or not at all."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists and is not empty; give another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as parent:
        old, new = RunDirectory(run_dir), RunDirectory(Path(parent) / out.name)
        new.path.mkdir()
        shutil.copytree(old.tokenizer, new.tokenizer)
        write_json(new.record, record_of(run_dir, paths))
        average_weights(paths, new.best_weights)
        load(new.path)  # refuses weights that are not the model's
        new.path.rename(out)


def record_of(run_dir: Path, paths: Sequence[Path]) -> dict:
    """The run's record, and what was averaged.

    That is a setting, so that train_wmt.py refuses to go on with it as with a run.
    """
    record = read_record(run_dir)
    settings = {**record["settings"], "average_of": [str(path) for path in paths]}
    return {**record, "settings": settings}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag = parser.add_argument
    flag("run_dir", type=Path, help="what training wrote")
    flag("--out", type=Path, help="a new run directory; default: RUN_DIR-average")
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--last", type=int, default=5, help="epochs to average; default: %(default)s"
    )
    group.add_argument(
        "--weights",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="files of weights to average instead",
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
