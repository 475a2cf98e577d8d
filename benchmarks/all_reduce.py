"""Where training on several machines stops to pay: the cost of summing gradients.

Every worker has a batch of its own of the same size, and after each step all workers
sum their gradients by a ring all-reduce, while nothing is computed:

    step of N workers = step of one + 2 (N - 1) / N · bytes / bandwidth
                                    + 2 (N - 1) · latency · all-reduces a step

The efficiency is what is left of N times the speed of one. The bytes are those of the
model, the step's time that of this machine or of a run; networks are given. Prints a
table in Markdown.

    python benchmarks/all_reduce.py --shape 64,30,30,8000,512,512,2
    python benchmarks/all_reduce.py --run_dir runs/mine --gbits 1 10 --latency_us 100
    python benchmarks/all_reduce.py --step_seconds 0.05      # of a faster device
    python benchmarks/all_reduce.py --measure                # is the formula true?

`--measure` trains with two processes on this machine, fits bandwidth and latency to
all-reduces of other sizes, and compares what follows with what the gradient and the
whole step take.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from compare_train import QUIET, run
from train_step import batch_of, compiled, timed

import keras_luong as kl
from keras_luong.runs.run import read_history, read_record
from keras_luong.training.strategies import make_strategy

WORKERS = 1, 2, 4, 8, 16, 32, 64
#: All-reduces of a step of `fit`: the gradient, and figures of a few bytes that the
#: progress shows. `--measure` counts them.
ALL_REDUCES = 3
MOST_WORKERS = 1_000_000


class Network(NamedTuple):
    """What moves the gradients: bytes a second, seconds a message."""

    bandwidth: float
    latency: float

    def seconds(self, workers: int, size: float, all_reduces: int = 1) -> float:
        """Of ring all-reduces by so many workers, of `size` bytes altogether."""
        moved = 2 * (workers - 1) / workers * size / self.bandwidth
        return moved + 2 * (workers - 1) * self.latency * all_reduces


class Gradient(NamedTuple):
    """What is summed over the workers in a step, in bytes.

    Attributes:
        dense: As tensors, which is how TensorFlow sums it here.
        embeddings: The part that is of embeddings, as tensors.
        rows: The same part as the rows of one worker's words, each with its number.
    """

    dense: int
    embeddings: int
    rows: int

    def workers_for_rows(self) -> float:
        """From how many workers on rows, gathered from all, are more than tensors."""
        return 2 * self.embeddings / self.rows if self.rows else 0.0


def main() -> None:
    """Prints what a number of workers would take."""
    args = parse()
    if args.worker:
        return be_a_worker(args.sizes, json.loads(args.changes), args.rounds)
    gradient, step, whence = of_run(args.run_dir) if args.run_dir else of_shape(args)
    step = args.step_seconds or step
    if args.step_seconds:
        whence = "as given"
    print(f"Gradient: {gradient.dense / 1e6:,.1f} MB a step, as tensors.")
    if gradient.rows:
        print(
            f"{gradient.embeddings / 1e6:,.1f} MB of it are embeddings'. As rows they "
            f"are {gradient.rows / 1e6:,.1f} MB a worker: less to move for fewer than "
            f"{gradient.workers_for_rows():,.1f} workers."
        )
    print(f"Step: {step * 1000:,.1f} ms, {whence}.\n")
    networks = [Network(gbit * 1e9 / 8, args.latency_us * 1e-6) for gbit in args.gbits]
    print("\n".join(table(gradient.dense, step, networks, args.workers)))
    if args.measure:
        print("\n" + measured(args))


def table(
    size: float, step: float, networks: list[Network], workers: list[int]
) -> list[str]:
    """Step time and efficiency by number of workers, a column a network."""
    names = [f"{net.bandwidth * 8 / 1e9:g} Gbit/s" for net in networks]
    rows = [["workers", *names], ["---:"] * (1 + len(networks))]
    for number in workers:
        cells = []
        for net in networks:
            seconds = step + net.seconds(number, size, ALL_REDUCES)
            cells.append(f"{seconds * 1000:,.0f} ms, {step / seconds:.0%}")
        rows.append([str(number), *cells])
    ends = [below_half(size, step, net) for net in networks]
    last = ["never" if end is None else f"{end:,} workers" for end in ends]
    rows.append(["below 50% from", *last])
    return [f"| {' | '.join(row)} |" for row in rows]


def below_half(size: float, step: float, network: Network) -> int | None:
    """The number of workers from which on less than half of their speed is left.

    The cost grows with the number of workers, so the number is found by halving.
    """
    if network.seconds(MOST_WORKERS, size, ALL_REDUCES) <= step:
        return None
    low, high = 1, MOST_WORKERS  # at `low` it pays, at `high` it does not
    while high - low > 1:
        middle = (low + high) // 2
        pays = network.seconds(middle, size, ALL_REDUCES) <= step
        low, high = (middle, high) if pays else (low, middle)
    return high


def of_shape(args) -> tuple[Gradient, float, str]:
    """Of a model of sizes that are given: gradient, step, where that is from."""
    B, S, T, *_ = args.sizes
    changes = json.loads(args.changes)
    gradient = gradient_of(compiled(args.sizes, changes), B * (S + T))
    if args.step_seconds:
        return gradient, 0.0, ""
    script = str(Path(__file__).with_name("train_step.py"))
    words = ["--shape", args.shape, "--changes", args.changes]
    line = run([sys.executable, script, *words, "--steps", str(args.rounds)])
    return gradient, line["median_s"], f"median of {args.rounds} on this machine"


def of_run(run_dir: Path) -> tuple[Gradient, float, str]:
    """Of a run that has been trained, with the speed of its last epoch."""
    model = kl.load(run_dir).model
    record, history = read_record(run_dir), read_history(run_dir)
    if not history:
        raise SystemExit(f"{run_dir} has no finished epoch that tells its speed.")
    last = history[-1]
    counted = record["corpus"]["train"]
    passes = counted.get("passes", 1) / counted.get("parts", 1)
    words = [counted[f"{side}_tokens"] * passes for side in ("source", "target")]
    step = words[1] / counted["steps"] / last["target_tokens_per_second"]
    gradient = gradient_of(model, sum(words) / counted["steps"])
    return gradient, step, f"the mean of epoch {last['epoch']} of {run_dir}"


def gradient_of(model, words: float) -> Gradient:
    """The gradient of a batch of so many words on both sides.

    Which parts TensorFlow has as rows is seen on a small batch.
    """
    ids = tf.constant([[4, 3]])
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(model({"source": ids, "target": ids}, training=True))
    weights = model.trainable_weights
    gradients = tape.gradient(total, weights)
    sparse = [
        weight.shape
        for weight, gradient in zip(weights, gradients, strict=True)
        if isinstance(gradient, tf.IndexedSlices)
    ]
    row = statistics.mean(width for _, width in sparse) if sparse else 0
    return Gradient(
        sum(4 * int(np.prod(weight.shape)) for weight in weights),
        sum(4 * int(np.prod(shape)) for shape in sparse),
        round(words * len(sparse) / 2 * (4 * row + 8)),
    )


def measured(args) -> str:
    """What the formula says of two processes on this machine, and what they take."""
    line = two_workers(args)
    sizes, seconds = zip(*line["all_reduces"], strict=True)
    (small, large), whole = sizes[:2], sizes[-1]
    slope = (seconds[1] - seconds[0]) / (large - small)
    network = Network(1 / slope, max(0.0, seconds[0] - small * slope) / 2)
    extra = len(line["in_graph"])
    step = line["alone_s"] + network.seconds(2, sum(line["in_graph"]), extra)
    rows = [
        ["", "by the formula", "measured"],
        ["---", "---:", "---:"],
        [
            f"all-reduce of {whole / 1e6:,.1f} MB",
            f"{network.seconds(2, whole) * 1000:,.1f} ms",
            f"{seconds[-1] * 1000:,.1f} ms",
        ],
        [
            "step of two workers",
            f"{step * 1000:,.1f} ms",
            f"{line['together_s'] * 1000:,.1f} ms",
        ],
    ]
    return "\n".join(
        [
            "Two processes on this machine, the least of "
            f"{args.rounds} rounds: all-reduces of "
            f"{small:,} bytes and {large / 1e6:,.1f} MB make "
            f"{network.bandwidth * 8 / 1e9:.2f} Gbit/s and a latency of "
            f"{network.latency * 1e6:,.0f} µs.",
            f"A step has {extra} all-reduces, of "
            f"{', '.join(f'{size:,}' for size in line['in_graph'])} bytes. Both "
            "training at once, each by itself, it takes "
            f"{line['alone_s'] * 1000:,.1f} ms.\n",
            *(f"| {' | '.join(row)} |" for row in rows),
        ]
    )


def two_workers(args) -> dict:
    """Trains with two processes: what the first has measured."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("localhost", 0)), other.bind(("localhost", 0))
        ports = [probe.getsockname()[1] for probe in (one, other)]
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    words = ["--shape", args.shape, "--changes", args.changes]
    command = [sys.executable, __file__, "--worker", "--rounds", str(args.rounds)]
    processes = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": cluster, "task": task})
        environment = {**QUIET, "TF_CONFIG": config, "TF_NUM_INTRAOP_THREADS": "1"}
        pipe = subprocess.PIPE if index == 0 else subprocess.DEVNULL
        processes.append(
            subprocess.Popen([*command, *words], env=environment, stdout=pipe)
        )
    said, _ = processes[0].communicate()
    if any(process.wait() for process in processes):
        raise SystemExit("A worker failed.")
    return json.loads(said.splitlines()[-1])


