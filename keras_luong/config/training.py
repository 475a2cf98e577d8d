"""How a translator is trained, as data: all that it takes to train it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from keras_luong.checks import check_choice
from keras_luong.config.fields import (
    Count,
    NotNegative,
    Positive,
    Rate,
    Seed,
    check_fields,
    hints_of,
)
from keras_luong.config.model import ModelConfig
from keras_luong.config.presets import PRESETS
from keras_luong.config.seq2seq import Seq2SeqConfig
from keras_luong.config.transformer import TransformerConfig

Monitor = Literal["val_perplexity", "val_token_accuracy", "val_bleu", "val_loss"]
Precision = Literal["float32", "mixed_bfloat16", "mixed_float16"]
LEARNING_RATES = {"sgd": 1.0, "adam": 1e-3}

#: What may differ when a run goes on; everything else would make it another run.
FREE = frozenset(
    "epochs strategy early_stopping keep_epochs beam_width length_penalty jit_compile "
    "save_steps chosen_batch_tokens learning_rate clip_norm".split()
)
#: What follows from the data, or holds what is chosen.
NOT_CHOSEN = {"source_vocab_size", "target_vocab_size", "model"}

#: What each epoch's BLEU is of: the same, if the best weights are judged by it.
OF_BLEU = frozenset(["eval_sentences", "bleu_tokenize"])


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What to learn from, and in which pieces.

    Args:
        data: A folder of text files, a name in tensorflow-datasets, or "phrases" (the
            embedded corpus).
        source: Source language.
        target: Target language.
        limit_examples: Use only so many of the first pairs.
        tokenizer: Pieces of words (unigrams, Kudo 2018), or words.
        vocab_size: Tokens of each side's vocabulary, at most.
        shared: Whether both sides have one vocabulary.
        subword_sampling: Alpha of random splits (Kudo 2018), such as 0.1.
        max_length: Train on sentences of up to so many tokens.
        batch_tokens: Padded tokens of a batch; auto: the largest that fits into the
            memory, up to 65536.
    """

    data: str = "wmt14_translate/de-en"
    source: str = "en"
    target: str = "de"
    limit_examples: int | None = None
    tokenizer: Literal["sentencepiece", "word"] = "sentencepiece"
    vocab_size: int = 50_000
    shared: bool = False
    subword_sampling: NotNegative | None = None
    max_length: int = 50
    batch_tokens: int | Literal["auto"] = 4096


@dataclasses.dataclass(frozen=True)
class OptimizationConfig:
    """How to learn. The defaults are the paper's.

    Args:
        epochs: How often to go through the training data.
        optimizer: What makes steps of gradients.
        learning_rate: Its first; by default 1.0 for sgd and 0.001 for adam.
        schedule: What becomes of the learning rate.
        constant_epochs: Epochs before the halving.
        warmup_steps: Steps with a rising rate, for inverse_sqrt.
        patience: Stale epochs at which plateau halves.
        label_smoothing: Share of the reference's probability that is spread over all
            words (Szegedy et al. 2016), such as 0.1.
        beta_2: Of Adam; by default 0.999.
        r_drop: Alpha of R-Drop (Liang et al. 2021), such as 1.
        weight_decay: Of matrices, such as 0.01.
        clip_norm: Largest norm of a gradient; 0 for any.
        gradient_accumulation_steps: Batches that make one step.
        ema_momentum: Of the moving average of the weights, by batches; 0 for none.
        strategy: Which devices train; auto: all GPUs of this machine, if it has
            several.
        precision: What the model computes in.
        jit_compile: Whether XLA compiles the step.
        seed: Seed of everything that is random.
        save_steps: Steps between checkpoints.
        keep_epochs: Epochs whose weights are kept, to be averaged.
    """

    epochs: int = 12
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
    """How to judge what was learned.

    Args:
        monitor: What the best weights are judged by.
        early_stopping: Epochs to wait for better ones; 0 to the end.
        eval_sentences: Validation sentences that are translated after each epoch.
        bleu_tokenize: sacrebleu's tokenisation; none for text that is tokenised.
        beam_width: Of the final evaluation.
        length_penalty: Alpha of GNMT's (Wu et al. 2016), of the final evaluation.
    """

    monitor: Monitor = "val_perplexity"
    early_stopping: Count | None = None
    eval_sentences: int = 500
    bleu_tokenize: str = "13a"
    beam_width: int = 5
    length_penalty: NotNegative = 0.0


