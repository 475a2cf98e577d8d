"""What a training is told at its start that will probably not go well, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from keras_luong.config.training import TrainingConfig
from keras_luong.runs.opening import Run
from keras_luong.text.corpus import Corpus
from keras_luong.text.language_guess import alike, look_of

#: Fewer steps than this teach a new model next to nothing.
FEWEST_STEPS = 1000
#: A piece that is seen less often than this, on average, is hardly learnt.
FEWEST_TOKENS_A_PIECE = 10
#: More of the targets than this are their sources in no corpus of translations.
MOST_COPIES = 0.2
_PAIRS = 1000


def doubts(
    run: Run, vocab_sizes: tuple[int, int], train: Mapping[str, Any]
) -> list[str]:
    """Returns sentences on what looks wrong in a corpus, or in how it is trained on.

    Args:
        run: The run.
        vocab_sizes: Sizes of the source's and the target's vocabulary.
        train: What is known of the training text, as the run's record has it.

    Returns:
        The sentences; none where nothing looks wrong.
    """
    return [
        *_of_steps(run.config, train),
        *_of_vocabulary(run.config, vocab_sizes, train),
        *_of_overlap(train),
        *_of_languages(run.corpus),
        *_of_copies(run.corpus),
    ]


def _of_steps(config: TrainingConfig, train: Mapping[str, Any]) -> Iterator[str]:
    steps = train["steps"] * config.epochs
    if steps < FEWEST_STEPS:
        yield (
            f"{config.epochs} epochs of {train['steps']:,} steps are {steps:,} in all, "
            f"and a model needs thousands. More epochs make more, smaller batches "
            f"too (batch_tokens is {config.batch_tokens}), and --preset auto chooses "
            "both"
        )


def _of_vocabulary(
    config: TrainingConfig, sizes: tuple[int, int], train: Mapping[str, Any]
) -> Iterator[str]:
    tokens = train.get("source_tokens", 0) + train.get("target_tokens", 0)
    pieces = sizes[0] if config.shared else sum(sizes)
    if tokens and tokens < FEWEST_TOKENS_A_PIECE * pieces:
        yield (
            f"the text has {tokens:,} tokens for a vocabulary of {pieces:,}: "
            f"{tokens / pieces:.1f} for each on average, too few to learn them from. A "
            f"smaller vocab_size suits the text (it is {config.vocab_size:,})"
        )


def _of_overlap(train: Mapping[str, Any]) -> Iterator[str]:
    for split, (shared, pairs) in train.get("in_splits", {}).items():
        yield (
            f"{shared:,} of {pairs:,} {split} pairs are in the training text too: "
            "results will look better than they are"
        )


def _of_languages(corpus: Corpus) -> Iterator[str]:
    looks = look_of(corpus)
    declared = corpus.source_language, corpus.target_language
    if all(x and alike(x, y) for x, y in zip(looks, declared[::-1], strict=True)):
        yield (
            f"the sides look swapped: the source should be {declared[0]} and reads "
            f"like {looks[0]}, the target {declared[1]} and like {looks[1]}"
        )
        return
    for side, look, code in zip(("source", "target"), looks, declared, strict=True):
        if look is not None and not alike(look, code):
            yield f"the {side} should be {code}, and reads like {look}"


def _of_copies(corpus: Corpus) -> Iterator[str]:
    pairs = list(corpus.pairs("train").take(_PAIRS).as_numpy_iterator())
    copies = sum(pair["source"] == pair["target"] for pair in pairs)
    if copies > MOST_COPIES * len(pairs):
        yield (
            f"{copies:,} of the first {len(pairs):,} pairs have the same text on both "
            "sides, which is no translation"
        )
