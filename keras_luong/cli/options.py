"""What the options of several commands have in common, and kinds of paths.

A command's options are the fields of a dataclass: those before `KW_ONLY` are given by
their place. Types say what a value may be, and what must be at a path. All is checked
before TensorFlow is imported, so that a mistake is told at once.
"""

from __future__ import annotations

import dataclasses
import os
import typing
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from keras_luong.checks import check_file, check_path
from keras_luong.config.fields import (
    Count,
    NotNegative,
    check_fields,
    hints_of,
    kinds_of,
)
from keras_luong.config.training import Precision
from keras_luong.files import read_raw_lines
from keras_luong.runs.run import check_run, read_record
from keras_luong.text.pair_formats import find_side, form_of, names_in


def _check_run(name: str, path: Path) -> None:
    check_run(path)


def _check_run_or_other(name: str, path: Path) -> None:
    if not path.exists():
        check_run(path)


def _check_folder(name: str, path: Path) -> None:
    if not path.is_dir():
        raise FileNotFoundError(f"There is no directory {path}.")


def _check_file(name: str, path: Path) -> None:
    check_file("file", path)


def _check_text(name: str, path: Path) -> None:
    """Refuses what is no text by its beginning; a pipe can be read but once."""
    if form_of(path) is not None:
        raise ValueError(
            f"{name} must be lines of plain text. Received: {path}; docs/evaluation.md "
            "tells what to do with a TMX or a table"
        )
    _check_lines(name, path)


def _check_lines(name: str, path: Path) -> None:
    """The same of lines of columns, with tabs between."""
    if not path.exists() or path.is_dir():  # a pipe is as good as a file
        _check_file(name, path)
    if path.is_file():
        next(read_raw_lines(path), None)


def _check_sentences(name: str, path: Path) -> None:
    """Refuses what is no text, nor of a form that can be read; also folders of any."""
    form = form_of(path)
    if form is None or not path.is_dir():
        _check_file(name, path)
    if form is None:
        _check_text(name, path)


def _check_new_file(name: str, path: Path) -> None:
    """Refuses a directory, and what cannot be written to."""
    if path.is_dir():
        raise IsADirectoryError(
            f"{name} must be a file to write. Received a directory: {path}"
        )
    check_writable(path)