def be_a_worker(shape, changes, rounds) -> None:
    """Measures all-reduces and steps; prints a line of JSON."""
    strategy = make_strategy("multiworker")
    one = compiled(shape, changes)
    gradient = gradient_of(one, 0).dense
    reduces = []
    for size in (4, gradient // 8 * 4, gradient):
        reduces.append([size, least(all_reduce(strategy, size), rounds)])
    alone = least(step_of(one, batch_of(shape).repeat()), rounds)
    with strategy.scope():
        both = compiled(shape, changes)
    B, *rest = shape
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    data = batch_of((2 * B, *rest)).repeat().with_options(options)
    step = step_of(both, strategy.experimental_distribute_dataset(data))
    line = {
        "all_reduces": reduces,
        "alone_s": alone,
        "together_s": least(step, rounds),
        "in_graph": all_reduces_in(both, strategy, data),
    }
    print(json.dumps(line), flush=True)
    all_reduce(strategy, 4)()  # so that none is missed before it has finished


def step_of(model, data):
    """A function that trains on one batch and waits for the loss."""
    batches = iter(data)
    model.make_train_function()
    return lambda: float(model.train_function(batches)["loss"])


def all_reduce(strategy, size: int):
    """A function that sums so many bytes over the workers."""
    values = tf.zeros([size // 4])

    @tf.function
    def total():
        def of_replica():
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.SUM, values)

        return tf.reduce_max(strategy.run(of_replica))

    return lambda: float(total())


def all_reduces_in(model, strategy, data) -> list[int]:
    """The bytes of each all-reduce in a step's graph, the largest first."""
    batches = iter(strategy.experimental_distribute_dataset(data))
    # Keras's train function looks at what the graph that it calls has returned.
    variables = inspect.getclosurevars(model.train_function).nonlocals
    step = variables["multi_step_on_iterator"].get_concrete_function(batches)
    graph = step.graph.as_graph_def(add_shapes=True)
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    return sorted(
        (
            4 * math.prod(d.size for d in node.attr["_output_shapes"].list.shape[0].dim)
            for body in bodies
            for node in body
            if node.op.startswith("CollectiveReduce")
        ),
        reverse=True,
    )


def least(run_once, rounds: int) -> float:
    """The least seconds, as others on the machine make single rounds longer."""
    for _ in range(2):
        run_once()
    return min(timed(run_once) for _ in range(rounds))


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    flag = parser.add_argument
    flag("--shape", default="64,30,30,8000,512,512,2", help="B,S,T,V,E,H,L")
    flag("--changes", default="{}", help="of the configuration, JSON")
    flag("--run_dir", type=Path, help="a trained run, in the place of a shape")
    flag("--step_seconds", type=float, help="of one worker; measured by default")
    flag("--gbits", type=float, nargs="+", default=[1, 10, 25, 100])
    flag("--latency_us", type=float, default=50, help="of a message")
    flag("--workers", type=int, nargs="+", default=WORKERS)
    flag("--rounds", type=int, default=8, help="of what is measured")
    flag("--measure", action="store_true", help="compare with two processes here")
    flag("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.sizes = tuple(map(int, args.shape.split(",")))
    return args


if __name__ == "__main__":
    main()
