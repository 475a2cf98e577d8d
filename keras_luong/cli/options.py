"""The commands of `keras-luong` and their options, as data.

Nothing here imports Keras or TensorFlow, so that help appears at once. Each command is
implemented in the module of its name, which is imported when the command runs.

How what is wrong with a command line is worded.

Kinds of paths that a command line names, checked before TensorFlow is imported.

An option's type says what must be there: `run_dir: RunDir`. So a wrong path is answered
at once, by every command.

Fields of dataclasses as a command line's arguments, for cyclopts.

Cyclopts reads a function's signature; `signature` makes one of dataclasses: a panel of
the help for each, a parameter for each field, and its text from the class's docstring.

Of tyro, jsonargparse and cyclopts, cyclopts is the one whose errors can be caught and
said in our own words, and which tells what was given from what was left to its default.

The options of `keras-luong train`: which there are, and what they ask for.

Nothing here imports Keras or TensorFlow, so that help appears at once.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import inspect
import os
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import cyclopts
import docstring_parser

from keras_luong.checks import check_file, check_path
from keras_luong.config.auto import CHOSEN, AutoTraining
from keras_luong.config.fields import (
    Count,
    NotNegative,
    Positive,
    Seed,
    check_fields,
    check_text,
    choices_of,
    hints_of,
    kinds_of,
)
from keras_luong.config.presets import PAPERS, PRESETS, RECIPES
from keras_luong.config.training import (
    BACK_TRANSLATED,
    EMBEDDED,
    DataConfig,
    EvaluationConfig,
    GoingOnConfig,
    OptimizationConfig,
    Precision,
    Tag,
    TrainingConfig,
    defaults,
    fields_of_run,
    model_config_class,
)
from keras_luong.files import read_raw_lines
from keras_luong.runs.run import check_run
from keras_luong.text.corpus_files import find_text


def suggestion(word: str, known: Iterable[str]) -> str:
    """Either "Did you mean train?", or all that there is.

    Args:
        word: What was received.
        known: What it could be.
    """
    close = difflib.get_close_matches(word, list(known), 1)
    return f"Did you mean {close[0]}?" if close else f"There are {', '.join(known)}."


_BESIDE = "such text lies beside that to learn from"
_VALIDATION = ("val", "valid", "validation", "dev")
_DEVICES = (
    "all GPUs of this machine are used; CUDA_VISIBLE_DEVICES=0,1 before the command "
    "says which, and --strategy one is one of them"
)
#: Options of other programs: what to type here.
ELSEWHERE = {
    "train": {
        **dict.fromkeys(_VALIDATION, f"{_BESIDE}, as val.fr and val.en"),
        **dict.fromkeys(("gpu", "gpus", "num_gpus", "device", "devices"), _DEVICES),
        "test": f"{_BESIDE}, as test.fr and test.en",
        "batch_size": "--batch_tokens 4096 is the size of a batch, in tokens",
        "lr": "--learning_rate 0.001 is the learning rate",
    },
    "evaluate": {
        **dict.fromkeys(
            _VALIDATION,
            "without --test, the run's own text to validate and to test by is scored",
        ),
    },
}


def no_option(option: str, command: str, known: Iterable[str]) -> str:
    """Says of an option that there is not what to type instead.

    Args:
        option: What was received, with its dashes.
        command: The command.
        known: The options that there are, with their dashes.
    """
    name = option.removeprefix("--").replace("-", "_")
    if (instead := ELSEWHERE.get(command, {}).get(name)) is not None:
        return f"There is no option {option}: {instead}."
    close = difflib.get_close_matches(option, list(known), 1)
    hint = f"Did you mean {close[0]}?" if close else f"See {command} --help."
    return f"There is no option {option}. {hint}"


def with_dashes(message: str, argv: Sequence[str]) -> str:
    """A message that names fields, with the options' names in their place.

    Args:
        message: What is wrong. A name of one word is taken for an option only where the
            message begins with it.
        argv: The command line, of which the options' names are known.
    """
    names = {"--init_from", *(word.partition("=")[0] for word in argv)}
    return re.sub(
        r"^\w+|(?<![-\w./])[a-z]+_\w+",
        lambda word: f"--{word[0]}" if f"--{word[0]}" in names else word[0],
        message,
    )


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
    if data == EMBEDDED or path.exists() or "," in data or ":" in data.split("/")[0]:
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


WORDS = {int: "a whole number", float: "a number", Path: "a path", str: "a text"}
_ONLY_BY_PLACE = inspect.Parameter.POSITIONAL_ONLY
_ONLY_BY_NAME = inspect.Parameter.KEYWORD_ONLY


def signature(
    panels: Mapping[str, type],
    defaults: Mapping[str, Any] | None = None,
    positional: Sequence[str] = (),
    exclusive: Sequence[str] = (),
    repeated: Sequence[str] = (),
    complete: bool = True,
    shown: Mapping[str, str] = MappingProxyType({}),
) -> inspect.Signature:
    """The signature whose arguments are the fields of some dataclasses.

    Args:
        panels: Title in the help → dataclass.
        defaults: Other defaults than the dataclasses', by field.
        positional: Fields that are given by their place.
        exclusive: Fields of which one at most can be given.
        repeated: Lists that take one value each time that they are given.
        complete: Whether defaults are what counts where nothing is given, so that flags
            have an opposite, as --no-shared, and help says none.
        shown: What help says in place of a default, by field.
    """
    exclude = cyclopts.Group(
        validator=cyclopts.validators.MutuallyExclusive(), show=False
    )
    parameters: dict[str, inspect.Parameter] = {}
    show = _shown if complete else _shown_unless_none
    for order, (title, config_class) in enumerate(panels.items()):
        panel = cyclopts.Group(title, sort_key=order)
        hints, texts = hints_of(config_class), _texts(config_class)
        for field in _own_fields(config_class):
            name, hint = field.name, hints[field.name]
            about = cyclopts.Parameter(
                help=texts[name],
                negative=None if complete else "",
                # The last one counts, so that aliases and scripts can be overruled.
                allow_repeating=True,
                # At least one where there are several; none at all is not the default.
                consume_multiple=_consumed(hint, name in repeated),
                group=(panel, exclude) if name in exclusive else panel,
                converter=_converter(hint),
                show_default=_saying(shown[name]) if name in shown else show,
            )
            parameters[name] = inspect.Parameter(
                name,
                _ONLY_BY_PLACE if name in positional else _ONLY_BY_NAME,
                default=(defaults or {}).get(name, _default(field)),
                annotation=Annotated[_plain(hint), about],
            )
    places = [*positional, *(name for name in parameters if name not in positional)]
    return inspect.Signature([parameters[name] for name in places])


def _own_fields(config_class: type) -> list[dataclasses.Field[Any]]:
    """The fields that a dataclass declares itself; those above have panels too."""
    own = vars(config_class).get("__annotations__", {})
    return [field for field in dataclasses.fields(config_class) if field.name in own]


def _shown(value: Any) -> Any:
    """A default as help shows it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def _saying(text: str) -> Callable[[Any], str]:
    return lambda default: text


