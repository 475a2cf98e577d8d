"""Target tokens a second that come out of the input pipeline alone, without a model.

Ids are shuffled, read and put into batches, as in `keras-luong train`: cut to their
longest rows, as on a CPU, and of few shapes, as on a GPU. A training that is faster
than that waits for its input. Prints one JSON line for each, with the tokens a
second, and those a second of one core, which other work on the machine changes less.

    python benchmarks/input_speed.py m30k --source de --target en
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_luong as kl
from keras_luong.text import load_corpus, training_batches
from keras_luong.text.token_store import count_pairs


def main() -> None:
    """Measures and prints."""
    args = parse()
    pairs = load_corpus(args.data, args.source, args.target).pairs("train")
    pairs = pairs.take(args.limit_examples)
    tokenizers = kl.TokenizerPair.train(pairs, vocab_size=args.vocab_size, shared=True)
    counts = count_pairs(pairs, tokenizers, max_length=50)
    words = sum(target * n for (_, target), n in counts.lengths.items())
    read = words + sum(source * n for (source, _), n in counts.lengths.items())
    few = counts.batch_shapes(args.batch_tokens)
    kinds = {
        name: training_batches(pairs, tokenizers, args.batch_tokens, shapes=fixed)
        for name, fixed in (("cut", None), ("few", few))
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    of_cores: dict[str, list[float]] = {name: [] for name in kinds}
    positions, shapes = {}, {}
    for _ in range(args.rounds):
        for name, batches in kinds.items():  # in turns
            start, start_of_cores = time.perf_counter(), time.process_time()
            sizes = [
                (*inputs["source"].shape, labels.shape[1])
                for inputs, labels, _ in batches
            ]
            seconds[name].append(time.perf_counter() - start)
            of_cores[name].append(time.process_time() - start_of_cores)
            positions[name] = sum(rows * (s + t) for rows, s, t in sizes)
            shapes[name] = len(set(sizes))
    for name in kinds:
        line = {
            "batches": name,
            "shapes": shapes[name],
            "positions_per_token": round(positions[name] / read, 4),
            "target_tokens_per_s": round(words / statistics.median(seconds[name])),
            "target_tokens_per_core_s": round(
                words / statistics.median(of_cores[name])
            ),
            "cpus": os.cpu_count(),
        }
        print(json.dumps(line), flush=True)


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", help="as keras-luong train takes it")
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--vocab_size", type=int, default=8000)
    parser.add_argument("--batch_tokens", type=int, default=4096)
    parser.add_argument("--limit_examples", type=int, default=-1, help="-1: all")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each")
    return parser.parse_args()


if __name__ == "__main__":
    main()
