"""Saving a translator as a run directory, and a model's weights.

The counterpart of loading.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import keras

from keras_luong.checks import check_path
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.greedy import GreedySearch
from keras_luong.decoding.special_tokens import SpecialTokens
from keras_luong.files import saved_beside, saved_directory_beside
from keras_luong.runs.directory import RunDirectory
from keras_luong.runs.loading import NOTE_BYTES, note_of
from keras_luong.runs.record import write_record
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.translation.translator import Translator

_LOGS = "keras_luong_logs"  # an attribute of the file


def save_run(
    translator: Translator,
    directory: str | Path,
    settings: Mapping[str, Any] | None = None,
    sample: str | None = None,
) -> Path:
    """Writes a run directory of a translator, whole or not at all.

    `keras_luong.load` reads it, and every command of `keras-luong` that takes a run;
    `keras-luong train --init_from` starts a training from it.

    Args:
        translator: A translator with one model, of a class that is registered with
            Keras, and a `BeamSearch` or a `GreedySearch`. (A shortlist is not saved: it
            has a file of its own.)
        directory: A new or empty directory.
        settings: What is known of its training, by the names of `TrainingConfig`, such
            as `{"data": "my/corpus", "source": "en", "target": "de"}`, which commands
            then need not be told.
        sample: A sentence of the source language, for whoever tries an export out.

    Returns:
        The directory.

    Raises:
        FileExistsError: If it is not empty.
        TypeError: If it is no translator, or the search, the tokenizers or a setting
            cannot be saved.
        ValueError: If the model's class is not registered with Keras.

    Example:
        >>> words = kl.WordTokenizer(["a", "dog"])
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(6, 6, units=4))
        >>> translator = kl.Translator(model, words, kl.BeamSearch(2, max_length=5))
        >>> kl.save_run(translator, "runs/new", {"source": "en", "target": "en"})
        PosixPath('runs/new')
        >>> kl.load("runs/new").search.beam_width
        2
    """
    target = check_path("directory", directory)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is not empty; give another name")
    if not isinstance(translator, Translator):
        raise TypeError(
            "A run is saved of a Translator: kl.Translator(model, tokenizers) makes "
            f"one of a model. Received: {type(translator).__name__}"
        )
    model: Any = translator.model
    if not hasattr(model, "save_weights"):
        raise TypeError(
            "A run has one Keras model; save the runs of an ensemble one by one. "
            f"Received: {type(model).__name__}"
        )
    tokenizers = _pair(translator.tokenizers)
    known = {**_of_text(tokenizers), **(settings or {})}
    search, longest = _beam_search(translator.search), translator.max_source_length
    with saved_directory_beside(target) as beside:
        run = RunDirectory(beside)
        write_record(beside, model, search, longest, known, sample)
        tokenizers.save(run.tokenizer)
        save_weights(model, run.best_weights)
    return target


def save_weights(
    model: keras.Model, path: str | Path, logs: Mapping[str, Any] | None = None
) -> None:
    """Writes a model's weights to a file, whole or not at all.

    `keras.Model.save_weights` adds the state of the optimizer, which for Adam makes the
    file three times as large. Whoever translates does not need it, and a training goes
    on from its checkpoints. In front of it stands its CRC-32, in what HDF5 calls a user
    block: no program that reads HDF5 minds it, and `load_weights` finds damage by it.
    While it is made, memory holds the weights two times more.

    Args:
        model: A built model.
        path: A name that ends in `.weights.h5`.
        logs: What `read_logs` is to return: how good they are.

    Example:
        >>> from keras_luong.runs.saving import save_weights
        >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        >>> save_weights(model, "notes/mine.weights.h5")
        >>> model.load_weights("notes/mine.weights.h5")
    """
    # In memory, as HDF5 ends the whole process where it finds the disk full.
    whole, file = _Named(Path(path).name), io.BytesIO()
    optimizer = getattr(model, "optimizer", None)
    keras.saving.save_weights(model, whole, objects_to_skip=[optimizer])
    with (
        h5py.File(whole) as old,
        h5py.File(file, "w", userblock_size=NOTE_BYTES) as new,
    ):
        for name in old:
            old.copy(name, new)
        new.attrs[_LOGS] = json.dumps(logs or {})
    note = note_of(file)
    file.seek(0)
    file.write(note)
    with saved_beside(path) as beside:
        beside.write_bytes(file.getbuffer())


class _Named(io.BytesIO):
    """A file in memory with a name, which Keras asks for."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __str__(self) -> str:
        return self.name


def read_logs(path: str | Path) -> dict[str, Any]:
    """Returns what a file of weights says of them, if there is one: their epoch's logs.

    Args:
        path: A file that `save_weights` wrote.

    Raises:
        OSError: If the file is damaged.

    Example:
        >>> from keras_luong.runs.saving import read_logs, save_weights
        >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        >>> save_weights(model, "notes/mine.weights.h5", {"val_bleu": 30.0})
        >>> read_logs("notes/mine.weights.h5")
        {'val_bleu': 30.0}
    """
    if not Path(path).exists():
        return {}
    try:
        with h5py.File(path) as file:
            logs: dict[str, Any] = json.loads(file.attrs.get(_LOGS, "{}"))
    except (OSError, ValueError) as error:
        raise OSError(f"{path} is damaged: {error}") from error
    return logs


def _pair(tokenizers: Any) -> TokenizerPair:
    if isinstance(tokenizers, TokenizerPair):
        return tokenizers
    return TokenizerPair(*tokenizers if isinstance(tokenizers, tuple) else [tokenizers])


def _beam_search(search: Any) -> BeamSearch:
    """The search as a record can have it."""
    if isinstance(search, GreedySearch):
        ids = {name: getattr(search, name) for name in vars(SpecialTokens())}
        return BeamSearch(1, max_length=search.max_length, **ids)
    if type(search) is not BeamSearch:
        raise TypeError(
            "A run translates by a BeamSearch; give it one with "
            f"translator.with_search(...). Received: {type(search).__name__}"
        )
    return search


def _of_text(tokenizers: TokenizerPair) -> dict[str, Any]:
    """What a training says of its tokenizers, as far as they know it themselves."""
    source, target = tokenizers.source, tokenizers.target
    known: dict[str, Any] = {
        "tokenizer": getattr(target, "kind", type(target).__name__),
        "vocab_size": max(source.vocab_size, target.vocab_size),
        "shared": tokenizers.shared,
    }
    for side, tokenizer in (("source", source), ("target", target)):
        if hasattr(tokenizer, "normalization"):
            known[f"{side}_normalization"] = tokenizer.normalization
    return known
