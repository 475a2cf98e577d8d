"""The command line of training: flags, hyperparameters as flags, recipes.

Everything that says how a run is trained is a flag, so that a run's record of its flags
is all that it takes to train it again.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import typing
from pathlib import Path

from keras_luong.checks import check_above, check_not_negative, check_rate, check_size
from keras_luong.cli.recipes import RECIPES
from keras_luong.evaluation.bleu import check_tokenize
from keras_luong.models.presets import PRESETS, configure
from keras_luong.text.tokenizer_pair import TOKENIZERS
from keras_luong.training.optimizers import OPTIMIZERS
from keras_luong.training.schedules import SCHEDULES
from keras_luong.training.strategies import STRATEGIES

LEARNING_RATES = {"sgd": 1.0, "adam": 1e-3}
MONITORS = ("val_perplexity", "val_token_accuracy", "val_bleu", "val_loss")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")

# What there must be at least one of.
SIZES = (
    "vocab_size max_length epochs gradient_accumulation_steps warmup_steps patience "
    "save_steps eval_sentences beam_width"
).split()

# 0 says that there is none of it, as not giving the flag does.
ZERO_IS_NONE = ("r_drop", "weight_decay", "subword_sampling")

# What may differ when a run goes on; everything else would make it another run.
FREE = (
    "epochs strategy early_stopping keep_epochs beam_width length_penalty jit_compile "
    "save_steps chosen_batch_tokens learning_rate clip_norm"
).split()
# What each epoch's BLEU is of: the same, if it is what the best weights are judged by.
OF_BLEU = ["eval_sentences", "bleu_tokenize"]


def parse(
    argv: list[str] | None = None, description: str | None = None
) -> argparse.Namespace:
    """Reads and checks the command line.

    Args:
        argv: The flags; by default those of the process.
        description: What `--help` begins with.

    Returns:
        The value of each flag. Hyperparameters that are not given are the preset's, and
        missing here.

    Raises:
        SystemExit: Flags that there are not, values that cannot be or don't fit
            together, or `--help`.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag = parser.add_argument
    flag("--run_dir", type=Path, required=True, help="where everything is written")
    flag(
        "--preset",
        choices=list(PRESETS),
        default="luong2015-global-general",
        help="model, and what else is not given on the command line for "
        f"{', '.join(RECIPES)}",
    )
    add_data_flags(parser)
    add_training_flags(parser)
    add_evaluation_flags(parser)
    add_config_flags(parser)
    args = with_recipe(parser, argv)
    if args.learning_rate is None:
        args.learning_rate = LEARNING_RATES[args.optimizer]
    try:
        check(args)
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    for name in ZERO_IS_NONE:
        setattr(args, name, getattr(args, name) or None)
    return args


def free(args) -> list[str]:
    """The flags that may have other values when a run goes on.

    Args:
        args: From `parse`.

    Returns:
        Their names.
    """
    return FREE if args.monitor == "val_bleu" else FREE + OF_BLEU


def check(args) -> None:
    """Refuses what would fail only after the tokenizers are trained.

    Args:
        args: The value of each flag.

    Raises:
        TypeError, ValueError: A value that cannot be, or that does not fit another; it
            names the flag.
    """
    for name in SIZES:
        check_size(f"--{name}", vars(args)[name])
    check_size("--limit_examples", args.limit_examples, optional=True)
    for name in ("constant_epochs", "keep_epochs", "early_stopping"):
        check_size(f"--{name}", vars(args)[name] or 0, smallest=0)
    if args.batch_tokens != "auto":
        check_size("--batch_tokens", args.batch_tokens)
    check_above("--learning_rate", args.learning_rate, 0)
    check_tokenize("--bleu_tokenize", args.bleu_tokenize)
    for name in ("label_smoothing", "ema_momentum", "beta_2"):
        check_rate(f"--{name}", vars(args)[name] or 0)
    for name in (*ZERO_IS_NONE, "clip_norm", "learning_rate", "length_penalty"):
        check_not_negative(f"--{name}", vars(args)[name] or 0)
    if args.beta_2 is not None and args.optimizer != "adam":
        raise ValueError(f"--beta_2 needs --optimizer adam. Received: {args.optimizer}")
    if args.r_drop and args.jit_compile:
        raise ValueError(f"--r_drop needs --no-jit_compile. Received: {args.r_drop}")
    if args.subword_sampling and args.tokenizer != "sentencepiece":
        raise ValueError(
            "--subword_sampling needs --tokenizer sentencepiece. "
            f"Received: {args.tokenizer}"
        )
    config = make_config(args, args.vocab_size, args.vocab_size)
    PRESETS[args.preset].model.check(config)
    if args.r_drop and not _has_noise(config):
        raise ValueError(
            "--r_drop compares two passes with different dropout, and needs some: "
            f"--dropout 0.3, for instance. Received: --r_drop {args.r_drop}, and "
            f"dropout={config.dropout} with --preset {args.preset}"
        )
    if config.tie_embeddings == "all" and not args.shared:
        raise ValueError(
            "--tie_embeddings all needs one vocabulary for both sides: --shared. "
            "Received: --no-shared"
        )


