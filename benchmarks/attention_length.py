"""Time per query of local and global attention, by the length of the source.

Local attention gathers 2D + 1 positions, so its time should not depend on the length;
global attention scores every position. The source is prepared beforehand, as in any
decoder, and each time is the median of rounds in which the lengths take turns.

    python benchmarks/attention_length.py
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import tensorflow as tf

from keras_luong import LocalAttention, LuongAttention


def main() -> None:
    """Measures, prints a table, the flatness and the crossing point."""
    args = parse()
    layers = {
        "global": LuongAttention(args.score),
        "local-m": LocalAttention(args.window, "monotonic", args.score),
        "local-p": LocalAttention(args.window, "predictive", args.score),
    }
    runs = {
        (name, length): attender(layer, length, args)
        for name, layer in layers.items()
        for length in args.lengths
    }
    times = median_times(runs, args.rounds)
    per_query = args.batch * args.queries / 1e6  # microseconds
    print(f"microseconds per query; {args}\n")
    print(f"{'S':>6}" + "".join(f"{name:>10}" for name in layers))
    for length in args.lengths:
        cells = (times[name, length] / per_query for name in layers)
        print(f"{length:6}" + "".join(f"{cell:10.2f}" for cell in cells))
    for name in layers:
        row = [times[name, length] for length in args.lengths]
        print(f"{name}: largest over smallest {max(row) / min(row):.2f}")
    for name in list(layers)[1:]:
        print(f"{name} is faster than global {crossing(times, name, args.lengths)}")


def attender(layer, length: int, args):
    """A function that attends once from every query, in a graph."""
    rng = np.random.default_rng(0)
    shape = (args.batch, length, args.units)
    source = rng.normal(size=shape).astype("float32")
    query = rng.normal(size=(args.batch, args.queries, args.units)).astype("float32")
    if not layer.built:
        layer.build(query.shape, source.shape)
    everywhere = np.ones(shape[:2], bool)
    memory = tf.nest.map_structure(tf.constant, layer.prepare(source, everywhere))
    # Positions all over the source, as a decoder's are.
    positions = np.linspace(0, length - 1, args.queries, dtype="int32")[None]
    query, positions = tf.constant(query), tf.constant(positions)

    @tf.function
    def attend(query, positions, memory):
        return layer.attend(query, memory, positions)[0]

    return lambda: attend(query, positions, memory)


def median_times(runs: dict, rounds: int) -> dict:
    """Seconds of each function: the median of rounds that all take part in."""
    for run in runs.values():
        run()  # traces
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            run()  # its memory is in the caches again, as in a loop over time
            start = time.perf_counter()
            run().numpy()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def crossing(times: dict, name: str, lengths: list[int]) -> str:
    """From which length on a layer is faster than global attention."""
    faster = [n for n in lengths if times[name, n] < times["global", n]]
    return f"from S = {faster[0]} on" if faster else f"nowhere up to S = {lengths[-1]}"


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--score", default="general")
    parser.add_argument("--window", type=int, default=10, help="D")
    lengths = [100 * 2**i for i in range(7)]
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, help="S")
    parser.add_argument("--units", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--queries", type=int, default=32, help="per sentence")
    parser.add_argument("--rounds", type=int, default=100)
    return parser.parse_args()


if __name__ == "__main__":
    main()
