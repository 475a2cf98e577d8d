"""BLEU, share met and time of constrained search, on words of the references.

For each sentence one to three terms are drawn, words of letters that occur once in the
reference: each with even chances one that the free translation has, or one that it
lacks. Where it has all, nothing is to change.

    python benchmarks/constraints.py RUN --test val.en val.de
"""

from __future__ import annotations

import argparse
import random
import re
import time
from pathlib import Path

import keras_luong as kl
from keras_luong.evaluation.scores import bleu
from keras_luong.files import read_pairs
from keras_luong.translation.batching import unwritable

HEADER = (
    "beam | terms met | unchanged sentences | their BLEU against the free | "
    "others | their BLEU, free | constrained | CPU s, free | constrained"
)


def main() -> None:
    """Prints a table by width of the beam."""
    args = parse()
    sources, references = read_pairs(*args.test)
    sources, references = sources[: args.sentences], references[: args.sentences]
    translator = kl.load(args.run)
    print(HEADER)
    for width in args.beam_widths:
        wide = translator.with_search(beam_width=width)
        print(f"{width} | " + " | ".join(compare(wide, sources, references, args)))


def compare(translator, sources, references, args):
    """Translates freely, then with the terms, and yields a row of the table."""
    free, free_time = timed(translator, sources)
    free = [t.text for t in free]
    draw = random.Random(args.seed)
    pairs = zip(free, references, strict=True)
    terms = [drawn(*pair, args.words, draw, translator) for pair in pairs]
    found, bound_time = timed(translator, sources, constraints=terms)
    found = [t.text for t in found]
    met = sum(x in words(t) for t, row in zip(found, terms, strict=True) for x in row)
    yield f"{met:,} of {sum(map(len, terms)):,}"
    rows = list(zip(free, found, references, terms, strict=True))
    has_all = [row for row in rows if {*row[3]} <= {*words(row[0])}]
    others = [row for row in rows if not {*row[3]} <= {*words(row[0])}]
    for kept, sides in ((has_all, [(1, 0)]), (others, [(0, 2), (1, 2)])):
        yield f"{len(kept):,}"
        columns = list(zip(*kept, strict=True))
        for text, reference in sides:
            score = bleu(columns[text], columns[reference], args.tokenize).score
            yield f"{score:.2f}"
    yield from (f"{seconds:.1f}" for seconds in (free_time, bound_time))


def timed(translator, sources, **options):
    """Translates, and measures the processor's time, without that of tracing."""
    few = {name: value[:64] for name, value in options.items()}
    translator.translate(sources[:64], **few)
    start = time.process_time()
    found = translator.translate(sources, **options)
    return found, time.process_time() - start


def words(text):
    """The words of a text."""
    return re.findall(r"\w+", text)


def drawn(translation, reference, most, draw, translator):
    """Draws words of a reference, some of which its translation has."""
    has, all_of_it = words(translation), words(reference)
    once = [x for x in all_of_it if all_of_it.count(x) == 1 and x.isalpha()]
    unknown = unwritable(once, translator.target_tokenizer)
    sides = [[x for x in once if x in has], [x for x in once if x not in has]]
    sides[1] = [x for x in sides[1] if x not in unknown]
    chosen = []
    for _ in range(draw.randint(1, most)):
        if side := sides[draw.random() < 0.5]:
            chosen.append(side.pop(draw.randrange(len(side))))
    return chosen


def parse():
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--test", type=Path, nargs=2, required=True)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--words", type=int, default=3, help="at most, a sentence")
    parser.add_argument("--beam_widths", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--tokenize", default="13a", help="sacrebleu's")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