def _shown_unless_none(value: Any) -> Any:
    return "" if value is None or value is False else _shown(value)


def _default(field: dataclasses.Field[Any]) -> Any:
    missing = field.default is dataclasses.MISSING
    return inspect.Parameter.empty if missing else field.default


def _texts(config_class: type) -> dict[str, str]:
    """What the docstring says of each field."""
    style = docstring_parser.DocstringStyle.GOOGLE
    params = docstring_parser.parse(inspect.getdoc(config_class) or "", style).params
    return {x.arg_name: " ".join((x.description or "").split()) for x in params}


def _plain(hint: Any) -> Any:
    """A type without what `keras_luong.config.fields` says of numbers."""
    kinds = [
        typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
        for kind in kinds_of(hint)
    ]
    return typing.Union[tuple(kinds)]  # noqa: UP007 (of a list)


def _consumed(hint: Any, is_repeated: bool) -> Any:
    """How many values a list takes at once: any number, but not none by mistake."""
    return False if is_repeated else 0 if type(None) in kinds_of(hint) else 1


def metavar(hint: Any) -> str:
    """What help shows for a value: "INT|none"; nothing for a flag.

    Example:
        >>> from keras_luong.cli.options import metavar
        >>> metavar(int | None)
        'INT|none'
    """
    names: list[str] = []
    for kind in kinds_of(_plain(hint)):
        if typing.get_origin(kind) is Literal:
            choices = typing.get_args(kind)
            names += choices if len(choices) == 1 else ["NAME"]
        elif kind is bool:
            return ""
        elif typing.get_origin(kind) is tuple:
            first, *rest = typing.get_args(kind)
            several = "..." if Ellipsis in rest else f" {metavar(first)}" * len(rest)
            names.append(f"{metavar(first)}{several}")
        else:
            names.append("none" if kind is type(None) else kind.__name__.upper())
    return "|".join(names)


