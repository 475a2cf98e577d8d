"""`keras-luong evaluate`: BLEU and chrF of a run, on held-out splits or any files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from keras_luong.cli.commands import EvaluateOptions
from keras_luong.cli.translators import (
    bleu_tokenization,
    corpus_of,
    load_translator,
)
from keras_luong.evaluation.bleu import bleu
from keras_luong.evaluation.chrf import chrf
from keras_luong.files import one_line, read_pairs, write_lines
from keras_luong.text.corpus import sentences
from keras_luong.translation.translator import Translator


class TestSet(NamedTuple):
    """Sentences to translate, and what they should become."""

    name: str
    sources: list[str]
    references: list[str]


def run(options: EvaluateOptions) -> None:
    """Translates each test set, and prints its scores with their signatures."""
    if options.output is not None and options.output.is_file():
        raise NotADirectoryError(
            "--output is the directory to write the translations to. Received a file: "
            f"{options.output}"
        )
    tokenize = bleu_tokenization(options)
    tests = list(_test_sets(options))
    translator = load_translator(options)
    for test in tests:
        _evaluate(translator, test, tokenize, options)


def _test_sets(options: EvaluateOptions) -> Iterator[TestSet]:
    if options.test:
        source, reference = options.test
        sources, references = read_pairs(source, reference)
        if not sources:
            raise ValueError(f"{source} is empty: there is nothing to evaluate.")
        yield TestSet(source.name, sources, references)
        return
    corpus = corpus_of(options, options.run_dir)
    for split in corpus.splits:
        if split != "train":
            yield TestSet(split, *sentences(corpus, split))


def _evaluate(
    translator: Translator, test: TestSet, tokenize: str, options: EvaluateOptions
) -> None:
    found = translator.translate(test.sources, options.batch_size, progress=True)
    texts = [translation.text for translation in found]
    for row in list(zip(*test[1:], texts, strict=True))[: options.show]:
        print("source       {}\nreference    {}\ntranslation  {}\n".format(*row))
    print(f"{test.name:12} {bleu(texts, test.references, tokenize)}")
    score = chrf(texts, test.references)
    print(f"{'':12} {score}, {len(texts):,} sentences", flush=True)
    if options.output is not None:
        path = options.output / f"{test.name}.translated"
        write_lines(path, map(one_line, texts))
