"""The life of a training, from a corpus to the scores of its best weights.

`train` runs it; its parts follow in the order in which they come.
`examples/train_wmt.py` shows in a hundred lines what becomes of layers.
"""

from __future__ import annotations

import functools
import sys
import warnings
from pathlib import Path
from typing import Any

import keras

from keras_luong.config.auto import Training
from keras_luong.files import remove
from keras_luong.progress import telling
from keras_luong.runs.callbacks import (
    EpochBar,
    TellCompiling,
    stopped_early,
    training_callbacks,
)
from keras_luong.runs.checkpoints import Checkpoints, check_history
from keras_luong.runs.description import (
    TimeEstimate,
    choose_by_corpus,
    count_texts,
    describe,
    store_tokens,
)
from keras_luong.runs.epochs import FollowEpoch, fit
from keras_luong.runs.machines import Machines
from keras_luong.runs.opening import Run, get_tokenizers, open_run, own_directory
from keras_luong.runs.run import RunDirectory, read_history, write_record
from keras_luong.runs.start import describe_start, inherit_weights, make_model
from keras_luong.runs.validation import evaluate, final_search, validation_callback
from keras_luong.text.batches import BatchShape, EpochShape, evaluation_batches
from keras_luong.text.epoch_batches import stored_batches
from keras_luong.text.token_store import TokenStore
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.training.batch_size import largest_batch_tokens
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import Perplexity, TokenAccuracy
from keras_luong.training.optimizers import make_optimizer
from keras_luong.training.schedules import Schedule, make_schedule
from keras_luong.training.strategies import make_strategy, together


def train(config: Training, run_dir: str | Path) -> dict[str, Any]:
    """Trains a translator, or goes on where its training stopped.

    Args:
        config: What is trained, on what, and how, a `TrainingConfig`; of an
            `AutoTraining` the corpus decides what is not given.
        run_dir: The run directory, a new one or that of a run of the same settings.

    Returns:
        What it writes to `results.json`: BLEU and perplexity of the held-out splits.

    Raises:
        ValueError, TypeError: Settings that cannot be, a spoilt corpus, or a directory
            with another run.
        OSError: Another process trains there, or the disk is full.
        RuntimeError: Another of several machines was lost.
        KeyboardInterrupt: It was stopped, and is saved.

    Example:
        >>> from keras_luong.config.training import TrainingConfig
        >>> from keras_luong.runs.train import train
        >>> config = TrainingConfig.from_preset(
        ...     "small", data="my/corpus", tokenizer="word", units=8, epochs=1
        ... )
        >>> results = train(config, "runs/new")
        corpus       corpus, en → de: train 3, validation 2, test 1 pairs
        ...
        >>> sorted(results)
        ['test', 'validation']
    """
    # 1. The devices, before anything else of TensorFlow.
    strategy = make_strategy(config.strategy)
    path = own_directory(run_dir, strategy)
    # Epochs end when their data does; Keras would rather know beforehand.
    warnings.filterwarnings("ignore", message="Your input ran out of data")
    # 2. Several machines begin and end together; the first one prepares for all.
    with together(strategy), Machines(strategy, path) as machines:
        told = machines.wait()
        # 3. The settings that the corpus chooses; seeds and precision.
        config, own = choose_by_corpus(config, path, told and told.settings)
        machines.check(config, told)
        keras.utils.set_random_seed(config.seed)
        keras.config.set_dtype_policy(config.precision)
        # 4. A directory of its own.
        with open_run(config, path, own, told and told.texts) as run:
            # 5. The tokenizers, the model, and how it is trained.
            tokenizers = get_tokenizers(run)
            machines.tell(run)
            with strategy.scope():
                model, perplexity, schedule = compile_model(run, tokenizers)
            # 6. What the run is, written down and said.
            batch_tokens = record(run, machines, tokenizers, model)
            describe(run, tokenizers, model, strategy)
            # 7. `model.fit`, from where the training was.
            fit_model(
                run, machines, tokenizers, model, perplexity, schedule, batch_tokens
            )
            # 8. The best weights, and a beam search over the held-out splits.
            results = evaluate(run)
            remove(RunDirectory(path).tokens)
            return results


def compile_model(
    run: Run, tokenizers: TokenizerPair
) -> tuple[keras.Model, Perplexity, Schedule]:
    """The model, ready to be trained; its metric that counts tokens; its schedule."""
    config = run.config
    model = make_model(config, tokenizers)
    schedule = make_schedule(
        config.schedule,
        float(config.learning_rate or 0),  # TrainingConfig has filled it in
        epochs=config.epochs,
        constant_epochs=config.constant_epochs,
        warmup_steps=config.warmup_steps,
        patience=config.patience,
        monitor=config.monitor,
        history=lambda: read_history(run.path),
    )
    optimizer = make_optimizer(
        config.optimizer,
        schedule.learning_rate,
        config.clip_norm,
        loss_scaling=config.precision == "mixed_float16",
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        ema_momentum=config.ema_momentum,
        weight_decay=config.weight_decay,
        beta_2=config.beta_2,
    )
    perplexity = Perplexity()
    model.compile(
        optimizer,
        SequenceCrossentropy(config.label_smoothing),
        metrics=[perplexity, TokenAccuracy()],
        jit_compile=config.jit_compile,
    )
    return model, perplexity, schedule


