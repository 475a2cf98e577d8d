"""Trains a translation model, by default as Luong et al. (2015) did on WMT'14.

It does what `keras-luong train` does, with the same options, one part after the other:
corpus, tokenizers, model, strategy, `fit`, search, export. The same command again goes
on where an interrupted run stopped. Some commands:

    python examples/train_wmt.py --run_dir runs/wmt14          # the paper's, en → de
    python examples/train_wmt.py --run_dir runs/mine --data my/corpus \
        --source en --target fr --preset small --vocab_size 8000 \
        --optimizer adam --epochs 20
    python examples/train_wmt.py --help
"""

from __future__ import annotations

import sys
from pathlib import Path

import keras_luong as kl
from keras_luong.cli.main import main as run_command
from keras_luong.config.training import TrainingConfig
from keras_luong.runs import train
from keras_luong.runs.description import describe
from keras_luong.runs.opening import opened, own_directory
from keras_luong.training.strategies import make_strategy, together


def main(argv: list[str] | None = None) -> None:
    """Reads the command line, and trains."""
    words = sys.argv[1:] if argv is None else argv
    command = ["train", "--preset", "luong2015-global-general", *words]
    run_command(command, run=lambda options: train_translator(*options[:2]))


def train_translator(config: TrainingConfig, run_dir: Path) -> kl.Translator:
    """From a corpus to a translator that a server can run."""
    # The devices come first: TensorFlow must know them before it does anything else.
    strategy = make_strategy(config.strategy)
    train.set_up(config)  # seeds and precision
    path = own_directory(run_dir, strategy)
    # A directory has one training at a time; several machines begin and end together.
    with opened(config, path) as run, together(strategy):
        # Pairs of sentences → pieces of words → batches of about the same length.
        tokenizers = train.get_tokenizers(run)
        schedule = train.schedule_of(run)
        with strategy.scope():  # weights are made on every device
            model, perplexity = train.compiled_model(run, tokenizers, schedule)
        batch_tokens = train.record(run, tokenizers, model)
        describe(run, tokenizers, model, strategy)
        # `model.fit`, with checkpoints, and validation sentences after each epoch.
        train.fit_model(run, tokenizers, model, perplexity, schedule, batch_tokens)
        # The best weights, and a beam search over the held-out splits.
        train.evaluate(run)
    translator = kl.load(run.path)
    exported = kl.export_saved_model(
        translator, run.path / "saved_model", overwrite=True
    )
    print(f"SavedModel, for TensorFlow Serving: {exported}")
    return translator


if __name__ == "__main__":
    main()
