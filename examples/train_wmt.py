"""Trains a translation model, by default as Luong et al. (2015) did on WMT'14.

The same command again goes on where an interrupted run stopped. Some commands:

    python examples/train_wmt.py --run_dir runs/wmt14          # the paper's, en → de
    python examples/train_wmt.py --run_dir runs/mine --data my/corpus \
        --source en --target fr --preset small --vocab_size 8000 \
        --optimizer adam --epochs 20
    python examples/train_wmt.py --help
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
import typing
import warnings
from pathlib import Path

import keras
import tensorflow as tf

from keras_luong.checks import check_not_negative, check_size
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.greedy import GreedySearch
from keras_luong.evaluation.bleu import bleu
from keras_luong.models.presets import PRESETS, configure
from keras_luong.serving.translator import Translator
from keras_luong.text import corpora
from keras_luong.text.batches import evaluation_batches, training_batches
from keras_luong.text.tokenizers import TOKENIZERS, TokenizerPair
from keras_luong.training import run_directory, run_lock
from keras_luong.training.batch_size import largest_batch_tokens
from keras_luong.training.callbacks import training_callbacks
from keras_luong.training.checkpoints import Checkpoints, FollowEpoch, fit
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import Perplexity, TokenAccuracy
from keras_luong.training.monitors import best_so_far
from keras_luong.training.optimizers import OPTIMIZERS, make_optimizer
from keras_luong.training.recipes import RECIPES
from keras_luong.training.schedules import SCHEDULES, make_schedule
from keras_luong.training.strategies import STRATEGIES, make_strategy, worker_index
from keras_luong.training.translation_evaluation import TranslationEvaluation

LEARNING_RATES = {"sgd": 1.0, "adam": 1e-3}
MONITORS = ("val_perplexity", "val_token_accuracy", "val_bleu", "val_loss")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
# What may differ when a run goes on; everything else would make it another run.
FREE = (
    "epochs strategy early_stopping keep_epochs eval_sentences bleu_tokenize "
    "beam_width length_penalty jit_compile save_steps chosen_batch_tokens "
    "learning_rate clip_norm"
).split()


def main(argv: list[str] | None = None) -> dict:
    """Trains, evaluates, and returns what it writes to `results.json`."""
    args = parse(argv)
    # Epochs end when their data does; Keras would rather know beforehand.
    warnings.filterwarnings("ignore", message="Your input ran out of data")
    strategy = make_strategy(args.strategy)  # before anything else of TensorFlow
    keras.utils.set_random_seed(args.seed)
    keras.config.set_dtype_policy(args.precision)
    if worker_index(strategy):  # each worker writes to a directory of its own
        args.run_dir = args.run_dir / "workers" / str(worker_index(strategy))
    corpus = corpora.load(args.data, args.source, args.target)
    check_split(corpus, "validation")
    with run_lock.owned(args.run_dir):
        return run(args, strategy, corpus)


def run(args, strategy, corpus) -> dict:
    """What `main` does once the run directory is its own."""
    resuming = run_directory.check_settings(args.run_dir, settings_of(args), FREE)
    if resuming:
        tell_changes(args)
    tokenizers = get_tokenizers(args, corpus, resuming)
    schedule = make_schedule(
        args.schedule,
        args.learning_rate,
        args.constant_epochs,
        args.warmup_steps,
        args.patience,
        args.monitor,
        lambda: run_directory.read_history(args.run_dir),
    )
    with strategy.scope():
        model, perplexity = make_model(args, tokenizers, schedule)
    args.chosen_batch_tokens = choose_batch_tokens(args, model, resuming)
    search = BeamSearch(
        args.beam_width, max_length=None, length_penalty=args.length_penalty
    )
    longest = longest_source(args, model)
    run_directory.write_record(args.run_dir, model, search, longest, settings_of(args))
    describe(args, corpus, tokenizers, model, strategy)

    greedy = Translator(
        model, tokenizers, GreedySearch(None), max_source_length=longest
    )
    try:
        train(args, corpus, greedy, perplexity, schedule)
    except KeyboardInterrupt:
        print("\nStopped and saved. The same command again goes on from here.")
        raise SystemExit(130) from None
    results = evaluate(args, corpus)
    print(NEXT.format(run_dir=args.run_dir))
    return results


def tell_changes(args) -> None:
    """Prints what will be trained otherwise than before."""
    before = run_directory.read_record(args.run_dir)["settings"]
    for name in ("learning_rate", "clip_norm"):
        if before.get(name) != (now := vars(args)[name]):
            print(f"{name} was {before.get(name)}, and is {now} from here on.")


def make_model(args, tokenizers, schedule) -> tuple:
    """The compiled model, and its metric that counts tokens."""
    model = PRESETS[args.preset].model(make_config(args, tokenizers))
    perplexity = Perplexity()
    optimizer = make_optimizer(
        args.optimizer,
        schedule.learning_rate,
        args.clip_norm,
        loss_scaling=args.precision == "mixed_float16",
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        ema_momentum=args.ema_momentum,
        weight_decay=args.weight_decay,
        beta_2=args.beta_2,
    )
    model.compile(
        optimizer,
        SequenceCrossentropy(args.label_smoothing, args.r_drop or 0.0),
        metrics=[perplexity, TokenAccuracy()],
        jit_compile=args.jit_compile,
    )
    return model, perplexity


def choose_batch_tokens(args, model, resuming: bool) -> int:
    """The tokens of a batch; the largest that fits is looked for once a run."""
    if args.batch_tokens != "auto":
        return args.batch_tokens
    if resuming:
        record = run_directory.read_record(args.run_dir)
        return record["settings"]["chosen_batch_tokens"]
    if args.strategy == "multiworker":
        raise ValueError(
            "Several machines must have batches of one size, which each would choose "
            "for itself; give a number. Received: --batch_tokens auto"
        )
    return largest_batch_tokens(model, args.max_length)


def train(args, corpus, translator, perplexity, schedule) -> None:
    """Runs `model.fit`, from where the run directory says that it was."""
    model, tokenizers = translator.model, translator.tokenizers
    history = run_directory.read_history(args.run_dir)
    if args.early_stopping and history:
        best, stale = best_so_far(history, args.monitor)
        if stale >= args.early_stopping:
            print(f"Training stopped early before, {args.monitor} {best:.4g}.")
            return
    checkpoints = Checkpoints(args.run_dir, args.save_steps)
    follow = FollowEpoch(checkpoints.restore(model))
    translation = make_evaluation(args, corpus, translator)
    sizes = {"batch_tokens": args.chosen_batch_tokens, "max_length": args.max_length}
    pairs = training_pairs(args, corpus)
    fit(
        model,
        follow.batches(
            lambda seed: training_batches(
                pairs,
                tokenizers,
                seed=seed,
                subword_sampling=args.subword_sampling,
                **sizes,
            ),
            seed=args.seed,
        ),
        args.epochs,
        checkpoints,
        validation_data=evaluation_batches(
            corpus.pairs("validation"), tokenizers, **sizes
        ),
        shuffle=False,  # the data shuffles itself
        callbacks=training_callbacks(
            args.run_dir,
            perplexity,
            first=[follow, *schedule.callbacks, translation],
            moving_average=args.ema_momentum > 0,
            last=[checkpoints],
            monitor=args.monitor,
            early_stopping=args.early_stopping,
            keep_epochs=args.keep_epochs,
        ),
        verbose="auto" if sys.stdout.isatty() else 2,
    )


def make_evaluation(args, corpus, translator) -> TranslationEvaluation:
    """The callback that translates validation sentences after each epoch."""
    sources, references = sentences(corpus, "validation", args.eval_sentences)
    run = run_directory.RunDirectory(args.run_dir)
    return TranslationEvaluation(
        translator,
        sources,
        references,
        tokenize=args.bleu_tokenize,
        log_dir=run.logs / "validation",
        pictures=run.pictures,
    )


def evaluate(args, corpus) -> dict:
    """Reloads the best weights and translates the held-out splits by beam search."""
    translator = run_directory.load(args.run_dir)
    translator.model.compile(loss=SequenceCrossentropy(), metrics=[Perplexity()])
    results = {}
    for split in corpus.splits:
        if split == "train":
            continue
        sources, references = sentences(corpus, split)
        translations = translator.translate(sources, progress=sys.stdout.isatty())
        score = bleu([t.text for t in translations], references, args.bleu_tokenize)
        batches = evaluation_batches(
            corpus.pairs(split),
            translator.tokenizers,
            args.chosen_batch_tokens,
            args.max_length,
        )
        logs = translator.model.evaluate(batches, verbose=0, return_dict=True)
        results[split] = {
            "sentences": len(sources),
            "bleu": score.score,
            "signature": score.signature,
            "perplexity": run_directory.json_number(logs["perplexity"]),
            "beam_width": args.beam_width,
        }
        print(f"{split:12} {score}, perplexity {logs['perplexity']:.2f}")
    run_directory.write_json(run_directory.RunDirectory(args.run_dir).results, results)
    return results


def get_tokenizers(args, corpus, resuming: bool) -> TokenizerPair:
    """Loads the run's tokenizers, or trains and saves them."""
    directory = run_directory.RunDirectory(args.run_dir).tokenizer
    if resuming:
        return TokenizerPair.load(directory)
    tokenizers = TokenizerPair.train(
        training_pairs(args, corpus), args.tokenizer, args.vocab_size, args.shared
    )
    tokenizers.save(directory)
    return tokenizers


