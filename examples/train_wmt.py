"""Trains a translation model, by default as Luong et al. (2015) did on WMT'14.

The same command again goes on where an interrupted run stopped. Some commands:

    python examples/train_wmt.py --run_dir runs/wmt14          # the paper's, en → de
    python examples/train_wmt.py --run_dir runs/mine --data my/corpus \
        --source en --target fr --preset small --vocab_size 8000 \
        --optimizer adam --epochs 20
    python examples/train_wmt.py --help
"""

from __future__ import annotations

import sys
import warnings

import keras
import tensorflow as tf

from keras_luong import files
from keras_luong.cli.flags import free, make_config, parse, settings_of
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.greedy import GreedySearch
from keras_luong.evaluation.bleu import bleu
from keras_luong.models.presets import PRESETS
from keras_luong.runs import directory as run_directory
from keras_luong.runs import lock as run_lock
from keras_luong.runs.callbacks import training_callbacks
from keras_luong.runs.checkpoints import Checkpoints, FollowEpoch, fit
from keras_luong.runs.validation import TranslationEvaluation
from keras_luong.text import load_corpus
from keras_luong.text.batches import evaluation_batches, training_batches
from keras_luong.text.corpus import count, sentences
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.training.batch_size import largest_batch_tokens
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import Perplexity, TokenAccuracy
from keras_luong.training.monitors import best_so_far
from keras_luong.training.optimizers import make_optimizer
from keras_luong.training.schedules import make_schedule
from keras_luong.training.strategies import make_strategy, worker_index
from keras_luong.translation.translator import Translator


def main(argv: list[str] | None = None) -> dict:
    """Trains, evaluates, and returns what it writes to `results.json`."""
    args = parse(argv, __doc__)
    # Epochs end when their data does; Keras would rather know beforehand.
    warnings.filterwarnings("ignore", message="Your input ran out of data")
    strategy = make_strategy(args.strategy)  # before anything else of TensorFlow
    keras.utils.set_random_seed(args.seed)
    keras.config.set_dtype_policy(args.precision)
    if worker_index(strategy):  # each worker writes to a directory of its own
        args.run_dir = args.run_dir / "workers" / str(worker_index(strategy))
    corpus = load_corpus(args.data, args.source, args.target)
    check_split(corpus, "validation")
    with run_lock.owned(args.run_dir):
        return run(args, strategy, corpus)


def run(args, strategy, corpus) -> dict:
    """What `main` does once the run directory is its own."""
    resuming = run_directory.check_settings(args.run_dir, settings_of(args), free(args))
    if resuming:
        tell_changes(args)
    else:
        check_batch_tokens(args)
    tokenizers = get_tokenizers(args, corpus, resuming)
    schedule = make_schedule(
        args.schedule,
        args.learning_rate,
        epochs=args.epochs,
        constant_epochs=args.constant_epochs,
        warmup_steps=args.warmup_steps,
        patience=args.patience,
        monitor=args.monitor,
        history=lambda: run_directory.read_history(args.run_dir),
    )
    with strategy.scope():
        model, perplexity = make_model(args, tokenizers, schedule)
    if resuming:
        run_directory.check_config(args.run_dir, model.config)
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


def check_batch_tokens(args) -> None:
    """Refuses to look for a size that a run on several machines has not yet."""
    if args.batch_tokens == "auto" and args.strategy == "multiworker":
        raise ValueError(
            "Several machines must have batches of one size, which each would choose "
            "for itself; give a number. Received: --batch_tokens auto"
        )


def tell_changes(args) -> None:
    """Prints what will be trained or translated otherwise than before."""
    record = run_directory.read_record(args.run_dir)
    before = {**record["settings"], **record["search"]}  # which may have been tuned
    names = ["learning_rate", "clip_norm", "beam_width", "length_penalty"]
    if args.schedule == "cosine":  # which ends where they do
        names.append("epochs")
    for name in names:
        if before.get(name) != (now := vars(args)[name]):
            print(f"{name} was {before.get(name)}, and is {now} from here on.")


def make_model(args, tokenizers, schedule) -> tuple:
    """The compiled model, and its metric that counts tokens."""
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    model = PRESETS[args.preset].model(make_config(args, *sizes))
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
        SequenceCrossentropy(args.label_smoothing, r_drop=args.r_drop or 0.0),
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
    if len(history) < args.epochs:  # what is known is of other weights
        run_directory.RunDirectory(args.run_dir).results.unlink(missing_ok=True)
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
            "perplexity": files.json_number(logs["perplexity"]),
            "beam_width": translator.search.beam_width,
            "length_penalty": translator.search.length_penalty,
        }
        print(f"{split:12} {score}, perplexity {logs['perplexity']:.2f}")
    files.write_json(run_directory.RunDirectory(args.run_dir).results, results)
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


NEXT = """
Translate:  python -c 'import keras_luong; \
print(keras_luong.load("{run_dir}").translate(["..."])[0].text)'
Export:     python export/to_saved_model.py {run_dir} models/{run_dir.name}
Look:       tensorboard --logdir {run_dir}/logs"""

if __name__ == "__main__":
    main()