def _has_noise(config) -> bool:
    """Whether two passes of a batch in training differ."""
    rates = dataclasses.asdict(config).items()
    return any(
        rate for name, rate in rates if name.endswith(("dropout", "sigmoid_noise"))
    )


def with_recipe(parser: argparse.ArgumentParser, argv: list[str] | None):
    """Parses, with what the preset's recipe says where the command line says nothing.

    Another optimizer than the recipe's has its own learning rate and moments.
    """
    recipe = dict(RECIPES.get(parser.parse_args(argv).preset, {}))
    parser.set_defaults(**recipe)
    args = parser.parse_args(argv)
    if args.optimizer != recipe.get("optimizer", args.optimizer):
        parser.set_defaults(learning_rate=None, beta_2=None)
        args = parser.parse_args(argv)
    return args


def settings_of(args) -> dict:
    """The flags as they go into run.json."""
    plain = (int, float, str, bool, type(None))
    return {
        name: value if isinstance(value, plain) else str(value)
        for name, value in vars(args).items()
        if name != "run_dir"
    }


def make_config(args, source_vocab_size: int, target_vocab_size: int) -> typing.Any:
    """The preset's configuration, with what the flags change of it.

    Args:
        args: From `parse`.
        source_vocab_size: Number of source ids.
        target_vocab_size: Number of target ids.

    Returns:
        A configuration, see `keras_luong.models.presets.configure`.

    Raises:
        TypeError, ValueError: A flag that the preset's model hasn't, or a value that
            cannot be.
    """
    changes = {name: vars(args)[name] for name in config_flags() if name in args}
    config_class = PRESETS[args.preset].model.config_class
    known = {field.name for field in dataclasses.fields(config_class)}
    if strangers := sorted(changes.keys() - known):
        raise ValueError(
            f"The preset {args.preset} has no {', '.join(strangers)}; it has "
            f"{', '.join(sorted(known))}"
        )
    return configure(args.preset, source_vocab_size, target_vocab_size, **changes)


def config_flags() -> dict[str, tuple]:
    """Hyperparameters of all models: name → type and documentation."""
    flags = {}
    for config_class in {
        preset.model.config_class: None for preset in PRESETS.values()
    }:
        hints = typing.get_type_hints(config_class)
        doc = inspect.getdoc(config_class)
        texts = dict(
            re.findall(r"^ {4}(\w+): ((?:.+\n?(?: {8})?)+?)(?=^ {4}\w|\n)", doc, re.M)
        )
        for field in dataclasses.fields(config_class):
            if not field.name.endswith("_vocab_size"):
                text = " ".join(texts[field.name].split())
                flags.setdefault(field.name, (hints[field.name], text))
    return flags