def training_pairs(args, corpus) -> tf.data.Dataset:
    """The pairs to learn from."""
    pairs = corpus.pairs("train")
    return pairs.take(args.limit_examples) if args.limit_examples else pairs


def check_split(corpus, split: str) -> None:
    """Training needs it to tell good weights from bad."""
    if split not in corpus.splits:
        raise ValueError(
            f"{corpus.name} has no {split} split, which training needs to tell good "
            f"weights from bad. Received splits: {corpus.splits}"
        )


def sentences(corpus, split: str, limit: int = -1) -> tuple[list[str], list[str]]:
    """The sources and references of a held-out split, or of its beginning."""
    pairs = list(corpus.pairs(split).take(limit).as_numpy_iterator())
    sides = ([pair[side].decode() for pair in pairs] for side in ("source", "target"))
    return tuple(sides)


def make_config(args, tokenizers: TokenizerPair) -> typing.Any:
    """The preset's configuration, with what the flags change of it."""
    changes = {name: vars(args)[name] for name in config_flags() if name in args}
    config_class = PRESETS[args.preset].model.config_class
    known = {field.name for field in dataclasses.fields(config_class)}
    if strangers := sorted(changes.keys() - known):
        raise ValueError(
            f"The preset {args.preset} has no {', '.join(strangers)}; it has "
            f"{', '.join(sorted(known))}"
        )
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    config = configure(args.preset, *sizes, **changes)
    if config.tie_embeddings == "all" and not tokenizers.shared:
        raise ValueError(
            'tie_embeddings="all" needs one vocabulary for both sides: --shared. '
            "Received: --no-shared"
        )
    return config