def record(
    run: Run, machines: Machines, tokenizers: TokenizerPair, model: keras.Model
) -> int:
    """Writes `run.json`, and returns the tokens of a batch.

    A new run has by then what it starts from, and whatever refuses it has come before.
    The largest batch that fits is looked for once a run, and its text is counted once.
    """
    config, batch_tokens = run.config, run.config.batch_tokens
    search, before, start = final_search(config), None, None
    # 1. What a run that goes on knows, or what is counted of a new one.
    if run.resuming:
        check_history(run.path)
        before = run.read_record()
        search = final_search(config, before["search"]["early_stopping"])
        if batch_tokens == "auto":
            batch_tokens = before["settings"]["chosen_batch_tokens"]
        start = before["came_from"]
    elif batch_tokens == "auto":
        batch_tokens = largest_batch_tokens(model, config.max_length)
    texts = machines.share(
        lambda: (
            before["corpus"]
            if before
            else count_texts(run, tokenizers, int(batch_tokens))
        )
    )
    texts["train"]["files"] = run.texts["train"]["files"]  # where this machine has them
    if not before and config.init_from is not None:
        start = describe_start(config.init_from)
        inherit_weights(model, tokenizers, config.init_from, start)
    # 2. Sources beyond the length of those trained on are translated, if the model can.
    positions = getattr(model.config, "max_source_length", None)
    write_record(
        run.path,
        model,
        search,
        max_source_length=positions - 1 if positions else 2 * config.max_length,
        settings={**config.settings(), "chosen_batch_tokens": batch_tokens},
        sample=run.sample,
        corpus=texts,
        came_from=start,
    )
    return int(batch_tokens)


def fit_model(
    run: Run,
    machines: Machines,
    tokenizers: TokenizerPair,
    model: keras.Model,
    perplexity: Perplexity,
    schedule: Schedule,
    batch_tokens: int,
) -> None:
    """Runs `model.fit`, from where the run directory says that it was."""
    config, saved = run.config, run.read_record()
    # 1. The weights: of the last checkpoint, or of the run to start from.
    checkpoints = Checkpoints(run.path, config.save_steps)
    start = saved["came_from"]
    if start and run.resuming and not checkpoints.exist():
        inherit_weights(model, tokenizers, str(config.init_from), start)
    epoch, step = started_at = checkpoints.restore(model)
    # 2. Whether there is anything to do. What is known of later epochs is of weights
    # that are trained again. All machines have this checkpoint, so that all stop here
    # or none.
    history = [x for x in read_history(run.path) if x["epoch"] <= epoch]
    if stopped_early(history, config.monitor, config.early_stopping):
        return
    if run.resuming:
        _tell_position(epoch, step)
    if len(history) < config.epochs:  # what is known is of other weights
        RunDirectory(run.path).results.unlink(missing_ok=True)
    if epoch >= config.epochs:
        return
    # 3. The batches of each epoch.
    counted = saved["corpus"]["train"]
    fixed = counted.get("batch_shapes")  # of runs that began on a GPU
    if fixed is not None:  # each replica has as many rows
        replicas = model.distribute_strategy.num_replicas_in_sync
        fixed = [BatchShape(-(-n // replicas) * replicas, s, t) for n, s, t in fixed]
    sizes = {"batch_tokens": batch_tokens, "max_length": config.max_length}
    follow = FollowEpoch(started_at)
    batches = epochs_of(run, machines, tokenizers, follow, counted, fixed, sizes)
    pairs = run.corpus.pairs("validation")
    # 4. The training.
    steps = counted["steps"] * config.gradient_accumulation_steps
    callbacks = training_callbacks(
        run.path,
        perplexity,
        first=[
            # At an epoch's end, before anything else is written.
            keras.callbacks.LambdaCallback(on_test_begin=checkpoints.check_place),
            *([TellCompiling(len(fixed))] if fixed else []),
            follow,
            *schedule.callbacks,
            validation_callback(run, tokenizers, model),
            TimeEstimate(config, steps),
        ],
        moving_average=config.ema_momentum > 0,
        last=[checkpoints, EpochBar(steps, started_at)],
        monitor=config.monitor,
        early_stopping=config.early_stopping,
        keep_epochs=config.keep_epochs,
    )
    fit(
        model,
        batches,
        config.epochs,
        checkpoints,
        validation_data=evaluation_batches(pairs, tokenizers, **sizes),
        shuffle=False,  # the data shuffles itself
        callbacks=callbacks,
        verbose="auto" if sys.stdout.isatty() else 2,
    )


def epochs_of(
    run: Run,
    machines: Machines,
    tokenizers: TokenizerPair,
    follow: FollowEpoch,
    counted: dict[str, Any],
    fixed: list[BatchShape] | None,
    sizes: dict[str, int],
) -> Any:
    """A dataset for `fit` whose every iteration is the rest of an epoch."""
    config = run.config
    folder = machines.tokens(counted["ids"])
    if not folder.exists():  # on another disk, or of a run that had ended
        with telling("Tokenizing the corpus"):
            store_tokens(run, tokenizers)
    store = TokenStore(folder, tokenizers, config.subword_sampling)
    of_epoch = functools.partial(
        stored_batches,
        store,
        **sizes,
        shape=EpochShape(counted["passes"], counted["parts"]),
        seed=config.seed,
        part=machines.part,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        shapes=fixed,
    )
    return machines.distributed(follow.batches(of_epoch))


def _tell_position(epoch: int, step: int) -> None:
    """Says where a training goes on that was begun before."""
    if step:
        print(f"Going on from step {step:,} of epoch {epoch + 1}.")
    elif epoch:
        print(f"Going on after epoch {epoch}.")
    else:
        print("Going on from the beginning: nothing was saved yet.")
