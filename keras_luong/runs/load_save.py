"""Loading what a training left, and saving its counterpart.

A run directory is a translator: `load`, `load_ensemble` of several, and `save_run`. A
file of weights has a note in front, a CRC-32 by which damage is found, and may say how
good the weights are: `load_weights`, `save_weights`, `read_logs`.
"""

from __future__ import annotations

import io
import json
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import h5py
import keras

import keras_luong.models  # noqa: F401 (a record names one of them)
from keras_luong.checks import check_choice, check_path, check_tensorflow
from keras_luong.decoding.beam import BeamSearch, GreedySearch
from keras_luong.decoding.ensemble import Ensemble
from keras_luong.decoding.step_model import Hypotheses, SpecialTokens
from keras_luong.files import crc32, saved_beside, saved_directory_beside
from keras_luong.runs.run import RunDirectory, check_exists, read_record, write_record
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.translation.translator import Translator

NOTE_BYTES = 512  # in front of a file of weights: HDF5 has none shorter
_NOTE = b"keras_luong crc32 "  # how it begins; a file of Keras's own has none
_LOGS = "keras_luong_logs"  # an attribute of the file


def load(
    run_dir: str | Path,
    weights: str | None = "best",
    search: Callable[..., Hypotheses] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
) -> Translator:
    """Loads a trained translator.

    Args:
        run_dir: A directory that `keras-luong train` writes, also while it trains.
        weights: `"best"` for the best validated weights, `"last"` for the last ones,
            None for new ones.
        search: Another search than the run's own.
        dtype: Another precision to compute in than the run was trained in, such as
            `"float32"` for a CPU that is slow in half precision. The weights are
            float32 under mixed precision too.

    Returns:
        A translator with the run's model, tokenizers and search.

    Raises:
        FileNotFoundError: If a part is missing; it says which.
        ValueError: If a part is damaged, of another shape, or of a version that this
            one can't read; or if there is no such `dtype`.

    Example:
        >>> translator = kl.load("runs/mine")
        >>> translations = translator.translate(["the red dog", "the cat"])
        >>> len(translations), translations[0].source_tokens
        (2, ['the', 'red', 'dog', '</s>'])
    """
    check_tensorflow()
    run, record = RunDirectory(run_dir), read_record(run_dir)
    weights_path = None
    if weights is not None:
        paths = {"best": run.best_weights, "last": run.last_weights}
        weights_path = paths[check_choice("weights", weights, paths)]
        others = [path for path in paths.values() if path.exists()]
        hint = (
            f"it was removed, or no epoch's loss was finite; there is {others[0]}"
            if others
            else "no epoch was finished yet"
        )
        check_exists(weights_path, f"file of the {weights} weights", hint)
    check_exists(run.tokenizer, "directory of tokenizers", "the run is incomplete")
    tokenizers = TokenizerPair.load(run.tokenizer, run.path)
    changes = {} if dtype is None else {"dtype": keras.dtype_policies.get(dtype).name}
    with ThreadPoolExecutor(1) as beside:
        whole = None if weights_path is None else beside.submit(_whole, weights_path)
        try:  # meanwhile
            name = record["model"]["class"]
            if (cls := keras.saving.get_registered_object(name)) is None:
                raise ValueError(
                    f"no model class is registered as {name!r}; import the module that "
                    "defines it first"
                )
            model = cls.from_config({**record["model"]["config"], **changes})
            search = search or BeamSearch(**record["search"])
            longest = record["max_source_length"]
            translator = Translator(model, tokenizers, search, longest)
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(
                f"{run.record} is damaged, or by another version "
                f"({record.get('library')}): {error}"
            ) from error
    if whole is not None:
        _load_weights(model, whole.result())
    return translator


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
        >>> from keras_luong.runs.load_save import load_ensemble
        >>> translator = load_ensemble(["runs/mine", "runs/yours"])
        >>> len(translator.model.models)
        2
    """
    if isinstance(run_dirs, (str, Path)) or not run_dirs:
        raise ValueError(
            "`run_dirs` must be a list of one run directory at least. "
            f"Received: {run_dirs!r}"
        )
    first, *others = translators = [load(run_dir, dtype=dtype) for run_dir in run_dirs]
    if not others:
        return first
    _check_same_tokenizers(run_dirs, [x.tokenizers for x in translators])
    return Translator(
        Ensemble([translator.model for translator in translators]),
        first.tokenizers,
        first.search,
        min(translator.max_source_length for translator in translators),
    )


def _check_same_tokenizers(
    run_dirs: Sequence[str | Path], tokenizers: Sequence[TokenizerPair]
) -> None:
    """Refuses runs of which the files of the tokenizers differ."""

    def files(run_dir: str | Path) -> dict[str, bytes]:
        paths = RunDirectory(run_dir).tokenizer.iterdir()
        return {path.name: path.read_bytes() for path in paths}

    (first, pair), *others = zip(run_dirs, tokenizers, strict=True)
    expected = files(first)
    for other, other_pair in others:
        if files(other) == expected:
            continue
        # What they do to a text before they split it is the likeliest reason.
        rules = []
        for side in ("source", "target"):
            one, two = (
                getattr(getattr(x, side), "normalization", None)
                for x in (pair, other_pair)
            )
            if None not in (one, two) and one != two:
                rules.append(f"{side}_normalization {one!r} and {two!r}")
        differ = f", which differ in {', '.join(rules)}" if rules else ""
        raise ValueError(
            "The runs of an ensemble must have the same tokenizers. Received: "
            f"{first}, {other}{differ}"
        )


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
            "A run is saved of a Translator, such as kl.Translator(model, "
            f"tokenizers). Received: {type(translator).__name__}"
        )
    model: Any = translator.model
    if not hasattr(model, "save_weights"):
        raise TypeError(
            "A run has one Keras model; save the runs of an ensemble one by one. "
            f"Received: {type(model).__name__}"
        )
    # 1. The search, as a record can have it.
    search: Any = translator.search
    if isinstance(search, GreedySearch):
        ids = {name: getattr(search, name) for name in vars(SpecialTokens())}
        search = BeamSearch(1, max_length=search.max_length, **ids)
    if type(search) is not BeamSearch:
        raise TypeError(
            "Only a BeamSearch or a GreedySearch can be saved in a run: save "
            f"translator.with_search(...). Received: {type(search).__name__}"
        )
    # 2. What a training says of its tokenizers, as far as they know it themselves.
    pair: Any = translator.tokenizers
    if not isinstance(pair, TokenizerPair):
        pair = TokenizerPair(*pair if isinstance(pair, tuple) else [pair])
    tokenizers = pair.source, pair.target
    facts: dict[str, Any] = {
        "tokenizer": getattr(pair.target, "kind", type(pair.target).__name__),
        "vocab_size": max(x.vocab_size for x in tokenizers),
        "shared": pair.shared,
    }
    for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
        if hasattr(tokenizer, "normalization"):
            facts[f"{side}_normalization"] = tokenizer.normalization
    # 3. The directory.
    with saved_directory_beside(target) as beside:
        run, longest = RunDirectory(beside), translator.max_source_length
        write_record(
            beside, model, search, longest, {**facts, **(settings or {})}, sample
        )
        pair.save(run.tokenizer)
        save_weights(model, run.best_weights)
    return target


def load_weights(model: keras.Model, path: str | Path) -> None:
    """Loads a file of weights, if they are all of the model's and no others.

    `keras.Model.load_weights` alone loads the part that fits from the file of a larger
    model, and says nothing.

    Args:
        model: A built model.
        path: A file that `keras.Model.save_weights` wrote, or `save_weights` of this
            library. An optimizer keeps its state where the file has none.

    Raises:
        ValueError: If the file is damaged, or of another model.

    Example:
        >>> from keras_luong.runs.load_save import load_weights
        >>> model = kl.load("runs/mine", weights=None).model
        >>> load_weights(model, "runs/mine/last.weights.h5")
    """
    _load_weights(model, _whole(path))


def _load_weights(model: keras.Model, path: str | Path) -> None:
    try:
        if (number := _count_weights(path)) != (expected := len(model.weights)):
            raise ValueError(f"it has {number} weights, and the model {expected}")
        with warnings.catch_warnings():  # `save_weights` leaves the optimizer out
            warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
            model.load_weights(path)
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(
            f"{path} is damaged, or its weights belong to another model: {error}"
        ) from error


def note_of(file: IO[bytes]) -> bytes:
    """Returns the note in front of a file of weights: the CRC-32 of what follows.

    Args:
        file: The file, open to be read.
    """
    file.seek(NOTE_BYTES)
    return (b"%b%08x\n" % (_NOTE, crc32(file))).ljust(NOTE_BYTES, b"\0")


def _whole(path: str | Path) -> str | Path:
    """Returns the path of a file of weights; raises ValueError if it is damaged."""
    with open(path, "rb") as file:
        note = file.read(NOTE_BYTES)
        # Most of it is enough: it may be damaged too.
        is_ours = sum(map(operator.eq, note, _NOTE)) > len(_NOTE) // 2
        if is_ours and note != note_of(file):
            raise ValueError(f"{path} is damaged: it is not what was written.")
    return path


def _count_weights(path: str | Path) -> int:
    """The arrays in a file, without those of an optimizer, or of another file."""
    names: list[str] = []

    def note(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset) and not (item.external or item.is_virtual):
            names.append(name)

    with h5py.File(path, "r") as file:
        file.visititems(note)  # which follows no links
    return sum(not name.startswith("optimizer/") for name in names)


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
        >>> from keras_luong.runs.load_save import save_weights
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
        >>> from keras_luong.runs.load_save import read_logs, save_weights
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
