"""Translates a file with an exported SavedModel alone; scores it by BLEU and chrF.

Needs TensorFlow, tensorflow-text and sacrebleu, and none of this library's code: what
it prints is what a server of the SavedModel would say.

    python export/evaluate.py models/mine/1 test.en test.de --tokenize none
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.modules["keras_luong"] = None  # an import of it would fail from here on

import sacrebleu  # noqa: E402
import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401  (SentencePiece's ops)
from serving.lines import one_line, read_pairs, say_truncated  # noqa: E402
from serving.saved_models import find_version  # noqa: E402


def main(argv: list[str] | None = None) -> None:
    """Translates, scores, prints."""
    args = parse(argv)
    sources, references = read_pairs(args.source, args.reference)
    if not sources:
        sys.exit(f"{args.source} is empty: there is nothing to evaluate.")
    version = str(find_version(args.saved_model))
    serve = tf.saved_model.load(version).signatures["serving_default"]
    start = time.perf_counter()
    translations, truncated = translate(serve, sources, args.batch_size)
    seconds = time.perf_counter() - start
    say_truncated(truncated, len(sources))
    if args.output:
        args.output.write_bytes(b"".join(map(one_line, translations)))
    rows = zip(sources, translations, references, strict=True)
    for source, translation, reference in list(rows)[: args.show]:
        print(f"source       {source}")
        print(f"translation  {translation}")
        print(f"reference    {reference}\n")
    bleu = sacrebleu.BLEU(
        tokenize=args.tokenize, trg_lang=args.target, force=args.tokenize == "none"
    )
    score = bleu.corpus_score(translations, [references]).score
    print(f"BLEU {score:.2f} on {len(sources):,} sentences in {seconds:.0f} s")
    print(f"     {bleu.get_signature()}")
    chrf = sacrebleu.CHRF()
    print(f"chrF {chrf.corpus_score(translations, [references]).score:.2f}")
    print(f"     {chrf.get_signature()}")


def translate(serve, sources: list[str], batch_size: int) -> tuple[list[str], int]:
    """Translates in batches of similar length; results in the sources' order.

    Also counts the sources that are longer than the model reads.
    """
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    translations, truncated = [""] * len(sources), 0
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        batch = serve(text=tf.constant([sources[i] for i in rows]))
        for i, text in zip(rows, batch["translation"].numpy(), strict=True):
            translations[i] = text.decode()
        truncated += int(batch["truncated"].numpy().sum())
    return translations, truncated


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("saved_model", type=Path, help="the version's directory")
    parser.add_argument("source", type=Path, help="sentences, one a line")
    parser.add_argument("reference", type=Path, help="their translations")
    parser.add_argument(
        "--target", default="", help="the language, which BLEU is tokenised for: zh"
    )
    parser.add_argument(
        "--tokenize",
        help="sacrebleu's, instead of the language's (13a for most); none if text is "
        "tokenised",
    )
    parser.add_argument("--batch_size", type=int, default=32, help="default: 32")
    parser.add_argument("--output", type=Path, help="write the translations there")
    parser.add_argument("--show", type=int, default=0, help="print the first so many")
    args = parser.parse_args(argv)
    if args.batch_size < 1:
        parser.error(f"--batch_size must be at least 1. Received: {args.batch_size}")
    return args


if __name__ == "__main__":
    main()