def in_words(hint: Any) -> str:
    """A type as a sentence says it: "a whole number or none"."""
    choices = choices_of(hint)
    words = [WORDS[kind] for kind in kinds_of(_plain(hint)) if kind in WORDS]
    words += [*choices, *(["none"] if type(None) in kinds_of(hint) else [])]
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _converter(hint: Any) -> Callable[[Any, Sequence[Any]], Any] | None:
    """Stricter than cyclopts: 1.5 is no int, and none is no path; None for its own."""
    kinds = kinds_of(_plain(hint))
    if bool in kinds:
        return None
    for kind in kinds:
        if typing.get_origin(kind) is tuple:
            element = typing.get_args(kind)[0]
            return lambda _, tokens: tuple(_read(x.value, element) for x in tokens)
    return lambda _, tokens: _read(tokens[0].value, hint)


def _read(word: str, hint: Any) -> Any:
    """The value that a word of the command line stands for."""
    kinds = kinds_of(_plain(hint))
    if type(None) in kinds and word.lower() == "none":
        return None
    if word in choices_of(hint):
        return word
    if str in kinds and any("\ud800" <= letter <= "\udfff" for letter in word):
        raise ValueError(f"must be UTF-8. Received: {word!a}")  # as paths need not be
    for kind in kinds:
        try:
            if kind in WORDS:
                return kind(word)
        except ValueError:
            pass
    raise ValueError(f"must be {in_words(hint)}. Received: {word}")


#: What help says of what a corpus decides.
_CHOSEN_BY_AUTO = {
    **dict.fromkeys(CHOSEN, "by the size of the corpus"),
    **dict.fromkeys(("source", "target"), "found in the corpus"),
}


def training_signature(argv: Sequence[str]) -> inspect.Signature:
    """The options that there are: those of a preset's model among them.

    Args:
        argv: The words after "train", of which one may name the preset.

    Raises:
        CycloptsError: There is no such preset, or no such run to start from.
    """
    preset = _preset_of(argv)
    model = {"Model (what is not given is the preset's)": model_config_class(preset)}
    panels = {"Run": TrainOptions, **TRAINING, **model}
    said = {**defaults(preset), **PRESETS[preset].fields}
    if preset == "auto":
        said["data"] = ""  # without one it says what it needs
    shown = _CHOSEN_BY_AUTO if preset == "auto" else {}
    made = signature(panels, said, shown=shown)
    sizes = ("source_vocab_size", "target_vocab_size")  # of the tokenizers
    rest = {name: x for name, x in made.parameters.items() if name not in sizes}
    by_place_too = inspect.Parameter.POSITIONAL_OR_KEYWORD
    data = rest.pop("data").replace(kind=by_place_too)
    return made.replace(parameters=[data, *rest.values()])


