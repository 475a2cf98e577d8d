"""What the recipe "auto" chooses for a corpus, and how it says so."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from keras_luong.config.auto import REASONS, AutoTraining, CorpusFacts
from keras_luong.config.training import UNRECORDED, TrainingConfig
from keras_luong.progress import telling
from keras_luong.runs.directory import RunDirectory
from keras_luong.runs.record import read_record
from keras_luong.text.corpus import Corpus
from keras_luong.text.corpus_facts import corpus_facts
from keras_luong.text.find_corpus import load_corpus

#: Recorded settings that are no options.
_NOT_OPTIONS = {"preset", "chosen_batch_tokens"}


def chosen_for(
    training: AutoTraining, run_dir: str | Path
) -> tuple[TrainingConfig, Corpus]:
    """Chooses what is not given, by the corpus; a run that goes on keeps its choice.

    Args:
        training: What is given.
        run_dir: The run directory.

    Returns:
        The configuration, and the corpus.

    Raises:
        ValueError: The corpus cannot be read, a given value cannot be, or the directory
            holds a run of another preset.
    """
    if RunDirectory(run_dir).record.exists():
        config = _as_chosen_before(training, run_dir)
        return config, load_corpus(config.data, config.source, config.target)
    corpus = load_corpus(training.data, training.source, training.target)
    given = training.given
    with telling("Measuring the corpus"):
        facts = corpus_facts(
            corpus,
            given.get("limit_examples"),
            given.get("character_coverage", UNRECORDED["character_coverage"]),
        )
    config = training.choose(facts, corpus.source_language, corpus.target_language)
    print(table(facts, config, given), flush=True)
    return config, corpus


def _as_chosen_before(training: AutoTraining, run_dir: str | Path) -> TrainingConfig:
    settings = read_record(run_dir)["settings"]
    if (preset := settings.get("preset")) != "auto":
        raise ValueError(
            f"{run_dir} holds a run of the preset {preset!r}. Give --preset {preset} "
            "to go on with it, or another run directory. Received: preset='auto'"
        )
    kept = {name: settings[name] for name in settings.keys() - _NOT_OPTIONS}
    source, target = kept.pop("source"), kept.pop("target")
    return training.config(kept, training.source or source, training.target or target)


def table(facts: CorpusFacts, config: TrainingConfig, given: Collection[str]) -> str:
    """Returns what was chosen and why, a line each.

    Args:
        facts: What is known of the corpus.
        config: The configuration.
        given: The settings that were not chosen.
    """
    settings = config.settings()
    size = f"{facts.content / 1e3:,.0f} kB of {config.target} when compressed"
    rows = [f"chosen for {facts.pairs:,} pairs, {size} (any option overrules it):"]
    for name, reason in REASONS.items():
        why = "as given" if name in given else reason
        rows.append(f"  {name:16} {settings[name]!s:>13}  {why}")
    return "\n".join(rows)
