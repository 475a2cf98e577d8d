"""The options of `keras-luong train`: which there are, and what they ask for.

Nothing here imports Keras or TensorFlow, so that help appears at once.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cyclopts

from keras_luong.cli.arguments import signature
from keras_luong.cli.commands import TRAINING, TrainOptions
from keras_luong.cli.places import check_corpus, check_writable
from keras_luong.cli.wording import suggestion, with_dashes
from keras_luong.config.auto import CHOSEN, AutoTraining
from keras_luong.config.going_on import fields_of_run
from keras_luong.config.named_paths import EMBEDDED
from keras_luong.config.presets import PRESETS
from keras_luong.config.training import TrainingConfig, defaults, model_config_class
from keras_luong.text.find_files import find_files, find_table

#: What help says of what a corpus decides.
_CHOSEN_BY_AUTO = {
    **dict.fromkeys(CHOSEN, "by the size of the corpus"),
    **dict.fromkeys(("source", "target"), "found in the corpus"),
}


def training_signature(argv: Sequence[str]) -> inspect.Signature:
    """The options that there are: those of a preset's model among them.

    Args:
        argv: The words after "train", of which one may name the preset.

    Raises:
        CycloptsError: There is no such preset, or no such run to start from.
    """
    preset = _preset_of(argv)
    model = {"Model (what is not given is the preset's)": model_config_class(preset)}
    panels = {"Run": TrainOptions, **TRAINING, **model}
    said = {**defaults(preset), **PRESETS[preset].fields}
    if preset == "auto":
        said["data"] = ""  # without one it says what it needs
    shown = _CHOSEN_BY_AUTO if preset == "auto" else {}
    made = signature(panels, said, shown=shown)
    sizes = ("source_vocab_size", "target_vocab_size")  # of the tokenizers
    rest = {name: x for name, x in made.parameters.items() if name not in sizes}
    by_place_too = inspect.Parameter.POSITIONAL_OR_KEYWORD
    data = rest.pop("data").replace(kind=by_place_too)
    return made.replace(parameters=[data, *rest.values()])


class Training(NamedTuple):
    """What `train` is asked for: see `TrainOptions`."""

    config: TrainingConfig | AutoTraining
    run_dir: Path
    distill: bool = False

    def check_places(self) -> None:
        """Checks the paths, before TensorFlow is imported."""
        check_corpus("data", self.config.data)
        data = Path(self.config.data)
        if self.config.data != EMBEDDED and data.exists():
            find = find_files if data.is_dir() else find_table
            find(data, self.config.source, self.config.target)
        if self.run_dir.is_file():
            raise NotADirectoryError(
                f"--run_dir must be a directory. Received a file: {self.run_dir}"
            )
        check_writable(self.run_dir)


def training_options(given: Mapping[str, Any]) -> Training:
    """What is asked for by the options that were given."""
    changes = dict(given)
    distill = changes.pop("distill", False)
    run_dir = changes.pop("run_dir", None) or default_run_dir(changes)
    if (start := changes.pop("init_from", None)) is not None:
        if distill:
            raise ValueError(
                "--distill trains models from nothing, and --init_from starts from a "
                f"run: give one of them. Received: both, --init_from {start}"
            )
        return Training(TrainingConfig.from_run(start, **changes), run_dir)
    preset = changes.pop("preset", TrainOptions.preset)
    if preset != "auto":
        config = TrainingConfig.from_preset(preset, **changes)
        return Training(config, run_dir, distill)
    corpus = changes.pop("data", ""), changes.pop("source", None)
    training = AutoTraining(*corpus, changes.pop("target", None), given=changes)
    if not training.data:
        raise ValueError(
            "DATA is missing: a folder with the text, as in keras-luong train "
            "my/corpus --source fr --target en"
        )
    return Training(training, run_dir, distill)


def default_run_dir(given: Mapping[str, Any]) -> Path:
    """Where a run goes if nothing is said: runs/CORPUS-SOURCE-TARGET.

    One that starts from another run, on the same corpus, goes to runs/RUN-more.

    Args:
        given: The options of `train` that were given.
    """
    data, start = given.get("data"), given.get("init_from")
    name = Path(data or start or given.get("preset", "auto")).resolve().name
    name += "-more" if start and not data else ""
    parts = name, given.get("source"), given.get("target")
    return Path("runs", re.sub(r"\s+", "_", "-".join(filter(None, parts))))


def _preset_of(argv: Sequence[str]) -> str:
    """The preset that the command line names, or that of the run to start from."""
    preset = _value_of("--preset", argv)
    if preset is None and (start := _value_of("--init_from", argv)) is not None:
        try:
            return str(fields_of_run(start)["preset"])
        except (OSError, ValueError) as error:
            message = with_dashes(str(error), argv)
            raise cyclopts.CycloptsError(msg=message) from error
    preset = TrainOptions.preset if preset is None else preset
    if preset not in PRESETS:
        hint = suggestion(preset, PRESETS)
        message = f"There is no preset {preset or '(none given)'}. {hint}"
        raise cyclopts.CycloptsError(msg=message)
    return preset


def _value_of(option: str, argv: Sequence[str]) -> str | None:
    """What the command line says of an option, the last time; None if nothing."""
    value, words = None, iter(argv)
    for word in words:
        if word == option or word.startswith(f"{option}="):
            value = word.partition("=")[2] or next(words, "")
    return value
