r"""Sends many requests, and says how long they took and whether answers stay the same.

Example:
    python export/serving/load.py in.txt --grpc localhost:8500 --model mine \
        --threads 1 16 --batch_size 1 32
    python export/serving/load.py in.txt --saved_model models/mine/1 --requests 20000
    python export/serving/load.py in.txt --tflite mine.tflite
    python export/serving/load.py in.txt --rest http://localhost:8501 --model mine \
        --threads 2 --beside 2  # while two others send 256 sentences each
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
from lines import read_file

Translate = Callable[[list[bytes]], list[bytes]]
WARM = 20  # requests that do not count


class Load(NamedTuple):
    """What came of the requests."""

    milliseconds: np.ndarray  # of each request
    seconds: float  # of all
    failed: int
    changed: int  # answers that were not the first one to the same question
    megabytes: tuple[float, float]  # of this process: after a tenth, at the end


def send(
    translate: Translate,
    texts: list[bytes],
    requests: int,
    batch_size: int = 1,
    threads: int = 1,
) -> Load:
    """Sends requests from several threads, each as soon as its last one is answered.

    Args:
        translate: texts → translations; raises where it fails.
        texts: taken in turn, again and again.
        requests: how many.
        batch_size: texts in one.
        threads: how many ask at once.

    Returns:
        `Load`.
    """
    batches = [
        [texts[(start + i) % len(texts)] for i in range(batch_size)]
        for start in range(0, len(texts), batch_size)
    ]
    with contextlib.suppress(Exception):  # it will fail again, and be counted
        for batch in itertools.islice(itertools.cycle(batches), WARM):
            translate(batch)
    numbers, lock = itertools.count(), threading.Lock()
    milliseconds, first = np.full(requests, np.nan), {}
    failed, changed, memory = [], [], []

    def ask() -> None:
        while (number := next(numbers)) < requests:
            place = number % len(batches)
            start = time.perf_counter()
            try:
                said = translate(batches[place])
            except Exception as error:  # whatever it is, the others go on
                failed.append(error)
                continue
            milliseconds[number] = 1e3 * (time.perf_counter() - start)
            with lock:
                if first.setdefault(place, said) != said:
                    changed.append(place)
                if number == requests // 10:
                    memory.append(megabytes())

    start = time.perf_counter()
    workers = [threading.Thread(target=ask) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - start
    if failed:
        print(f"{len(failed)} requests failed, such as: {failed[0]}", file=sys.stderr)
    early = memory[0] if memory else float("nan")
    answered = milliseconds[~np.isnan(milliseconds)]
    return Load(answered, seconds, len(failed), len(changed), (early, megabytes()))


@contextlib.contextmanager
def others(
    translate: Translate, texts: list[bytes], count: int, size: int
) -> Iterator[None]:
    """Sends large requests meanwhile, one after the other from each of some threads.

    Args:
        translate: texts → translations.
        texts: taken in turn.
        count: how many threads.
        size: texts in a request.
    """
    batch = list(itertools.islice(itertools.cycle(texts), size))
    stop, sent = threading.Event(), itertools.count()

    def ask() -> None:
        while not stop.is_set():
            translate(batch)
            next(sent)

    workers = [threading.Thread(target=ask) for _ in range(count)]
    for worker in workers:
        worker.start()
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds = time.perf_counter() - start
        if count:
            done = size * next(sent)
            print(f"beside {count} of {size} texts: {done} in {seconds:.0f} s")
        stop.set()
        for worker in workers:
            worker.join()


def megabytes() -> float:
    """What this process holds in memory."""
    return psutil.Process().memory_info().rss / 1e6


def backend(args: argparse.Namespace) -> Translate:
    """What the command line wants to be asked."""
    if args.rest:
        from rest_client import predict

        def translate(texts):
            return predict(args.rest, args.model, {"text": texts})["translation"]

    elif args.grpc:
        from grpc_client import Client

        client = Client(args.grpc, args.model)

        def translate(texts):
            return client.predict({"text": texts})["translation"].tolist()

    elif args.saved_model:
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  (SentencePiece's ops)
        from saved_models import find_version

        version = str(find_version(args.saved_model))
        serve = tf.saved_model.load(version).signatures["serving_default"]

        def translate(texts):
            return serve(text=tf.constant(texts))["translation"].numpy().tolist()

    else:
        from keras_luong_edge import EdgeTranslator

        translator = EdgeTranslator(args.tflite)

        def translate(texts):
            return [found.text for found in translator.translate(texts)]

    return translate


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path, help="sentences, one a line")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--rest", metavar="URL", help="such as http://localhost:8501")
    which.add_argument("--grpc", metavar="SERVER", help="such as localhost:8500")
    which.add_argument("--saved_model", type=Path, help="a version, in this process")
    which.add_argument("--tflite", type=Path, help="a file, in this process")
    parser.add_argument("--model", default="mine", help="its name at the server")
    parser.add_argument("--requests", type=int, default=1000, help="of each row")
    parser.add_argument("--batch_size", type=int, nargs="+", default=[1])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--beside", type=int, default=0, help="that send meanwhile")
    parser.add_argument("--beside_size", type=int, default=256, help="texts of those")
    args = parser.parse_args(args)
    if min(args.requests, *args.batch_size, *args.threads) < 1:
        parser.error("--requests, --batch_size and --threads must be at least 1")
    return args


def main() -> None:
    """Sends the requests and prints a row for each number of threads and batch size."""
    args = parse_args()
    texts = read_file(args.texts)
    translate = backend(args)
    print(
        "| threads | batch | p50 ms | p95 ms | p99 ms | texts/s | failed | changed "
        "| MB here after 10% | at the end |\n" + 10 * "|---:" + "|"
    )
    wrong = 0
    for threads, batch_size in itertools.product(args.threads, args.batch_size):
        with others(translate, texts, args.beside, args.beside_size):
            load = send(translate, texts, args.requests, batch_size, threads)
        times = load.milliseconds if load.milliseconds.size else np.array([np.nan])
        p50, p95, p99 = np.percentile(times, [50, 95, 99])
        rate = load.milliseconds.size * batch_size / load.seconds
        early, late = load.megabytes
        times = f"{p50:.1f} | {p95:.1f} | {p99:.1f} | {rate:.1f}"
        rest = f"{load.failed} | {load.changed} | {early:.0f} | {late:.0f}"
        print(f"| {threads} | {batch_size} | {times} | {rest} |", flush=True)
        wrong += load.failed + load.changed
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
