"""The arithmetic of benchmarks/all_reduce.py: where more machines stop to pay."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import keras_luong as kl

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "all_reduce.py"
sys.path.append(str(SCRIPT.parent))
bench = importlib.import_module(SCRIPT.stem)

GIGABYTE = bench.Network(bandwidth=1e9, latency=1e-3)


@pytest.mark.parametrize(
    "workers, all_reduces, seconds",
    [
        (1, 3, 0.0),  # nobody to send to
        (2, 1, 2 * 0.5 * 0.1 + 2 * 0.001),
        (4, 1, 2 * 0.75 * 0.1 + 6 * 0.001),
        (4, 3, 2 * 0.75 * 0.1 + 18 * 0.001),
    ],
)
def test_a_ring_moves_all_but_one_part_twice(workers, all_reduces, seconds):
    assert GIGABYTE.seconds(workers, 1e8, all_reduces) == pytest.approx(seconds)


@pytest.mark.parametrize("step", [0.02, 0.18, 0.3, 1.0])
def test_half_is_lost_where_the_cost_is_a_step(step):
    number = bench.below_half(1e8, step, GIGABYTE)
    seconds = [
        GIGABYTE.seconds(n, 1e8, bench.ALL_REDUCES) for n in (number - 1, number)
    ]
    assert seconds[0] <= step < seconds[1]


def test_a_network_without_latency_may_never_lose_half():
    network = GIGABYTE._replace(latency=0.0)
    assert bench.below_half(1e8, 0.21, network) is None  # never more than 0.2 s
    assert bench.below_half(1e8, 0.1901, network) == 21


def test_the_table():
    head, line, *rows, last = bench.table(1e8, 0.2, [GIGABYTE], [1, 2])
    assert head == "| workers | 8 Gbit/s |" and line == "| ---: | ---: |"
    assert rows == ["| 1 | 200 ms, 100% |", "| 2 | 306 ms, 65% |"]
    assert last == "| below 50% from | 7 workers |"


@pytest.mark.parametrize("tied", [None, "target"])
def test_the_gradient_is_all_weights_and_rows_where_there_are_only_rows(tied):
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 11, units=4, tie_embeddings=tied))
    gradient = bench.gradient_of(model, words=10)
    assert gradient.dense == 4 * model.count_params()
    rows = [9] if tied else [9, 11]
    assert gradient.embeddings == 4 * 4 * sum(rows)
    assert gradient.rows == 5 * len(rows) * (4 * 4 + 8)