class Training(NamedTuple):
    """What `train` is asked for: see `TrainOptions`."""

    config: TrainingConfig | AutoTraining
    run_dir: Path
    distill: bool = False

    def check_places(self) -> None:
        """Checks the paths, before TensorFlow is imported."""
        check_corpus("data", self.config.data)
        if self.config.data != EMBEDDED:
            find_text(self.config.data, self.config.source, self.config.target)
        if self.run_dir.is_file():
            raise NotADirectoryError(
                f"--run_dir must be a directory. Received a file: {self.run_dir}"
            )
        check_writable(self.run_dir)


def training_options(given: Mapping[str, Any]) -> Training:
    """What is asked for by the options that were given."""
    changes = dict(given)
    distill = changes.pop("distill", False)
    run_dir = changes.pop("run_dir", None) or default_run_dir(changes)
    if (start := changes.pop("init_from", None)) is not None:
        if distill:
            raise ValueError(
                "--distill trains models from nothing, and --init_from starts from a "
                f"run: give one of them. Received: both, --init_from {start}"
            )
        return Training(TrainingConfig.from_run(start, **changes), run_dir)
    preset = changes.pop("preset", TrainOptions.preset)
    if preset != "auto":
        config = TrainingConfig.from_preset(preset, **changes)
        return Training(config, run_dir, distill)
    corpus = changes.pop("data", ""), changes.pop("source", None)
    training = AutoTraining(*corpus, changes.pop("target", None), given=changes)
    if not training.data:
        raise ValueError(
            "DATA is missing: a folder with the text, as in keras-luong train "
            "my/corpus --source fr --target en"
        )
    return Training(training, run_dir, distill)


def default_run_dir(given: Mapping[str, Any]) -> Path:
    """Where a run goes if nothing is said: runs/CORPUS-SOURCE-TARGET.

    One that starts from another run, on the same corpus, goes to runs/RUN-more.

    Args:
        given: The options of `train` that were given.
    """
    data, start = given.get("data"), given.get("init_from")
    name = Path(data or start or given.get("preset", "auto")).resolve().name
    name += "-more" if start and not data else ""
    parts = name, given.get("source"), given.get("target")
    return Path("runs", re.sub(r"\s+", "_", "-".join(filter(None, parts))))


def _preset_of(argv: Sequence[str]) -> str:
    """The preset that the command line names, or that of the run to start from."""
    preset = _value_of("--preset", argv)
    if preset is None and (start := _value_of("--init_from", argv)) is not None:
        try:
            return str(fields_of_run(start)["preset"])
        except (OSError, ValueError) as error:
            message = with_dashes(str(error), argv)
            raise cyclopts.CycloptsError(msg=message) from error
    preset = TrainOptions.preset if preset is None else preset
    if preset not in PRESETS:
        hint = suggestion(preset, PRESETS)
        message = f"There is no preset {preset or '(none given)'}. {hint}"
        raise cyclopts.CycloptsError(msg=message)
    return preset


def _value_of(option: str, argv: Sequence[str]) -> str | None:
    """What the command line says of an option, the last time; None if nothing."""
    value, words = None, iter(argv)
    for word in words:
        if word == option or word.startswith(f"{option}="):
            value = word.partition("=")[2] or next(words, "")
    return value


