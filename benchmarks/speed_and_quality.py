"""Draws BLEU by the milliseconds that one sentence takes, as decode.py measured them.

    python benchmarks/decode.py runs/m30k test.en --references test.de --json found.json
    python benchmarks/speed_and_quality.py found.json picture.png
        --published "CTranslate2 float32=41.02"

CTranslate2's weights are random, so that its BLEU is that of a publication.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from keras_luong.evaluation.curves import COLORS, MARKERS


def main() -> None:
    """Draws."""
    import matplotlib.pyplot as plt

    args = parse()
    published = dict(item.rsplit("=", 1) for item in args.published)
    rows = [json.loads(line) for line in args.found.read_text().splitlines()]
    figure, axes = plt.subplots(figsize=(7, 4.2))
    runtimes = list(dict.fromkeys(runtime_of(row) for row in rows))
    for row in rows:
        bleu = row.get("bleu") or published.get(row["runtime"])
        if bleu is None or "1" not in row["ms"]:
            continue
        i = runtimes.index(runtime_of(row))
        x, y = row["ms"]["1"], float(bleu)
        color, marker = COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]
        axes.plot(x, y, marker, color=color, label=runtimes[i])
        axes.annotate(what(row), (x, y), xytext=(5, 3), textcoords="offset points")
    handles, labels = axes.get_legend_handles_labels()
    one_each = dict(zip(labels, handles, strict=True))
    axes.legend(one_each.values(), one_each.keys(), frameon=False, loc="lower right")
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds a sentence, one at a time")
    axes.set_ylabel("BLEU")
    axes.grid(alpha=0.3, which="both")
    figure.tight_layout()
    figure.savefig(args.picture, dpi=120)


def runtime_of(row: dict) -> str:
    """What a marker is of."""
    return row["runtime"] + (
        " (Transformer-Tiny)" if row["runtime"].startswith("CTranslate2") else ""
    )


def what(row: dict) -> str:
    """What stands beside a marker."""
    beam = f"beam {row['beam']}" if row["beam"] > 1 else "greedy"
    is_peer = row["runtime"].startswith("CTranslate2")
    return beam if is_peer else f"{row['run']}, {beam}"


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("found", type=Path, help="what decode.py --json wrote")
    parser.add_argument("picture", type=Path, help="file to write")
    parser.add_argument("--published", nargs="*", default=[], metavar="RUNTIME=BLEU")
    return parser.parse_args()


if __name__ == "__main__":
    main()
