"""What the normalisation of targets changes: lines of a corpus, pieces of a vocabulary.

    python benchmarks/normalization.py DIRECTORY --source en --target de

trains SentencePiece with the targets as they are ("identity") and through NFKC, as
version 0.1 did ("nmt_nfkc"), for two vocabularies and for a shared one.
"""

from __future__ import annotations

import argparse

from keras_luong.text.corpus import sentences
from keras_luong.text.find_corpus import load_corpus
from keras_luong.text.sentencepiece import normalizer
from keras_luong.text.tokenizer_pair import TokenizerPair

RULES = ("identity", "nmt_nfkc")


def main() -> None:
    """Prints what differs between the two rules."""
    args = parse()
    corpus = load_corpus(args.data, args.source, args.target)
    for split in corpus.splits:
        _, targets = sentences(corpus, split)
        ours, before = (normalized(targets, rule) for rule in RULES)
        differ = sum(a != b for a, b in zip(ours, before, strict=True))
        print(f"{split}: {differ:,} of {len(targets):,} targets differ")
    for shared in (False, True):
        pairs = [trained(corpus, args.vocab_size, shared, rule) for rule in RULES]
        for side in ("source", "target"):
            ours, before = (getattr(pair, side).vocabulary for pair in pairs)
            print(
                f"{'shared' if shared else 'two'} {side}: "
                f"{len({*ours} - {*before})} of {len(ours):,} pieces differ"
                + ", same order"
                * (ours == before)
            )


def normalized(texts: list[str], rule: str) -> list[str]:
    """Texts as a tokenizer of the rule reads them."""
    return [normalizer(rule)(text) for text in texts]


def trained(corpus, vocab_size: int, shared: bool, rule: str) -> TokenizerPair:
    """The corpus's tokenizers, with a rule for the targets."""
    return TokenizerPair.train(
        corpus.pairs("train"),
        vocab_size=vocab_size,
        shared=shared,
        target_normalization=rule,
    )


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="a directory of text files")
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--vocab_size", type=int, default=4000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
