"""Draws BLEU by the milliseconds that one sentence takes, as decode.py measured them.

    python benchmarks/decode.py runs/m30k test.en --references test.de --json found.json
    python benchmarks/speed_and_quality.py found.json picture.png
        --published "CTranslate2 float32, beam 5=41.02"

CTranslate2's weights are random, so that its BLEU is that of a publication, whatever
the number of threads.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

from keras_luong.evaluation.plots import COLORS, MARKERS


def main() -> None:
    """Draws."""
    import matplotlib.pyplot as plt

    args = parse()
    rows = [json.loads(line) for line in args.found.read_text().splitlines()]
    points = [point for row in rows if (point := point_of(row, args.published))]
    figure, axes = plt.subplots(figsize=(8.5, 4.2))
    for i, runtime in enumerate(dict.fromkeys(point.runtime for point in points)):
        color, marker = COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]
        filled = color if i < len(COLORS) else "none"
        own = [point for point in points if point.runtime == runtime]
        axes.plot(
            [point.ms for point in own],
            [point.bleu for point in own],
            marker,
            color=color,
            markerfacecolor=filled,
            label=runtime,
        )
    for what in dict.fromkeys(point.what for point in points):
        first = min(point for point in points if point.what == what)
        place = {"xytext": (-8, 0), "textcoords": "offset points"}
        axes.annotate(what, first[:2], ha="right", va="center", fontsize=9, **place)
    axes.set_xscale("log")
    axes.set_xlim(min(points).ms / 2.5)  # room for the labels
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("milliseconds a sentence, one at a time")
    axes.set_ylabel("BLEU")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    figure.savefig(args.picture, dpi=120)


class Point(NamedTuple):
    """A marker, and what stands beside the first one of those with the same text."""

    ms: float
    bleu: float
    runtime: str
    what: str


def point_of(row: dict, published: list[str]) -> Point | None:
    """None where there is no BLEU, or one sentence at a time was not measured.

    Keras has no marker: its translations are the SavedModel's.
    """
    if row["runtime"] == "Keras":
        return None
    beam = f"beam {row['beam']}" if row["beam"] > 1 else "greedy"
    bleus = dict(item.rsplit("=", 1) for item in published)
    known = bleus.get(f"{row['runtime'].split(',')[0]}, {beam}")
    bleu, ms = row.get("bleu", known), row["ms"].get("1")
    if bleu is None or ms is None:
        return None
    run = "Transformer-Tiny" if known else row["run"]
    return Point(ms, float(bleu), row["runtime"], f"{run}, {beam}")


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("found", type=Path, help="what decode.py --json wrote")
    parser.add_argument("picture", type=Path, help="file to write")
    parser.add_argument(
        "--published", nargs="*", default=[], metavar="RUNTIME, BEAM=BLEU"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
