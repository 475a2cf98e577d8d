"""Going on from a run: what a new run takes from the one that it starts from.

Nothing here imports Keras or TensorFlow: a command line is read with it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from keras_luong.config.fields import Count, Rate
from keras_luong.config.model_classes import model_config_class
from keras_luong.config.named_paths import with_found_paths
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
#: How a run is gone on with that does not say how it was trained: as `auto` trains.
_USUAL_TRAINING = {
    name: x for name, x in PRESETS["auto"].training.items() if name not in OF_TEXT
}
#: Hyperparameters that no weight depends on: they may change.
RATES = ("dropout", "sigmoid_noise")

#: Settings that mean something only for a run that starts from another one.
OF_A_START = ("mix_old", "grow_vocab", "freeze", "old_tag")
#: Settings that a run does not pass on to those that start from it.
OF_ONE_RUN = {"init_from", *OF_A_START, "tag", "model", "strategy", "limit_examples"}

#: Parts of a model: see `keras_luong.models.parts`.
Part = Literal[
    "embeddings",
    "source_embedding",
    "target_embedding",
    "encoder",
    "bridge",
    "decoder",
    "attention",
    "output",
]


def check_tag_name(name: str, value: Any) -> str:
    """Returns the name of a tag, and raises ValueError if it cannot be one.

    Args:
        name: Name of the argument, for the error message.
        value: Its value.
    """
    if not isinstance(value, str) or not re.fullmatch("[a-z0-9][a-z0-9_-]*", value):
        raise ValueError(
            f"{name} must be of small letters a to z, digits, - and _, such as news. "
            f"Received: {value!r}"
        )
    if f"<{value}>" in ("<pad>", "<unk>", "<s>"):
        raise ValueError(
            f"{name} must be none of pad, unk and s, which are special tokens. "
            f"Received: {value!r}"
        )
    return value


#: The name of a tag: what no rule for a text's normalization changes.
Tag = Annotated[str, check_tag_name]
#: The usual tag of text that was translated back: `keras_luong.runs.backtranslation`.
BACK_TRANSLATED = "bt"


@dataclasses.dataclass(frozen=True)
class GoingOnConfig:
    """Going on from another run.

    Args:
        init_from: A run directory: its best weights are where the training starts, and
            its tokenizers and model are taken over. By default training goes on with a
            quarter of its learning rate.
        mix_old: The share of the training pairs that come from that run's own corpus,
            such as 0.5, so that what it has learned is not forgotten.
        grow_vocab: Most tokens of the new corpus that each vocabulary gets besides;
            those that it has stay what they are.
        freeze: Parts of the model that do not change.
        tag: Name of a tag in front of all sources: news becomes the token `<news>`.
            Also without another run.
        old_tag: Name of a tag in front of the sources that mix_old brings.
    """

    init_from: str | None = None
    mix_old: Rate | None = None
    grow_vocab: Count | None = None
    freeze: tuple[Part, ...] | None = None
    tag: Tag | None = None
    old_tag: Tag | None = None


def fields_of_run(run_dir: str | Path) -> dict[str, Any]:
    """Returns the fields of `TrainingConfig` with which a new run goes on from a run.

    Args:
        run_dir: The run directory.

    Returns:
        Values by name: what makes its model and its text's ids (`preset`, `model` and
        `OF_TEXT`), and how it was trained, with a lower learning rate. If it does not
        say how, it is as the preset "auto" trains.

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
    # Of one size: a preset may tie both sides' words, and the run may have undone it.
    sizes = [made.pop(f"{side}_vocab_size") for side in ("source", "target")]
    usual = dataclasses.asdict(config_class.preset(preset, sizes[0], sizes[0]))
    fields = {name: x for name, x in settings.items() if name not in usual}
    if "optimizer" not in settings:  # it says nothing of its training
        fields = {**_USUAL_TRAINING, **fields}
    if fields.get("learning_rate") and not settings.get("init_from"):
        fields["learning_rate"] *= RATE_TO_GO_ON
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


def check_start(config: Any) -> None:
    """Refuses settings that need a run to start from, or each other, where it is not.

    Args:
        config: A `TrainingConfig`.

    Raises:
        ValueError: It names the setting.
    """
    for name in OF_A_START:
        if getattr(config, name) is not None and config.init_from is None:
            raise ValueError(
                f"{name} needs init_from, a run to start from. "
                f"Received: {name}={getattr(config, name)!r}"
            )
    if config.old_tag is not None and config.mix_old is None:
        raise ValueError(
            "old_tag is for what mix_old brings, and needs it. "
            f"Received: old_tag={config.old_tag!r}"
        )


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
        settings, _ = record["settings"], record["model"]["config"]["config"]
        found = with_found_paths(run_dir, settings, record.get("paths", {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error
    return {**record, "settings": found}


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
