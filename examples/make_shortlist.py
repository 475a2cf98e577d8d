"""Learns a run's shortlist: for each source word, the target words that it becomes.

From the training data and the attention of the trained model. With it a search scores
some hundred words a sentence in place of the whole vocabulary, which makes it faster
and changes some translations: compare BLEU on validation data. Some commands:

    python examples/make_shortlist.py runs/m30k
    python examples/make_shortlist.py runs/m30k --per_word 100 --limit_examples 1000000
    python examples/translate.py runs/m30k --shortlist runs/m30k/shortlist.npz < in.en
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from keras_luong.decoding.shortlist import Shortlist
from keras_luong.runs.corpus import add_corpus_flags, corpus_of
from keras_luong.runs.directory import load
from keras_luong.text.batches import evaluation_batches
from keras_luong.text.tokenizer_pair import TokenizerPair


def main(argv: list[str] | None = None) -> Path:
    """Learns, writes, and returns the file."""
    args = parse(argv)
    pairs = corpus_of(args, args.run_dir).pairs("train")
    translator = load(args.run_dir)
    batches = evaluation_batches(
        pairs.take(args.limit_examples or -1),
        TokenizerPair(translator.source_tokenizer, translator.target_tokenizer),
        max_length=translator.max_source_length,
    )
    shortlist = Shortlist.learn(
        translator.model,
        batches,
        per_word=args.per_word,
        frequent=args.frequent,
        progress=sys.stdout.isatty(),
    )
    out = args.out or args.run_dir / "shortlist.npz"
    shortlist.save(out)
    print(f"{out}: {shortlist}")
    return out


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag = parser.add_argument
    flag("run_dir", type=Path, help="what train_wmt.py wrote")
    flag("--out", type=Path, help="file to write; default: RUN_DIR/shortlist.npz")
    flag("--per_word", type=int, default=50, help="translations of a source word")
    flag("--frequent", type=int, default=400, help="words on every sentence's list")
    flag("--limit_examples", type=int, help="pairs to learn from; default: all")
    add_corpus_flags(parser)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
