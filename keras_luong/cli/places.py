"""Kinds of paths that a command line names, checked before TensorFlow is imported.

An option's type says what must be there: `run_dir: RunDir`. So a wrong path is answered
at once, by every command.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import typing
from pathlib import Path
from typing import Annotated, Any

from keras_luong.checks import check_file, check_path
from keras_luong.config.fields import check_text, hints_of, kinds_of
from keras_luong.config.named_paths import EMBEDDED
from keras_luong.files import read_raw_lines
from keras_luong.runs.directory import check_run


def check_places(options: Any) -> None:
    """Checks every path that a dataclass of options names.

    Args:
        options: The options; types of fields such as `RunDir` say what must be there.

    Raises:
        OSError, ValueError: Something is not there, or is something else.
    """
    for name, hint in hints_of(type(options)).items():
        value = getattr(options, name)
        paths = value if isinstance(value, tuple) else (value,)
        for kind in kinds_of(hint):
            is_tuple = typing.get_origin(kind) is tuple
            of_one = typing.get_args(kind)[0] if is_tuple else kind
            for check in getattr(of_one, "__metadata__", ())[1:]:
                for path in paths if value is not None else ():
                    check(name, path)


def _check_run(name: str, path: Path) -> None:
    check_run(path)


def _check_there(name: str, path: Path) -> None:
    if not path.exists():
        check_run(path)


def _check_folder(name: str, path: Path) -> None:
    if not path.is_dir():
        raise FileNotFoundError(f"There is no directory {path}.")


def _check_file(name: str, path: Path) -> None:
    if not path.exists() or path.is_dir():  # a pipe is as good as a file
        check_file("file", path)


def check_text_file(name: str, path: Path) -> None:
    """Refuses what is no text by its beginning; a pipe can be read but once."""
    _check_file(name, path)
    if path.is_file():
        next(read_raw_lines(path), None)


def check_new_file(name: str, path: Path) -> None:
    """Refuses a directory, and what cannot be written to."""
    if path.is_dir():
        raise IsADirectoryError(
            f"--{name} must be a file to write. Received a directory: {path}"
        )
    check_writable(path)


def _check_new_folder(name: str, path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(
            f"--{name} must be a directory to write to. Received a file: {path}"
        )
    check_writable(path)


def _check_new(name: str, path: Path) -> None:
    if path.exists():
        raise FileExistsError(f"--{name} must be new. Received: {path}")
    check_writable(path)


def check_writable(path: Path) -> None:
    """Checks that something new can be put at a path.

    Args:
        path: The path; directories above it need not exist.

    Raises:
        NotADirectoryError, PermissionError: It cannot.
    """
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir():
        raise NotADirectoryError(f"{path} cannot be written: {above} is a file.")
    if not os.access(above, os.W_OK) and not path.exists():
        raise PermissionError(f"{path} cannot be written: {above} is read-only.")


def check_corpus(name: str, data: str) -> None:
    """Refuses data that is neither there nor a data set of tensorflow-datasets.

    To ask tensorflow-datasets itself takes seconds; the files in its package name the
    corpora that it has.

    Args:
        name: The option.
        data: What it names.

    Raises:
        ValueError: There is nothing of that name.
    """
    path, dataset = Path(data), re.split("[/:]", data)[0]
    if data == EMBEDDED or path.exists() or ":" in data.split("/")[0]:
        return
    spec = importlib.util.find_spec("tensorflow_datasets")
    (package,) = (spec and spec.submodule_search_locations) or [""]
    own = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    folders = Path(package, "datasets"), Path(package, "translate"), Path(own)
    for folder in map(Path.expanduser, folders):
        if dataset and (folder / dataset).is_dir():
            return
    if Path(package, "url_checksums", f"{dataset}.txt").is_file():
        return
    beside = [str(x) for x in path.parent.glob("[!.]*")]
    close = difflib.get_close_matches(str(path), beside, 1)
    hint = f" Did you mean {close[0]}?" if close else ""
    raise ValueError(
        f"There is no folder or file {data}, and no data set of that name in "
        f"tensorflow-datasets.{hint}"
    )


RunDir = Annotated[Path, check_path, _check_run]
AnyPath = Annotated[Path, check_path]
AnyFile = Annotated[Path, check_path, _check_file]
OldFolder = Annotated[Path, check_path, _check_folder]
OldPlace = Annotated[Path, check_path, _check_there]
TextFile = Annotated[Path, check_path, check_text_file]
NewFile = Annotated[Path, check_path, check_new_file]
NewFolder = Annotated[Path, check_path, _check_new_folder]
NewPlace = Annotated[Path, check_path, _check_new]
CorpusName = Annotated[str, check_text, check_corpus]