def longest_source(args, model) -> int:
    """Longest source to translate: beyond those trained on, if the model can."""
    positions = getattr(model.config, "max_source_length", None)
    return positions - 1 if positions else 2 * args.max_length


def describe(args, corpus, tokenizers, model, strategy) -> None:
    """Prints what is about to be trained, on what."""
    sizes = {split: count(corpus.pairs(split)) for split in corpus.splits}
    if args.limit_examples:
        sizes["train"] = min(sizes["train"], args.limit_examples)
    sizes = ", ".join(f"{split} {size:,}" for split, size in sizes.items())
    words = f"{tokenizers.source.vocab_size:,} {args.source}, "
    words += f"{tokenizers.target.vocab_size:,} {args.target}"
    words += " (shared)" if tokenizers.shared else ""
    epochs = len(run_directory.read_history(args.run_dir))
    print(
        f"corpus       {corpus.name}, {args.source} → {args.target}: {sizes} pairs\n"
        f"vocabulary   {words}, {args.tokenizer}\n"
        f"model        {args.preset}: {model.count_params():,} parameters\n"
        f"hardware     {strategy.num_replicas_in_sync} replica(s), {args.precision}\n"
        f"batches      {args.chosen_batch_tokens:,} tokens\n"
        f"run          {args.run_dir}"
        + (f", going on after epoch {epochs}" if epochs else ""),
        flush=True,
    )


