"""Loading what a training left: a translator, and weights into a model."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import h5py
import keras

from keras_luong.checks import check_choice, check_tensorflow
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.stepping import Hypotheses
from keras_luong.files import crc32
from keras_luong.runs.directory import RunDirectory
from keras_luong.runs.record import check_exists, read_record
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.translation.translator import Translator

NOTE_BYTES = 512  # in front of a file of weights: HDF5 has none shorter
_NOTE = b"keras_luong crc32 "  # how it begins; a file of Keras's own has none


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
    weights_path = None if weights is None else _weights_path(run, weights)
    check_exists(run.tokenizer, "directory of tokenizers", "the run is incomplete")
    tokenizers = TokenizerPair.load(run.tokenizer, run.path)
    changes = {} if dtype is None else {"dtype": keras.dtype_policies.get(dtype).name}
    with ThreadPoolExecutor(1) as beside:
        whole = None if weights_path is None else beside.submit(_whole, weights_path)
        try:  # meanwhile
            cls = _model_class(record["model"]["class"])
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
        >>> from keras_luong.runs.loading import load_weights
        >>> model = kl.load("runs/mine", weights=None).model
        >>> load_weights(model, "runs/mine/last.weights.h5")
    """
    _load_weights(model, _whole(path))


def _load_weights(model: keras.Model, path: str | Path) -> None:
    try:
        if (found := _count_weights(path)) != (expected := len(model.weights)):
            raise ValueError(f"it has {found} weights, and the model {expected}")
        with warnings.catch_warnings():  # `save_weights` leaves the optimizer out
            warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
            model.load_weights(path)
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(
            f"{path} is damaged, or its weights belong to another model: {error}"
        ) from error


def note_of(file: IO[bytes]) -> bytes:
    """What must stand in front of a file of weights that is whole.

    Args:
        file: The file, open to be read.
    """
    file.seek(NOTE_BYTES)
    return (b"%b%08x\n" % (_NOTE, crc32(file))).ljust(NOTE_BYTES, b"\0")


def _whole(path: str | Path) -> str | Path:
    """Returns the path of a file of weights, if nothing of it has changed."""
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


def _model_class(name: str) -> type[keras.Model]:
    cls = keras.saving.get_registered_object(name)
    if cls is None:
        raise ValueError(
            f"no model class is registered as {name!r}; import the module that "
            "defines it first"
        )
    return cls


def _weights_path(run: RunDirectory, weights: str) -> Path:
    paths = {"best": run.best_weights, "last": run.last_weights}
    check_choice("weights", weights, paths)
    others = [path for path in paths.values() if path.exists()]
    hint = (
        f"put it back; there is {others[0]}" if others else "no epoch was finished yet"
    )
    check_exists(paths[weights], f"file of the {weights} weights", hint)
    return paths[weights]