def batch_tokens(text: str) -> int | str:
    """Parses a number of tokens, or "auto"."""
    return text if text == "auto" else int(text)


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Makes a flag of every hyperparameter, with its documentation as the help."""
    group = parser.add_argument_group("model (what is not given is the preset's)")
    for name, (hint, text) in config_flags().items():
        options = {"default": argparse.SUPPRESS, "help": text}
        if bool in (hint, *typing.get_args(hint)):
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["type"] = optional(hint)
            options["metavar"] = options["type"].__name__.upper()
        group.add_argument(f"--{name}", **options)


def optional(hint) -> type:
    """A parser of flags of that type; "none" is None where the type allows it."""
    kinds = typing.get_args(hint) or (hint,)
    kind = kinds[0]

    def parse_value(text: str):
        return None if type(None) in kinds and text.lower() == "none" else kind(text)

    parse_value.__name__ = kind.__name__
    return parse_value


def add_data_flags(parser: argparse.ArgumentParser) -> None:
    """What to learn from, and in which pieces."""
    flag = parser.add_argument_group("data").add_argument
    flag("--data", default="wmt14_translate/de-en", help="tfds name, folder, phrases")
    flag("--source", default="en", help="source language")
    flag("--target", default="de", help="target language")
    flag("--limit_examples", type=int, help="use the first pairs only")
    flag(
        "--tokenizer",
        choices=list(TOKENIZERS),
        default="sentencepiece",
        help="pieces of words (unigrams, Kudo 2018), or words; default: %(default)s",
    )
    flag("--vocab_size", type=int, default=50_000, help="of each side")
    flag(
        "--shared",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="one vocabulary for both sides",
    )
    flag(
        "--subword_sampling",
        type=float,
        help="alpha of random splits (Kudo 2018), such as 0.1",
    )
    flag("--max_length", type=int, default=50, help="train on sentences up to so long")
    flag(
        "--batch_tokens",
        type=batch_tokens,
        default=4096,
        help="padded tokens of a batch; auto: the largest that fits, up to 65536",
    )


def add_training_flags(parser: argparse.ArgumentParser) -> None:
    """How to learn."""
    flag = parser.add_argument_group("training").add_argument
    flag("--epochs", type=int, default=12, help="default: %(default)s, the paper's")
    flag(
        "--optimizer",
        choices=list(OPTIMIZERS),
        default="sgd",
        help="default: %(default)s, the paper's",
    )
    flag("--learning_rate", type=float, help=f"default: {LEARNING_RATES}")
    flag(
        "--schedule",
        choices=list(SCHEDULES),
        default="halving",
        help="of the learning rate; default: %(default)s, the paper's",
    )
    flag("--constant_epochs", type=int, default=8, help="epochs before the halving")
    flag("--warmup_steps", type=int, default=4000, help="for inverse_sqrt")
    flag("--patience", type=int, default=2, help="stale epochs that plateau halves at")
    flag(
        "--label_smoothing",
        type=float,
        default=0.0,
        help="of the reference's 1 so much is spread over all words (Szegedy et al. "
        "2016), such as 0.1; default: none",
    )
    flag("--beta_2", type=float, help="of Adam, default: 0.999")
    flag("--r_drop", type=float, help="alpha of R-Drop, such as 1")
    flag("--weight_decay", type=float, help="of matrices, such as 0.01")
    flag("--clip_norm", type=float, default=5.0, help="0: no clipping")
    flag("--gradient_accumulation_steps", type=int, default=1, help="batches a step")
    flag(
        "--ema_momentum",
        type=float,
        default=0.0,
        help="of the weights' average, by batches",
    )
    flag("--strategy", choices=list(STRATEGIES), default="auto")
    flag("--precision", choices=PRECISIONS, default="float32")
    flag("--jit_compile", action=argparse.BooleanOptionalAction, default=False)
    flag("--seed", type=int, default=1)
    flag("--save_steps", type=int, default=500, help="steps between checkpoints")
    flag("--keep_epochs", type=int, default=5, help="weights kept to be averaged")


def add_evaluation_flags(parser: argparse.ArgumentParser) -> None:
    """How to judge what was learned."""
    flag = parser.add_argument_group("evaluation").add_argument
    flag(
        "--monitor",
        choices=MONITORS,
        default="val_perplexity",
        help="what the best weights are judged by",
    )
    flag("--early_stopping", type=int, help="epochs to wait for a better one")
    flag("--eval_sentences", type=int, default=500, help="translated each epoch")
    flag("--bleu_tokenize", default="13a", help="none for text that is tokenised")
    flag("--beam_width", type=int, default=5, help="of the final evaluation")
    flag(
        "--length_penalty",
        type=float,
        default=0.0,
        help="alpha of GNMT's (Wu et al. 2016), of the final evaluation",
    )