def count(pairs: tf.data.Dataset) -> int:
    """Number of pairs, counted where it is not known."""
    number = int(pairs.cardinality())
    if number < 0:
        blocks = pairs.batch(8192).map(lambda block: tf.size(block["source"]))
        number = int(blocks.reduce(0, lambda total, size: total + size))
    return number


def settings_of(args) -> dict:
    """The flags as they go into run.json."""
    plain = (int, float, str, bool, type(None))
    return {
        name: value if isinstance(value, plain) else str(value)
        for name, value in vars(args).items()
        if name != "run_dir"
    }


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
    flag("--tokenizer", choices=list(TOKENIZERS), default="sentencepiece")
    flag("--vocab_size", type=int, default=50_000, help="of each side")
    flag(
        "--shared",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="one vocabulary for both sides",
    )
    flag("--subword_sampling", type=float, help="alpha of random splits, such as 0.1")
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
    flag("--epochs", type=int, default=12)
    flag("--optimizer", choices=list(OPTIMIZERS), default="sgd")
    flag("--learning_rate", type=float, help=f"default: {LEARNING_RATES}")
    flag("--schedule", choices=list(SCHEDULES), default="halving")
    flag("--constant_epochs", type=int, default=8, help="epochs before the halving")
    flag("--warmup_steps", type=int, default=4000, help="for inverse_sqrt")
    flag("--patience", type=int, default=2, help="stale epochs that plateau halves at")
    flag("--label_smoothing", type=float, default=0.0)
    flag("--beta_2", type=float, help="of Adam, default: 0.999")
    flag("--r_drop", type=float, help="alpha of R-Drop, such as 5")
    flag("--weight_decay", type=float, help="of matrices, such as 0.01")
    flag("--clip_norm", type=float, default=5.0, help="0: no clipping")
    flag("--gradient_accumulation_steps", type=int, default=1, help="batches a step")
    flag("--ema_momentum", type=float, default=0.0, help="of the weights' average")
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
    flag("--length_penalty", type=float, default=0.0)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
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
    for name in ("max_length", "save_steps", "eval_sentences", "beam_width"):
        check_size(f"--{name}", vars(args)[name])
    check_size("--limit_examples", args.limit_examples, optional=True)
    if args.batch_tokens != "auto":
        check_size("--batch_tokens", args.batch_tokens)
    for name in ("r_drop", "weight_decay"):
        check_not_negative(f"--{name}", vars(args)[name] or 0)
    if args.r_drop and args.jit_compile:
        raise ValueError(f"--r_drop needs --no-jit_compile. Received: {args.r_drop}")
    if args.subword_sampling and args.tokenizer != "sentencepiece":
        raise ValueError(
            "--subword_sampling needs --tokenizer sentencepiece. "
            f"Received: {args.tokenizer}"
        )
    return args


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


NEXT = """
Translate:  python -c 'import keras_luong; \
print(keras_luong.load("{run_dir}").translate(["..."])[0].text)'
Export:     python export/to_saved_model.py {run_dir} models/{run_dir.name}
Look:       tensorboard --logdir {run_dir}/logs"""

if __name__ == "__main__":
    main()
