"""Several runs as one translator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import keras

from keras_luong.decoding.ensemble import Ensemble
from keras_luong.runs.directory import RunDirectory
from keras_luong.runs.loading import load
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.translation.translator import Translator


def load_ensemble(
    run_dirs: Sequence[str | Path], dtype: str | keras.DTypePolicy | None = None
) -> Translator:
    """Loads several runs as one translator, whose models translate together.

    Args:
        run_dirs: The run directories, one at least.
        dtype: As for `load`.

    Returns:
        A translator with an `Ensemble` of the runs' models, the first run's search and
        tokenizers, and the least of their `max_source_length`; for one run, what `load`
        returns.

    Raises:
        FileNotFoundError, ValueError: As of `load`.
        ValueError: If `run_dirs` is no list of runs, or their tokenizers differ.

    Example:
        >>> from keras_luong.runs.ensemble import load_ensemble
        >>> translator = load_ensemble(["runs/mine", "runs/yours"])
        >>> len(translator.model.models)
        2
    """
    if isinstance(run_dirs, (str, Path)) or not run_dirs:
        raise ValueError(
            "`run_dirs` must be a list of one run directory at least. "
            f"Received: {run_dirs!r}"
        )
    translators = [load(run_dir, dtype=dtype) for run_dir in run_dirs]
    _check_same_tokenizers(
        run_dirs, [translator.tokenizers for translator in translators]
    )
    first = translators[0]
    if len(translators) == 1:
        return first
    return Translator(
        Ensemble([translator.model for translator in translators]),
        first.tokenizers,
        first.search,
        min(translator.max_source_length for translator in translators),
    )


def _check_same_tokenizers(
    run_dirs: Sequence[str | Path], tokenizers: Sequence[TokenizerPair]
) -> None:
    def files(run_dir: str | Path) -> dict[str, bytes]:
        paths = RunDirectory(run_dir).tokenizer.iterdir()
        return {path.name: path.read_bytes() for path in paths}

    (first, pair), *others = zip(run_dirs, tokenizers, strict=True)
    expected = files(first)
    for other, other_pair in others:
        if files(other) != expected:
            raise ValueError(
                "The runs of an ensemble must have the same tokenizers. Received: "
                f"{first}, {other}{_rules(pair, other_pair)}"
            )


def _rules(one: TokenizerPair, other: TokenizerPair) -> str:
    """What two pairs do to a text before they split it, where that is not the same."""
    differing = []
    for side in ("source", "target"):
        rules = [getattr(getattr(x, side), "normalization", None) for x in (one, other)]
        if None not in rules and rules[0] != rules[1]:
            differing.append(f"{side}_normalization {rules[0]!r} and {rules[1]!r}")
    return f", which differ in {', '.join(differing)}" if differing else ""
