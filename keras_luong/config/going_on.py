"""Going on from a run: what a new run takes from the one that it starts from.

Nothing here imports Keras or TensorFlow: a command line is read with it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_luong.config.fields import Rate
from keras_luong.config.model_classes import model_config_class
from keras_luong.config.presets import PRESETS

#: The share of a run's learning rate that a new run goes on with: docs/going_on.md.
RATE_TO_GO_ON = 0.25

#: What the ids of a text depend on, and so what weights mean.
OF_TEXT = (
    "tokenizer",
    "vocab_size",
    "shared",
    "character_coverage",
    "source_normalization",
    "target_normalization",
)
#: Hyperparameters that no weight depends on: they may change.
RATES = ("dropout", "sigmoid_noise")


@dataclasses.dataclass(frozen=True)
class GoingOnConfig:
    """Going on from another run.

    Args:
        init_from: A run directory: its best weights are where the training starts, and
            its tokenizers and model are taken over. By default training goes on with a
            quarter of its learning rate.
        mix_old: The share of the training pairs that come from that run's own corpus,
            such as 0.5, so that what it has learned is not forgotten.
    """

    init_from: str | None = None
    mix_old: Rate | None = None


def fields_of_run(run_dir: str | Path) -> dict[str, Any]:
    """Returns the fields of `TrainingConfig` with which a new run goes on from a run.

    Args:
        run_dir: The run directory.

    Returns:
        Values by name: what makes its model and its text's ids (`preset`, `model` and
        `OF_TEXT`), and how it was trained, with a lower learning rate.

    Raises:
        FileNotFoundError: If there is no such run.
        ValueError: If its record is damaged, or its model is none that is trained by
            a preset.
    """
    record = _record(run_dir)
    settings: dict[str, Any] = record["settings"]
    preset, config = _preset_of(run_dir, record), record["model"]["config"]["config"]
    config_class = model_config_class(preset)
    made = dataclasses.asdict(config_class(**config))  # also what it did not record
    sizes = made["source_vocab_size"], made["target_vocab_size"]
    usual = dataclasses.asdict(config_class.preset(preset, *sizes))
    fields = {name: x for name, x in settings.items() if name not in usual}
    if settings.get("learning_rate") and not settings.get("init_from"):
        fields["learning_rate"] = settings["learning_rate"] * RATE_TO_GO_ON
    fields["preset"] = preset
    fields["model"] = {name: x for name, x in made.items() if x != usual[name]}
    return fields


def check_agrees(run_dir: Any, inherited: Mapping[str, Any], given: Any) -> None:
    """Refuses settings that contradict those of the run to go on from.

    Args:
        run_dir: The run.
        inherited: What `fields_of_run` returned.
        given: Values by name; those that the run does not know are not compared.

    Raises:
        ValueError: It names the setting and both values.
    """
    for name in ("preset", *OF_TEXT):
        if name in given and name in inherited and given[name] != inherited[name]:
            _refuse(run_dir, name, inherited[name], given[name])
    made = _record(run_dir)["model"]["config"]["config"]
    for name, value in given.get("model", {}).items():
        if name in made and not name.endswith(RATES) and made[name] != value:
            _refuse(run_dir, name, made[name], value)


def _refuse(run_dir: Any, name: str, inherited: Any, given: Any) -> None:
    raise ValueError(
        f"{name} is taken from {run_dir}, whose weights are for {name}={inherited!r}. "
        f"Received: {given!r}"
    )


def _record(run_dir: str | Path) -> dict[str, Any]:
    """What `run.json` says; whether all of it can be read is found out by `load`."""
    path = Path(run_dir) / "run.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"init_from must be a run directory, as keras-luong train writes it. "
            f"Received: {run_dir}, which has no run.json"
        )
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _ = record["settings"], record["model"]["config"]["config"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error
    return record


def _preset_of(run_dir: Any, record: Mapping[str, Any]) -> str:
    """The run's preset; of a run without one, the first of the same model."""
    name = record["model"]["class"].split(">")[-1]
    recorded = record["settings"].get("preset")
    presets = [x for x in (recorded, *PRESETS) if x in PRESETS]
    of_model = [preset for preset in presets if PRESETS[preset].model == name]
    if not of_model:
        models = sorted({preset.model for preset in PRESETS.values()})
        raise ValueError(
            f"init_from must be a run of a model that a preset makes: "
            f"{', '.join(models)}. Received: {run_dir}, a run of {name}"
        )
    return of_model[0]
