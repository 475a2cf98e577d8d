"""A run that starts from another one: its corpus, its tokenizers and its weights."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_luong.config.training import EMBEDDED, TrainingConfig
from keras_luong.models.growing import freeze, grow_into
from keras_luong.models.translation_model import TranslationModel, model_class
from keras_luong.runs.load_save import load, read_logs
from keras_luong.runs.run import (
    RunDirectory,
    check_exists,
    file_digest,
    read_history,
    read_record,
)
from keras_luong.text.corpora import load_corpus
from keras_luong.text.corpus import (
    ChangedCorpus,
    Corpus,
    fingerprint,
    read_blocks,
    with_share,
)
from keras_luong.text.corpus_files import find_corpus_files
from keras_luong.text.growing import add_tokens, grow_tokenizers
from keras_luong.text.hashes import HashReader
from keras_luong.text.held_out import HeldOut
from keras_luong.text.language_guess import are_alike
from keras_luong.text.tags import add_tags, token
from keras_luong.text.tokenizer_pair import TokenizerPair


def training_corpus(
    settings: Mapping[str, Any], corpus: Corpus | None = None
) -> Corpus:
    """Returns what a run is trained and validated on.

    Args:
        settings: The run's, as in its record.
        corpus: Its own corpus, if that is loaded already.

    Raises:
        ValueError, OSError: If the corpus, or the one that it is mixed with, cannot be
            read, or that is of other languages.
    """
    if corpus is None:
        languages = settings["source"], settings["target"]
        corpus = load_corpus(settings["data"], *languages)
    if tag := settings.get("tag"):
        corpus = _with_tag(corpus, tag)
    if share := settings.get("mix_old"):
        start = settings["init_from"]
        _check_direction(settings, start)
        old = old_corpus(start, settings.get("old_tag"))
        pairs = _trained_on(start, old)
        corpus = with_share(corpus, pairs, share, old.name, settings["seed"])
    return corpus


def _check_direction(settings: Mapping[str, Any], start: str) -> None:
    """Refuses to mix other languages among a text, unless a tag tells them apart."""
    before = read_record(start)["settings"]
    old, new = _languages(before), _languages(settings)
    tags = settings.get("tag"), settings.get("old_tag"), before.get("tag")
    if _alike(old, new) or None in old or any(tags):
        return
    raise ValueError(
        f"mix_old would mix {old[0]} into {old[1]}, as {start} translates, with "
        f"{new[0]} into {new[1]}. Leave it out; or give tag or old_tag, by which a "
        "model tells what it is asked for"
    )


def _languages(settings: Mapping[str, Any]) -> list[str | None]:
    return [settings.get(side) for side in ("source", "target")]


def _alike(languages: Sequence[str | None], others: Sequence[str | None]) -> bool:
    return all(
        are_alike(str(x), str(y)) for x, y in zip(languages, others, strict=True)
    )


def _with_tag(corpus: Corpus, tag: str) -> Corpus:
    return ChangedCorpus(
        corpus, lambda split, pairs: add_tags(pairs, tag), f"{token(tag)} {corpus.name}"
    )


def old_corpus(run_dir: str | Path, tag: str | None = None) -> Corpus:
    """Returns what a run was trained on, for one that mixes its own text with it.

    Args:
        run_dir: The run.
        tag: A tag for its sources, if they have none.

    Raises:
        ValueError: If its corpus is not where it was, or is another text now.
    """
    settings = read_record(run_dir)["settings"]
    corpus = training_corpus(settings, _own_corpus(run_dir))
    if tag is None:
        return corpus
    if settings.get("tag"):
        raise ValueError(
            f"old_tag is for sources without a tag, and those of {run_dir} have "
            f"{token(settings['tag'])}. Received: old_tag={tag!r}"
        )
    return _with_tag(corpus, tag)


def _own_corpus(run_dir: str | Path) -> Corpus:
    """What a run names as its data, before tags and mixing, if that is as it was."""
    record = read_record(run_dir)
    settings, known = record["settings"], record["corpus"]
    if not settings.get("data"):
        raise ValueError(
            f"mix_old needs a run that names its data. Received: {run_dir}"
        )
    try:
        languages = settings["source"], settings["target"]
        own = load_corpus(settings["data"], *languages)
        if isinstance(own, HeldOut) and RunDirectory(run_dir).held_out.exists():
            own.load(RunDirectory(run_dir).held_out)
    except (ValueError, OSError) as error:
        raise ValueError(
            f"mix_old needs the corpus of {run_dir} where it was, "
            f"{settings['data']!r}. {error}"
        ) from error
    limit = settings.get("limit_examples")
    if known and fingerprint(own, "train", limit).digest != known["train"]["digest"]:
        raise ValueError(
            f"mix_old needs the corpus of {run_dir} as it was, but the text of "
            f"{settings['data']!r} has changed since. Give the former text back, or "
            "leave mix_old out"
        )
    return own


def pairs_of_start(config: TrainingConfig) -> list[tf.data.Dataset]:
    """Returns the pairs that the run to start from was trained on, in a dataset.

    The list is empty if there is no such run, or it names no text.

    Args:
        config: The settings of the new run. Pairs of other languages are none of its.

    Raises:
        ValueError: If they are not where they were, or are others now.
    """
    if config.init_from is None:
        return []
    before = read_record(config.init_from)["settings"]
    same = _alike(_languages(before), _languages(vars(config)))
    if not (before.get("data") and same):
        return []
    return [_trained_on(config.init_from, old_corpus(config.init_from))]


def _trained_on(run_dir: str | Path, corpus: Corpus) -> tf.data.Dataset:
    """The pairs of its corpus that a run was trained on."""
    limit = read_record(run_dir)["settings"].get("limit_examples")
    return corpus.pairs("train").take(limit or -1)


def with_starts(run_dir: str | Path) -> list[str]:
    """Returns a run, the run that it starts from, and so on, as far as they are there.

    Args:
        run_dir: The run.
    """
    runs, run = list[str](), str(run_dir)
    with contextlib.suppress(OSError, ValueError):
        while run and run not in runs:
            before = read_record(run)["settings"].get("init_from")
            runs, run = [*runs, run], before
    return runs


def hashes_of_learned(run_dir: str | Path) -> np.ndarray:
    """Returns the numbers of the pairs that a run was trained on: uint64 [N].

    Also of those that the runs before it were, from which it starts.

    Args:
        run_dir: The run. Text that is not in files, or not where it was, or another
            text now, counts as none.

    Returns:
        The `TextHashes.pairs`.
    """
    found = [np.zeros(0, np.uint64)]
    for run in with_starts(run_dir):
        with contextlib.suppress(ImportError, OSError, ValueError):
            settings = read_record(run)["settings"]
            data, languages = settings.get("data"), _languages(settings)
            # A data set's name would have it downloaded.
            if data and (data == EMBEDDED or find_corpus_files(data, *languages)):
                blocks = read_blocks(_own_corpus(run), "train")
                hashes = HashReader(kept=1).read_all(blocks).hashes
                found.append(hashes.of(slice(settings.get("limit_examples"))).pairs)
    return np.concatenate(found)


def inherit_tokenizers(config: TrainingConfig, text: tf.data.Dataset) -> TokenizerPair:
    """Returns the tokenizers of the run to start from, grown as the settings say.

    Args:
        config: The settings of the new run.
        text: The pairs to learn more tokens from.

    Raises:
        OSError, ValueError: If they are missing or damaged, or cannot grow.
    """
    run = RunDirectory(str(config.init_from))
    tokenizers = TokenizerPair.load(run.tokenizer, run.path)
    if config.grow_vocab:
        number, coverage = config.grow_vocab, config.character_coverage
        tokenizers = grow_tokenizers(tokenizers, text, number, coverage)
    return tokenizers


def add_tag_tokens(
    tokenizers: TokenizerPair, config: TrainingConfig, in_text: Sequence[str]
) -> TokenizerPair:
    """Returns tokenizers that know the tags of a run's sources.

    Args:
        tokenizers: What may know none.
        config: The settings of the run.
        in_text: The names of the tags that its text has already.
    """
    tags = dict.fromkeys([*in_text, config.tag, config.old_tag])
    tokens = [token(tag) for tag in tags if tag is not None]
    return add_tokens(tokenizers, tokens, ["source"]) if tokens else tokenizers


def describe_start(run_dir: str | Path) -> dict[str, Any]:
    """Returns what a run's record says of the run that it starts from.

    Args:
        run_dir: The run to start from.

    Returns:
        Its path (`run`), the file of its weights and its digest, after how many epochs
        they were saved (None if nothing says so), its languages, and what it knows of
        its text (see `keras_luong.runs.run`).

    Raises:
        FileNotFoundError: If it has no weights yet.
    """
    run, record = RunDirectory(run_dir), read_record(run_dir)
    settings = record["settings"]
    check_exists(run.best_weights, "file of weights", "no epoch was finished yet")
    return {
        "run": str(run_dir),
        "weights": run.best_weights.name,
        "digest": file_digest(run.best_weights),
        "epochs": read_logs(run.best_weights).get("epoch")
        or len(read_history(run_dir))
        or None,
        "data": settings.get("data"),
        "languages": [settings.get("source"), settings.get("target")],
        "corpus": record["corpus"],
    }


def check_same_start(run_dir: str | Path, init_from: str | None) -> None:
    """Refuses to go on with a run as if it had started from elsewhere.

    A run to start from is its weights, wherever they lie.

    Args:
        run_dir: A run directory with a record.
        init_from: Where the run is now said to have started from.

    Raises:
        ValueError: If it started from other weights.
    """
    record = read_record(run_dir)
    before = record["settings"].get("init_from")
    if before == init_from:
        return
    now = RunDirectory(init_from).best_weights if init_from and before else None
    digest = (record["came_from"] or {}).get("digest")
    if now is None or not now.exists() or file_digest(now) != digest:
        raise ValueError(
            f"{run_dir} holds a run with another start; give another run directory, or "
            f"the same init_from to go on with it. It had {before!r}. "
            f"Received: {init_from!r}"
        )


def make_model(config: TrainingConfig, tokenizers: TokenizerPair) -> TranslationModel:
    """Returns a new model, of which the parts that the settings name are frozen."""
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    model = model_class(config.preset)(config.model_config(*sizes))
    freeze(model, config.freeze or ())
    return model


def inherit_weights(
    model: TranslationModel,
    tokenizers: TokenizerPair,
    run_dir: str | Path,
    start: Mapping[str, Any],
) -> None:
    """Gives a new model the best weights of the run that it starts from.

    Args:
        model: A model of that run's configuration, maybe with a larger vocabulary.
        tokenizers: Its tokenizers.
        run_dir: Where that run is now.
        start: What `describe_start` returned.

    Raises:
        FileNotFoundError: If that run is no longer there.
        ValueError: If its weights are others now.
    """
    path = RunDirectory(run_dir).best_weights
    if path.exists() and file_digest(path) != start["digest"]:
        raise ValueError(
            f"{path} has changed since this run began, which had not trained yet. "
            "Give another run directory to start from these weights"
        )
    old = load(run_dir, dtype=model.dtype_policy)
    grow_into(model, old.model, old.tokenizers, tokenizers)
