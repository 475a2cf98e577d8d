"""From the command to the first step: how long a training reads its text before it.

Beside it what cannot be saved: SentencePiece's training, and tokenizing the text once.
Both are of the same text and settings, each in a process of its own, one after the
other; peak memory is that of the process.

    python benchmarks/first_step.py CORPUS --source en --target de --pairs 1000000

CORPUS is a folder of text files; its training pairs, joined at random to pairs of two
sentences, make a corpus of any size, into --out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

#: What takes time before the first step: phase → functions, by module and name.
PHASES = {
    "survey": [("opening", "read_corpus"), ("description", "read_corpus")],
    "vocabulary": [("train", "get_tokenizers")],
    "tokens": [("train", "count_texts")],
}
RUN = "run"  # the run directory, beside the corpus


def main() -> None:
    """Writes the corpora, measures, and prints a table."""
    args = parse()
    if args.measure:
        return measure(args)
    print("| pairs | phase | seconds |\n|---:|---|---:|")
    for pairs in args.pairs:
        folder = args.out / str(pairs)
        if not folder.exists():
            write_corpus(args.corpus, folder, pairs, args.source, args.target)
        found = {}
        for what in ("training", "needed"):
            words = ["--measure", what, "--pairs", str(pairs), "--out", str(args.out)]
            words += ["--source", args.source, "--target", args.target]
            command = [sys.executable, __file__, str(args.corpus), *words]
            output = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True
            )
            found[what] = json.loads(output.stdout.splitlines()[-1])
            for phase, seconds in found[what].items():
                print(f"| {pairs:,} | {what}: {phase} | {seconds:.2f} |", flush=True)
        ratio = found["training"]["first step"] / found["needed"]["all"]
        print(f"| {pairs:,} | ratio of the two | {ratio:.2f} |", flush=True)


def write_corpus(corpus: Path, folder: Path, pairs: int, *languages: str) -> None:
    """Writes pairs of two sentences each, and the corpus's own validation pairs."""
    rng = random.Random(0)
    folder.mkdir(parents=True)
    sides = [(corpus / f"train.{x}").read_text("utf-8").splitlines() for x in languages]
    files = [open(folder / f"train.{x}", "w", encoding="utf-8") for x in languages]
    for _ in range(pairs):
        one, other = rng.randrange(len(sides[0])), rng.randrange(len(sides[0]))
        for file, side in zip(files, sides, strict=True):
            file.write(f"{side[one]} {side[other]}\n")
    for file in files:
        file.close()
    for language in languages:
        (found,) = corpus.glob(f"val*.{language}")
        (folder / f"val.{language}").write_bytes(found.read_bytes())


def measure(args: argparse.Namespace) -> None:
    """Measures one of both in this process, and prints it as JSON."""
    folder = args.out / str(args.pairs[0])
    phases = needed if args.measure == "needed" else first_step
    seconds = dict(phases(folder, args.source, args.target))
    seconds["GB of memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps(seconds))


def first_step(folder: Path, source: str, target: str) -> Iterator[tuple[str, float]]:
    """The phases of a training until its first batch is there."""
    start = time.perf_counter()
    from keras_luong.config.auto import AutoTraining
    from keras_luong.runs import description, opening, train
    from keras_luong.runs.run import RunDirectory

    spent = dict.fromkeys(PHASES, 0.0)
    modules = {"opening": opening, "description": description, "train": train}

    def timed(function, phase):
        def run(*args, **options):
            begin = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                spent[phase] += time.perf_counter() - begin

        return run

    for phase, places in PHASES.items():
        for module, name in places:
            function = getattr(modules[module], name)
            setattr(modules[module], name, timed(function, phase))

    class FirstStep(Exception):
        pass

    def fit(model, batches, *args, **options):
        next(iter(batches))
        raise FirstStep

    train.fit = fit
    settings = {"seed": 1, "epochs": 1}
    training = AutoTraining(str(folder), source, target, given=settings)
    shutil.rmtree(folder / RUN, ignore_errors=True)
    try:
        train.train(training, folder / RUN)
    except FirstStep:
        yield from spent.items()
        yield "first step", time.perf_counter() - start
    ids = RunDirectory(folder / RUN).tokens
    yield "GB of ids on disk", sum(x.stat().st_size for x in ids.iterdir()) / 1e9


def needed(folder: Path, source: str, target: str) -> Iterator[tuple[str, float]]:
    """SentencePiece's training on the text, and one pass of tokenizing it."""
    import tensorflow as tf

    import keras_luong as kl
    from keras_luong.config.training import OF_PIECES, TrainingConfig
    from keras_luong.runs.run import read_record

    # As the training had it, whose vocabulary was chosen by the corpus.
    settings = read_record(folder / RUN)["settings"]
    config = TrainingConfig(
        **{
            name: settings[name]
            for name in TrainingConfig.__dataclass_fields__
            if name in settings
        }
    )
    files = [str(folder / f"train.{x}") for x in (source, target)]
    sides = tf.data.Dataset.zip(tuple(map(tf.data.TextLineDataset, files)))
    pairs = sides.map(lambda s, t: {"source": s, "target": t})
    options = {name: getattr(config, name) for name in OF_PIECES}
    start = time.perf_counter()
    tokenizers = kl.TokenizerPair.train(
        pairs, vocab_size=config.vocab_size, shared=config.shared, **options
    )
    trained = time.perf_counter()
    yield "vocabulary", trained - start
    ids = pairs.batch(1024).map(
        lambda x: (
            tokenizers.source.encode(x["source"]).flat_values,
            tokenizers.target.encode(x["target"]).flat_values,
        ),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    for _ in ids:
        pass
    yield "tokens", time.perf_counter() - trained
    yield "all", time.perf_counter() - start


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    sizes = [10_000, 100_000, 1_000_000, 4_500_000]
    parser.add_argument("--pairs", type=int, nargs="+", default=sizes)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--measure", choices=["training", "needed"], help="alone")
    return parser.parse_args()


if __name__ == "__main__":
    main()