def _check_new_folder(name: str, path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(
            f"{name} must be a directory to write to. Received a file: {path}"
        )
    check_writable(path)


def _check_new(name: str, path: Path) -> None:
    if path.exists():
        raise FileExistsError(f"{name} must be new. Received: {path}")
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


#: A type, what a value must be, and what must be there before TensorFlow is imported.
RunDir = Annotated[Path, check_path, _check_run]
RunOrOther = Annotated[Path, check_path, _check_run_or_other]
AnyPath = Annotated[Path, check_path]
AnyFile = Annotated[Path, check_path, _check_file]
TextFile = Annotated[Path, check_path, _check_text, _check_file]
TextOrPipe = Annotated[Path, check_path, _check_text]  # which is read but once
ColumnsFile = Annotated[Path, check_path, _check_lines, _check_file]
Sentences = Annotated[Path, check_path, _check_sentences]
OldFolder = Annotated[Path, check_path, _check_folder]
NewFile = Annotated[Path, check_path, _check_new_file]
NewFolder = Annotated[Path, check_path, _check_new_folder]
NewPlace = Annotated[Path, check_path, _check_new]


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a command, checked against their types."""

    #: Options of other programs, and what to type here; "" is a word too many.
    ELSEWHERE: ClassVar[dict[str, str]] = {}

    def __post_init__(self) -> None:
        """Checks all fields."""
        check_fields(self)

    def check_places(self) -> None:
        """Checks the paths, before a command imports TensorFlow.

        Raises:
            OSError, ValueError: Something is not there, or may not be written.
        """
        hints = hints_of(type(self))
        for field in dataclasses.fields(self):
            # As it is called where it is given.
            name = f"--{field.name}" if field.kw_only else field.name.upper()
            value = getattr(self, field.name)
            paths = value if isinstance(value, tuple) else (value,)
            for kind in kinds_of(hints[field.name]):
                if typing.get_origin(kind) is tuple:
                    kind = typing.get_args(kind)[0]
                for check in getattr(kind, "__metadata__", ())[1:]:
                    for path in paths if value is not None else ():
                        check(name, path)


def refuse_both(options: Options, *names: str) -> None:
    """Raises ValueError if two options are given that exclude each other."""
    if all(getattr(options, name) not in (None, ()) for name in names):
        all_names = ", ".join(f"--{name}" for name in names)
        raise ValueError(f"At most one of {all_names} can be given.")


@dataclasses.dataclass(frozen=True)
class RunOptions(Options):
    """Run.

    Args:
        run_dir: A run directory, as `keras-luong train` writes it.
        ensemble: Another run with the same tokenizers, used together as an ensemble;
            may be given several times.
        precision: Precision that the models compute in; by default as in training.
    """

    run_dir: RunDir
    _: KW_ONLY
    ensemble: tuple[RunDir, ...] = dataclasses.field(
        default=(), metadata={"one_by_one": True}
    )
    precision: Precision | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions(RunOptions):
    """Search (by default as in the run).

    Args:
        beam_width: Hypotheses that the search keeps at each step; 1 is greedy search.
        length_penalty: Favours longer translations: GNMT's alpha (Wu et al. 2016),
            such as 1; 0 for none.
        average: Divides scores by length to this power, instead of --length_penalty.
        coverage_penalty: Penalizes source words with little attention: GNMT's beta,
            such as 0.2; 0 for none.
        max_length: Longest translation, in tokens.
        min_length: Shortest translation, in tokens.
        no_repeat_ngram: Lets no n-gram of this size occur twice in a translation.
        no_unknown: Whether `<unk>` is excluded from translations.
        shortlist: File from `keras-luong shortlist`, for a faster search; not for
            .tflite files.
        max_source_length: Most tokens that are read of a source sentence.
    """

    beam_width: int | None = None
    length_penalty: NotNegative | None = None
    average: NotNegative | None = None
    coverage_penalty: NotNegative | None = None
    max_length: int | None = None
    min_length: Count | None = None
    no_repeat_ngram: Count | None = None
    no_unknown: bool = False
    shortlist: AnyFile | None = None
    max_source_length: int | None = None

    def __post_init__(self) -> None:
        """Checks all fields."""
        super().__post_init__()
        refuse_both(self, "length_penalty", "average")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusOptions(Options):
    """Data (by default as in the run).

    Args:
        data: A folder of text files, a file of both sides (.tsv, .csv, .jsonl,
            .parquet, .tmx, .xliff, .po), two files with a comma between them, a name in
            tensorflow-datasets, or "phrases".
        source: Language to translate from.
        target: Language to translate into.
    """

    data: str | None = None
    source: str | None = None
    target: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineOptions(Options):
    """Engine.

    Args:
        engine: What does the work: local is this process; ray is a pool of workers on
            this machine or a cluster, which can go on after it was killed.
        address: Address of a Ray cluster; by default Ray runs on this machine.
        workers: Number of Ray's workers; by default one for each processor.
    """

    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        """Checks all fields, and that those of Ray are for Ray."""
        super().__post_init__()
        if self.engine != "ray":
            for name in ("address", "workers"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs --engine ray, which is missing.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions(EngineOptions, SearchOptions):
    """Files and output.

    Args:
        input: File to translate, plain or gzip; standard input by default. Of .tsv,
            .csv, .jsonl, .parquet, .tmx, .xliff and .po the texts of the run's source
            language.
        output: File to write, gzip if its name ends in .gz; standard output by default.
            Of Parquet --engine ray writes Parquet, with a column "translation".
        column: Name of the column to translate, of .tsv, .csv, .jsonl, .parquet; by
            default that of the language, or the only one.
        constraints: File of what each line's translation must contain: phrases with
            tabs between them, or an empty line.
        prefixes: File of how each line's translation must begin; an empty line for any.
        terms: File of lines "source term TAB target term": where a line has the one,
            its translation must contain the other.
        tag: Name of a tag that the run was trained with, put in front of each line.
        n_best: Translations of each line; several are written as "number |||
            translation ||| score".
        scores: Whether scores are written too.
        alignments: Whether word alignments are written too.
        pictures: Folder for a picture of each line's attention, between words.
        pieces: Whether pictures show the pieces of words that the model sees.
        batch_size: Lines to translate at once.
        window: Lines to read ahead and sort by length.
    """

    ELSEWHERE: ClassVar[dict[str, str]] = {"": "--input"}

    input: AnyPath | None = None
    output: AnyPath | None = None
    column: str | None = None
    constraints: ColumnsFile | None = None
    prefixes: TextFile | None = None
    terms: ColumnsFile | None = None
    tag: str | None = None
    n_best: int = 1
    scores: bool = False
    alignments: bool = False
    pictures: NewFolder | None = None
    pieces: bool = False
    batch_size: int = 32
    window: int = 1024

    def __post_init__(self) -> None:
        """Checks all fields, and what cannot be together with --engine ray."""
        super().__post_init__()
        has_columns = self.input is not None and form_of(self.input) not in (
            None,
            "units",
        )
        if self.column is not None and not has_columns:
            raise ValueError(
                "column is of a .tsv, .csv, .jsonl or .parquet file, which --input "
                f"must be. Received: {self.input}"
            )
        if self.engine != "ray":
            if self.output is not None and self.output.suffix == ".parquet":
                raise ValueError(f"Parquet needs --engine ray. Received: {self.output}")
            return
        if self.input is None or self.output is None:
            raise ValueError(
                "engine ray needs --input and --output, files that workers can share."
            )
        if self.pictures is not None:
            raise ValueError(
                "pictures are drawn by --engine local only: leave out one of both."
            )

    def check_places(self) -> None:
        """Checks the paths; only --engine ray writes Parquet, and folders of it."""
        super().check_places()
        if self.input is not None:
            if self.engine == "ray" and form_of(self.input) == "parquet":
                return  # see there
            if form_of(self.input) is None:  # which is read but once
                _check_text("--input", self.input)
            else:
                _check_sentences("--input", self.input)
                self._check_language(self.input)
        if self.output is not None:
            _check_new_file("--output", self.output)

    def _check_language(self, path: Path) -> None:
        """Refuses a file that has several regions of the run's source language."""
        language = read_record(self.run_dir)["settings"].get("source")
        if language and self.column is None:
            todo = "Name one of them by --column."
            if form_of(path) == "units":
                todo = "docs/evaluation.md makes a text file of one of them."
            find_side(language, names_in(path), path, "source", todo)