@dataclasses.dataclass(frozen=True)
class TrainingConfig(EvaluationConfig, OptimizationConfig, DataConfig):
    """How a translator is trained; see the classes above for the other fields.

    Args:
        preset: The model, and for a recipe how it is trained.
        model: What of the model's configuration differs from the preset's.

    Raises:
        TypeError, ValueError: A value that cannot be, or two that do not fit together;
            it names the field.

    Example:
        >>> config = TrainingConfig.from_preset("multi30k-small", data="my/corpus",
        ...                                     units=384)
    """

    preset: str = "luong2015-global-general"
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Fills in what follows from other fields, then checks them all."""
        fill = object.__setattr__  # a frozen dataclass has no other way
        check_choice("preset", self.preset, PRESETS)
        check_fields(self)
        if self.learning_rate is None:
            fill(self, "learning_rate", LEARNING_RATES[self.optimizer])
        for name in ("r_drop", "weight_decay", "subword_sampling"):
            fill(self, name, getattr(self, name) or None)  # 0 says: none of it
        self._check_together()

    def _check_together(self) -> None:
        if self.beta_2 is not None and self.optimizer != "adam":
            raise ValueError(f'beta_2 needs optimizer="adam". Received: {self.beta_2}')
        if self.r_drop and self.jit_compile:
            raise ValueError(f"r_drop needs jit_compile=False. Received: {self.r_drop}")
        if self.subword_sampling and self.tokenizer != "sentencepiece":
            raise ValueError(
                'subword_sampling needs tokenizer="sentencepiece". Received: '
                f"{self.tokenizer!r}"
            )
        config = self.model_config(self.vocab_size, self.vocab_size)
        if self.r_drop and not _has_noise(config):
            raise ValueError(
                "r_drop compares two passes with different dropout, and needs some: "
                f"dropout=0.3, for instance. Received: r_drop={self.r_drop}, and "
                f"dropout={config.dropout} of the preset {self.preset}"
            )
        if config.tie_embeddings == "all" and not self.shared:
            raise ValueError(
                'tie_embeddings="all" needs one vocabulary for both sides, shared=True.'
                " Received: shared=False"
            )

    @classmethod
    def from_preset(cls, preset: str, **changes: Any) -> TrainingConfig:
        """A preset's, or recipe's, with changes.

        Args:
            preset: A name in `keras_luong.config.presets.PRESETS`.
            **changes: Fields of this class, and hyperparameters of the model. Another
                optimizer than the recipe's has its own learning rate and moments.

        Returns:
            A `TrainingConfig`.

        Raises:
            TypeError, ValueError: As of the class.
        """
        base = defaults(preset, changes.get("optimizer"))  # there is such a preset
        known = {*hints_of(cls), *hints_of(model_config_class(preset))} - NOT_CHOSEN
        for name in changes.keys() - known:
            check_choice("A setting", name, sorted(known))
        return cls(**{**base, **_split(changes)})

    def model_config(self, source_vocab_size: int, target_vocab_size: int) -> Any:
        """The configuration of the model, once the vocabularies are known."""
        sizes = source_vocab_size, target_vocab_size
        return model_config_class(self.preset).preset(self.preset, *sizes, **self.model)

    @property
    def implied(self) -> dict[str, Any]:
        """The preset's hyperparameters: what `settings` need not name."""
        sizes = self.vocab_size, self.vocab_size
        config = model_config_class(self.preset).preset(self.preset, *sizes)
        return dataclasses.asdict(config)

    @property
    def free(self) -> frozenset[str]:
        """The settings that may have other values when a run goes on."""
        return FREE if self.monitor == "val_bleu" else FREE | OF_BLEU

    def settings(self) -> dict[str, Any]:
        """All of it as `run.json` has it: one level of names, no two alike."""
        fields = dataclasses.asdict(self)
        model = fields.pop("model")
        return {**fields, **model}


def model_config_class(preset: str) -> type[ModelConfig]:
    """The class of the configuration of a preset's model."""
    is_transformer = PRESETS[preset].model == "Transformer"
    return TransformerConfig if is_transformer else Seq2SeqConfig


def defaults(preset: str, optimizer: str | None = None) -> dict[str, Any]:
    """What a preset says of a training, where it is no default of `TrainingConfig`.

    Args:
        preset: A name in `keras_luong.config.presets.PRESETS`.
        optimizer: Another one than the recipe's has its own learning rate and moments.

    Returns:
        Values by field.
    """
    recipe = PRESETS[check_choice("preset", preset, PRESETS)].training
    if optimizer not in (None, recipe.get("optimizer")):
        recipe = {k: recipe[k] for k in recipe.keys() - {"learning_rate", "beta_2"}}
    return {"preset": preset, **recipe}


def _split(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes as arguments of `TrainingConfig`, the model's apart."""
    own = {field.name for field in dataclasses.fields(TrainingConfig)} - {"model"}
    model = {name: changes[name] for name in changes if name not in own}
    return {**{name: changes[name] for name in changes if name in own}, "model": model}


def _has_noise(config: ModelConfig) -> bool:
    """Whether two passes of a batch in training differ."""
    rates = dataclasses.asdict(config).items()
    return any(
        rate for name, rate in rates if name.endswith(("dropout", "sigmoid_noise"))
    )
