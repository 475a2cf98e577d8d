"""BLEU, share met and time of constrained search, on words of the references.

For each sentence a word is drawn of those that its reference has and its translation
lacks; then the sentence is translated again so that it contains the word. Only words of
letters that occur once in the reference are drawn, which the tokenizer can write.

    python benchmarks/constraints.py RUN --test val.en val.de
"""

from __future__ import annotations

import argparse
import random
import re
import time
from pathlib import Path

import keras_luong as kl
from keras_luong.evaluation.bleu import bleu
from keras_luong.files import read_pairs
from keras_luong.translation.constraints import check_phrases


def main() -> None:
    """Prints a table: free and constrained, by width of the beam."""
    args = parse()
    sources, references = read_pairs(*args.test)
    sources, references = sources[: args.sentences], references[: args.sentences]
    translator = kl.load(args.run)
    print("beam | BLEU | BLEU, constrained | met | CPU s | CPU s, constrained")
    for width in args.beam_widths:
        wide = translator.with_search(beam_width=width)
        row = compare(wide, sources, references, args)
        print(f"{width} | " + " | ".join(row))


def compare(translator, sources, references, args):
    """Translates freely, then with what is missing."""
    free, free_time = timed(translator, sources)
    draw = random.Random(args.seed)
    pairs = zip(free, references, strict=True)
    constraints = [lacking(*pair, args.words, draw, translator) for pair in pairs]
    found, bound_time = timed(translator, sources, constraints=constraints)
    wanted = sum(map(len, constraints))
    met = sum(
        word in words(t.text)
        for t, row in zip(found, constraints, strict=True)
        for word in row
    )
    scores = [
        bleu([t.text for t in result], references, args.tokenize).score
        for result in (free, found)
    ]
    yield from (f"{score:.2f}" for score in scores)
    yield f"{met} of {wanted}"
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


def lacking(translation, reference, count, draw, translator):
    """Draws words of a reference that its translation lacks."""
    has, all_of_it = words(translation.text), words(reference)
    chosen = [x for x in all_of_it if all_of_it.count(x) == 1 and x not in has]
    chosen = [x for x in chosen if x.isalpha() and can_be_written(x, translator)]
    return draw.sample(chosen, min(count, len(chosen)))


def can_be_written(word, translator):
    """Tells whether the tokenizer knows all letters of a word."""
    try:
        check_phrases([word], translator.target_tokenizer)
    except ValueError:
        return False
    return True


def parse():
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--test", type=Path, nargs=2, required=True)
    parser.add_argument("--sentences", type=int)
    parser.add_argument("--words", type=int, default=1, help="of each sentence")
    parser.add_argument("--beam_widths", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--tokenize", default="13a", help="sacrebleu's")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