_PARQUET = ".parquet"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a command, checked against their types."""

    #: Options that are given by position.
    positional: ClassVar[tuple[str, ...]] = ("run_dir",)
    #: Options of which at most one can be given.
    exclusive: ClassVar[tuple[str, ...]] = ()
    #: Lists that take one value each time that they are given.
    repeated: ClassVar[tuple[str, ...]] = ("ensemble",)
    #: The option that further words are probably meant for.
    stray: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Checks all fields."""
        check_fields(self)

    def check_places(self) -> None:
        """Checks the paths, before a command imports TensorFlow.

        Raises:
            OSError, ValueError: Something is not there, or may not be written.
        """
        check_places(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """Run.

    Args:
        run_dir: A run directory, as `keras-luong train` writes it.
        ensemble: Another run with the same tokenizers, used together as an ensemble;
            may be given several times.
        precision: Precision that the models compute in; by default as in training.
    """

    run_dir: RunDir
    ensemble: tuple[RunDir, ...] = ()
    precision: Precision | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions(Options):
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

    exclusive = ("length_penalty", "average")

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusOptions(Options):
    """Data (by default as in the run).

    Args:
        data: A folder of text files, a file of tab-separated columns, two files with a
            comma between them, a name in tensorflow-datasets, or "phrases".
        source: Language to translate from.
        target: Language to translate into.
    """

    data: CorpusName | None = None
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
class TrainOptions(Options):
    """Run.

    Args:
        run_dir: Directory for all results; by default one in runs/ with the name of
            the corpus, or of the run to start from. An existing run is resumed.
        preset: What is not said otherwise: auto chooses it by the size of the corpus;
            others are a model of a fixed size, and some also how to train it.
        distill: Trains three models first, which differ in their seed, and then one
            that also learns from their translations: better, and several times longer.
    """

    positional = ()

    run_dir: Path | None = None
    preset: str = "auto"
    distill: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslateOptions(EngineOptions, SearchOptions, RunOptions):
    """Files and output.

    Args:
        input: File to translate, plain or gzip; standard input by default. With
            --engine ray also a .parquet file, or a folder of them.
        output: File to write, gzip if its name ends in .gz; standard output by default.
            Of Parquet it is Parquet, with a column "translation".
        column: Name of the column to translate, of Parquet; by default the only one of
            strings.
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

    stray = "--input"

    input: AnyPath | None = None
    output: AnyPath | None = None
    column: str | None = None
    constraints: TextFile | None = None
    prefixes: TextFile | None = None
    terms: TextFile | None = None
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
        if self.engine != "ray":
            if self.column is not None:
                raise ValueError("column needs --engine ray, which is missing.")
            if self.input is not None and self.input.suffix == _PARQUET:
                raise ValueError(f"Parquet needs --engine ray. Received: {self.input}")
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
        """Checks the paths; only --engine ray takes Parquet, and folders of it."""
        super().check_places()
        text, out = self.input, self.output
        if self.engine == "ray" and text and (text.is_dir() or text.suffix == _PARQUET):
            return
        if text is not None:
            check_text_file("input", text)
        if out is not None:
            check_new_file("output", out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CorpusOptions, SearchOptions, RunOptions):
    """Evaluation.

    Args:
        run_dir: A run directory, as `keras-luong train` writes it; not needed with
            --hypotheses.
        test: A source file and its reference, plain or gzip; by default the held-out
            splits of the run's data.
        tag: Name of a tag that the run was trained with, put in front of each source;
            by default the run's own one in front of its own data.
        against: Another run to compare the run with, by paired bootstrap.
        hypotheses: Files of translations of --test, to score without a run; or to
            compare with the run or with the first of them.
        bleu_tokenize: sacrebleu's tokenisation; auto is the run's, or without a run
            that of the language that the reference's name ends in.
        worst: Number of worst translations to print, by the chrF of the sentence.
        report: HTML file to write, with all figures, and the worst and the best
            translations with their attention.
        json: JSON file to write the same to.
        output: Folder to write the translations to.
        show: Number of translations to print, the first ones.
        batch_size: Sentences to translate at once.
    """

    stray = "--test"

    run_dir: RunDir | None = None  # type: ignore[assignment]  # hypotheses need none
    test: tuple[TextFile, TextFile] | None = None
    tag: str | None = None
    against: RunDir | None = None
    hypotheses: tuple[TextFile, ...] = ()
    bleu_tokenize: str = "auto"
    worst: Count = 3
    report: NewFile | None = None
    json: NewFile | None = None
    output: NewFolder | None = None
    show: Count = 0
    batch_size: int = 32

    def __post_init__(self) -> None:
        """Checks all fields, and that there is something to score."""
        super().__post_init__()
        if self.hypotheses and not self.test:
            raise ValueError("hypotheses needs --test, which they are translations of.")
        if self.test and self.data:
            raise ValueError("At most one of --test, --data can be given.")
        if self.run_dir is None:
            if not self.hypotheses:
                raise ValueError(
                    "RUN_DIR is missing: give a run, or --hypotheses FILE to score a "
                    "file of translations."
                )
            self._refuse_what_needs_a_run()

    def _refuse_what_needs_a_run(self) -> None:
        needy = [*dataclasses.fields(SearchOptions), *dataclasses.fields(RunOptions)]
        of_runs = ("against", "output", "data", "tag")
        names = {*(field.name for field in needy), *of_runs}
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        given = [x for x in sorted(names) if getattr(self, x) != defaults[x]]
        if given:
            raise ValueError(f"{given[0]} needs RUN_DIR, which is missing.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreOptions(RunOptions):
    """Files and output.

    Args:
        source: File of source sentences, plain or gzip.
        target: File of their translations.
        output: File to write; standard output by default.
        alignments: Whether word alignments are written too.
        batch_size: Pairs to score at once.
        window: Lines to read ahead and sort by length.
    """

    positional = ("run_dir", "source", "target")

    source: TextFile
    target: TextFile
    output: NewFile | None = None
    alignments: bool = False
    batch_size: int = 32
    window: int = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions(SearchOptions, RunOptions):
    """Export.

    Args:
        out: The model's directory, in which the SavedModel is written to VERSION/; or a
            file whose name ends in .tflite.
        web: Folder for a page that translates in the browser, instead of OUT; npm
            builds it.
        check: Text to translate with the run and the export, to compare them; by
            default a sentence of the run's validation data.
        version: Version of the SavedModel, by default 1; servers load the highest.
        overwrite: Whether to replace an existing version, or the page in its folder.
        max_batch_size: Most texts in one request, by default 256; larger ones fail
            (SavedModel).
        warmup: Texts that a server translates before it takes requests; by default the
            check text, if tensorflow-serving-api is installed (SavedModel).
        quantize: Stores weights in 16 or 8 bits: half or a quarter of the size
            (.tflite, page).
        source_length: Fixed number of source tokens, for runtimes that need fixed
            shapes, such as LiteRT.js; by default any length (.tflite), or 64 (page).
        n_best: Translations to return for each text; by default as in the run
            (.tflite), or as many as the beam has (page).
    """

    positional = ("run_dir", "out")

    out: Path | None = None
    web: Path | None = None
    check: str | None = None
    version: int | None = None
    overwrite: bool = False
    max_batch_size: int | None = None
    warmup: tuple[str, ...] | None = None
    quantize: Literal["float16", "int8"] | None = None
    source_length: int | None = None
    n_best: int | None = None

    def __post_init__(self) -> None:
        """Checks all fields, and that there is one place to write to."""
        super().__post_init__()
        if (self.out is None) == (self.web is None):
            raise ValueError(
                "Give one of OUT, a directory or a file whose name ends in .tflite, "
                "and --web FOLDER."
            )

    def check_places(self) -> None:
        """Checks the paths, and that the version is a new one or may be replaced."""
        super().check_places()
        if self.out is None:
            return
        check_writable(self.out)
        if self.out.suffix.lower() == ".tflite":
            if self.out.is_dir():
                raise IsADirectoryError(f"OUT must be a file. Received: {self.out}/")
            return
        if self.out.is_file():
            raise NotADirectoryError(
                "OUT must be a directory, or a file whose name ends in .tflite. "
                f"Received: {self.out}"
            )
        version = 1 if self.version is None else self.version
        if (self.out / str(version)).exists() and not self.overwrite:
            names = [x.name for x in self.out.iterdir() if x.name.isdecimal()]
            raise FileExistsError(
                f"{self.out / str(version)} exists: give --overwrite to replace it, or "
                f"--version {max(map(int, names)) + 1} for a new one beside it."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyOptions(SearchOptions, RunOptions):
    """Verification.

    Args:
        source: File of source sentences, one a line.
        reference: File of their reference translations, for BLEU.
        bleu_tokenize: sacrebleu's tokenisation; auto is the run's.
        saved_model: Directory of an exported version, such as MODEL/1.
        tflite: Exported .tflite files; needs keras-luong-edge.
        batch_size: Sentences to translate at once (.tflite files take one).
        show: Differing lines to print for each export.
    """

    positional = ("run_dir", "source")

    source: TextFile
    reference: TextFile | None = None
    bleu_tokenize: str = "auto"
    saved_model: OldFolder | None = None
    tflite: tuple[AnyFile, ...] = ()
    batch_size: int = 32
    show: Count = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class AverageOptions(Options):
    """Run.

    Args:
        run_dir: A run directory that kept the weights of its epochs.
        out: New run directory; by default RUN_DIR-average.
        last: Number of last epochs to average; by default up to 5.
        weights: Weight files to average instead.
    """

    exclusive = ("last", "weights")

    run_dir: RunDir
    out: Path | None = None
    last: int | None = None
    weights: tuple[AnyFile, ...] = ()

    @property
    def place(self) -> Path:
        """The new run directory."""
        path = self.run_dir.resolve()
        return self.out or path.with_name(f"{path.name}-average")

    def check_places(self) -> None:
        """Checks the paths, and that the new run directory is new or empty."""
        super().check_places()
        check_writable(self.place)
        if self.place.exists() and any(self.place.glob("*")):
            raise FileExistsError(
                f"{self.place} exists and is not empty: give another directory, as "
                f"--out {self.place}-2, or remove it."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneOptions(CorpusOptions):
    """Run and values to try.

    Args:
        run_dir: A run directory; the best values become its search settings.
        beam_widths: Beam widths to try; by default the run's.
        length_penalties: Length penalties to try (GNMT's alpha).
        bleu_tokenize: sacrebleu's tokenisation; auto is the run's.
    """

    run_dir: RunDir
    beam_widths: tuple[int, ...] = ()
    length_penalties: tuple[NotNegative, ...] = (0.0, 0.4, 0.8, 1.0, 1.2, 1.4, 1.6)
    bleu_tokenize: str = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShortlistOptions(CorpusOptions):
    """Run and shortlist.

    Args:
        run_dir: A run directory.
        out: File to write; by default RUN_DIR/shortlist.npz.
        per_word: Likely translations to keep for each source word.
        frequent: Number of most frequent target words that every sentence may use.
        limit_examples: Number of pairs to learn from; by default all.
    """

    run_dir: RunDir
    out: NewFile | None = None
    per_word: int = 50
    frequent: Count = 400
    limit_examples: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillOptions(EngineOptions, CorpusOptions):
    """Runs and distillation.

    Args:
        run_dirs: Run directories with the same tokenizers, used together as an
            ensemble with the first run's search.
        out: New directory for the text files.
        precision: Precision that the models compute in.
    """

    positional = ("run_dirs",)

    run_dirs: tuple[RunDir, ...]
    out: NewPlace
    precision: Precision = "float32"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BacktranslateOptions(EngineOptions, SearchOptions, RunOptions):
    """Back-translation.

    Args:
        data: The corpus to learn from, as `train` takes it.
        mono: File of text in the language that the run translates from, which is the
            corpus's target language; a sentence a line, plain or gzip.
        out: New directory for the text files.
        source: Language to translate from with the new corpus; by default what the run
            translates into.
        target: Language to translate into; by default what the run translates from.
        tag: Name of the tag in front of the sources that are made: bt becomes the
            token `<bt>`.
        limit: Most lines to translate, the first ones; by default all.
        repeat_real: How often each pair of the corpus is written.
        sampling: Draws the sources at random, by the probabilities of their words,
            instead of searching for the best.
        temperature: Below 1 such sources are more alike, above 1 more varied; by
            default 1.
        top_k: Number of most probable words to draw each from; by default all.
        seed: Seed of what is drawn; by default 1.
    """

    data: CorpusName
    mono: TextFile
    out: NewPlace
    source: str | None = None
    target: str | None = None
    tag: Tag = BACK_TRANSLATED
    limit: int | None = None
    repeat_real: int = 1
    sampling: bool = False
    temperature: Positive | None = None
    top_k: int | None = None
    seed: Seed | None = None

    def __post_init__(self) -> None:
        """Checks all fields, and that all are of one kind of search."""
        super().__post_init__()
        if not self.sampling:
            for name in ("temperature", "top_k", "seed"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs --sampling, which is missing.")
            return
        for field in dataclasses.fields(SearchOptions):
            given = getattr(self, field.name) != field.default
            if given and field.name not in ("max_length", "max_source_length"):
                raise ValueError(
                    f"{field.name} is for a beam search, and --sampling is none: give "
                    "one of them."
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """Runs.

    Args:
        run_dirs: Run directories, one or more.
        flags: Settings to show; by default those that differ.
    """

    positional = ("run_dirs",)

    run_dirs: tuple[OldPlace, ...]
    flags: tuple[str, ...] = ()


class Command(NamedTuple):
    """A command of `keras-luong`.

    Attributes:
        options: The dataclass of its options.
        about: What it does, in one sentence.
        more: Further sentences for its help.
    """

    options: type[Options]
    about: str
    more: str = ""


COMMANDS = {
    "train": Command(
        TrainOptions,
        "Trains a translator on a corpus.",
        "It needs the corpus and its languages, as in: train my/corpus --source fr "
        "--target en. The same command again goes on where it stopped. Presets: "
        f"{', '.join(RECIPES)}. Presets of papers, in their sizes: "
        f"{', '.join(PAPERS)}. --preset NAME --help shows what NAME says.",
    ),
    "translate": Command(TranslateOptions, "Translates lines of text."),
    "evaluate": Command(
        EvaluateOptions,
        "Scores translations by BLEU, chrF and TER, and compares those of two runs.",
    ),
    "score": Command(
        ScoreOptions, "Tells how probable given translations are, a line each."
    ),
    "export": Command(
        ExportOptions, "Writes a SavedModel, a .tflite file or a web page of a run."
    ),
    "verify": Command(
        VerifyOptions, "Compares what exports say with what their run says."
    ),
    "average": Command(
        AverageOptions, "Averages the weights of a run's last epochs, as a new run."
    ),
    "tune": Command(
        TuneOptions, "Chooses a run's beam width and length penalty by validation BLEU."
    ),
    "shortlist": Command(
        ShortlistOptions,
        "Learns which target words a source word becomes, for a faster search.",
    ),
    "distill": Command(
        DistillOptions,
        "Writes a corpus that also has what runs make of its training sources.",
    ),
    "backtranslate": Command(
        BacktranslateOptions,
        "Writes a corpus that also has target text alone, which a run translates back.",
        "The run translates the other way: from the corpus's target language.",
    ),
    "compare": Command(
        CompareOptions, "Prints a table of runs: settings that differ, and results."
    ),
}

#: The configurations whose fields are options of `train`, beside `TrainOptions`.
TRAINING = {
    "Data": DataConfig,
    "Training": OptimizationConfig,
    "Going on from another run": GoingOnConfig,
    "Evaluation": EvaluationConfig,
}
