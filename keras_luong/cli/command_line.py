"""Reads a command line of `keras-luong`: options, help, and what is wrong with it.

Cyclopts reads the signature of a function; `signature` makes one of dataclasses: a
panel of the help for each, a parameter for each field, its text from the class's
docstring.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import itertools
import os
import re
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Annotated, Any

import cyclopts
import docstring_parser
from cyclopts.help import (
    ColumnSpec,
    DefaultFormatter,
    DescriptionRenderer,
    NameRenderer,
    PanelSpec,
    TableSpec,
)
from rich import box

from keras_luong.cli.errors import MISTAKES, PROG, fail, told
from keras_luong.cli.options import Options, RunOptions
from keras_luong.config.fields import choices_of, hints_of, kinds_of
from keras_luong.version import __version__

#: Each is a module of `keras_luong.cli`, with its options and its function `run`.
COMMANDS = (
    "train",
    "check",
    "translate",
    "evaluate",
    "score",
    "export",
    "verify",
    "average",
    "tune",
    "shortlist",
    "distill",
    "backtranslate",
    "compare",
)


def parse(argv: Sequence[str]) -> tuple[str, Any] | None:
    """Reads a command line.

    Args:
        argv: The words after the program's name.

    Returns:
        The command, and its `Options` (of "train": a `Training`); None if help was
        asked for, and printed.

    Raises:
        SystemExit: With code 2, a mistake, which it tells.
    """
    if not argv:
        fail(f"A command is needed: {', '.join(COMMANDS)}. See {PROG} --help.")
    name, *words = argv
    try:
        if name in COMMANDS:
            app = _command(name, words)
        elif name.startswith("-"):
            app, words = _all_commands(), list(argv)
        else:
            fail(f"There is no command {name}. {suggestion(name, COMMANDS)}")
        function, bound, _ = app.parse_args(
            ["--help" if word == "--help=all" else word for word in words],
            print_error=False,
            exit_on_error=False,
        )
        options = function(*bound.args, **bound.kwargs)
    except cyclopts.CycloptsError as error:
        fail(_reworded(error, argv))
    except MISTAKES as error:  # values that do not fit together
        message, code = told(error)
        fail(with_dashes(message, argv), code)
    return (name, options) if isinstance(options, (Options, tuple)) else None


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"keras_luong.cli.{command}")


def _about(command: str) -> str:
    """Returns a command's help by paragraphs: its module's docstring, and `HELP`."""
    module = _module(command)
    text = f"{module.__doc__}{getattr(module, 'HELP', '')}"
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _all_commands() -> cyclopts.App:
    """Makes the app that answers --help and --version without a command."""
    app = cyclopts.App(
        name=PROG,
        help="Translators with Luong's attention, from two text files to a server. Any "
        "command takes --debug, which shows the traceback of an error.",
        version=__version__,
        **_LOOK,
    )
    for order, name in enumerate(COMMANDS):
        about = _about(name).partition("\n\n")[0]
        app.command(lambda: None, name=name, help=about, sort_key=order)
    return app


def _command(name: str, argv: Sequence[str]) -> cyclopts.App:
    """Makes the app of one command, whose function returns its `Options`.

    Raises:
        CycloptsError: There is an option that the command has not.
    """
    module = _module(name)
    options: type[Options] = vars(module)[f"{name.capitalize()}Options"]
    make: Callable[..., Any] = options
    if name == "train":  # whose options depend on the preset
        sign, make = module.signature_of(argv), module.training
    else:
        classes = [cls for cls in options.__mro__ if issubclass(cls, Options)][:-1]
        classes.sort(key=lambda cls: cls is not RunOptions)
        sign = signature({(cls.__doc__ or "").split(".\n")[0]: cls for cls in classes})
    names = [f"--{name}" for name in sign.parameters]
    known = {*names, *(f"--no-{name}" for name in sign.parameters), "--help"}
    for word in itertools.takewhile(lambda word: word != "--", argv):
        option = word.partition("=")[0]
        if option.startswith("--") and option not in known:
            # Before what is missing is told.
            instead = options.ELSEWHERE.get(option[2:].replace("-", "_"))
            close = difflib.get_close_matches(option, names, 1)
            hint = f". Did you mean {close[0]}?" if close else f". See {name} --help."
            end = f": {instead}." if instead else hint
            raise cyclopts.CycloptsError(msg=f"There is no option {option}{end}")

    def read(*args: Any, **kwargs: Any) -> Any:
        return make(**sign.bind(*args, **kwargs).arguments)

    read.__signature__ = sign  # type: ignore[attr-defined] # what cyclopts reads
    app = cyclopts.App(
        name=f"{PROG} {name}", help=_about(name), version_flags=(), **_LOOK
    )
    app.default(read)
    app["--help"].show = False
    return app


_LONGEST_NAME = 34
_LOOK: dict[str, Any] = {
    "help_format": "plaintext",
    "help_formatter": DefaultFormatter(
        panel_spec=PanelSpec(box=box.SIMPLE, border_style="none"),
        table_spec=TableSpec(box=None, show_header=False),
        column_specs=(
            ColumnSpec(NameRenderer(_LONGEST_NAME), max_width=_LONGEST_NAME),
            ColumnSpec(DescriptionRenderer()),
        ),
    ),
    "default_parameter": cyclopts.Parameter(
        name_transform=lambda name: name,  # learning_rate, not learning-rate
        negative_iterable=(),  # no --empty-ensemble
    ),
}


def signature(
    panels: Mapping[str, type],
    defaults: Mapping[str, Any] | None = None,
    shown: Mapping[str, str] = MappingProxyType({}),
    hidden: Collection[str] = (),
) -> inspect.Signature:
    """The signature whose arguments are the fields of some dataclasses.

    Args:
        panels: Title in the help → dataclass.
        defaults: Other defaults than the dataclasses', by field, if what is not given
            is as they say. Flags then have an opposite, as --no-shared.
        shown: What help says in place of a default, by field.
        hidden: Fields that help does not show.
    """
    parameters: dict[str, inspect.Parameter] = {}
    for order, (title, config_class) in enumerate(panels.items()):
        panel = cyclopts.Group(title, sort_key=order)
        hints, texts = hints_of(config_class), _texts(config_class)
        own = vars(config_class).get("__annotations__", {})
        for field in dataclasses.fields(config_class):
            name, hint = field.name, hints[field.name]
            if name not in own:
                continue  # those above have panels too
            default = field.default
            if defaults is not None:
                default = defaults.get(name, default)
            is_shown = defaults is not None or default not in (None, False, ())
            told = shown.get(name, _shown(default, texts[name])) if is_shown else ""
            # At least one where there are several; none at all is not the default.
            several: bool | int = int(type(None) not in kinds_of(hint))
            if field.metadata.get("one_by_one"):
                several = False
            about = cyclopts.Parameter(
                help=texts[name],
                negative="" if defaults is None else None,
                allow_repeating=True,  # the last one counts: scripts can be overruled
                consume_multiple=several,
                group=panel,
                converter=_converter(hint),
                show_default=_saying(told) if told else False,
                show=name not in hidden,
            )
            by_place = issubclass(config_class, Options) and not field.kw_only
            parameters[name] = inspect.Parameter(
                name,
                _BY_PLACE if by_place else inspect.Parameter.KEYWORD_ONLY,
                default=_NO_DEFAULT if default is dataclasses.MISSING else default,
                annotation=Annotated[hint, about],
            )
    return inspect.Signature(sorted(parameters.values(), key=lambda x: x.kind))


_BY_PLACE = inspect.Parameter.POSITIONAL_ONLY
_NO_DEFAULT = inspect.Parameter.empty


def _texts(config_class: type) -> dict[str, str]:
    """Reads the help text of each field from a dataclass's docstring."""
    style = docstring_parser.DocstringStyle.GOOGLE
    params = docstring_parser.parse(inspect.getdoc(config_class) or "", style).params
    return {x.arg_name: " ".join((x.description or "").split()) for x in params}


def _shown(default: Any, text: str) -> str:
    """A default as help shows it; nothing of none where the text tells what it is."""
    if default is None:
        return "" if "default" in text else "none"
    if isinstance(default, bool):
        return "yes" if default else "no"
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _saying(text: str) -> Callable[[Any], str]:
    return lambda default: text


_WORDS = {int: "a whole number", float: "a number", Path: "a path", str: "a text"}


def _converter(hint: Any) -> Callable[[Any, Sequence[Any]], Any] | None:
    """Stricter than cyclopts: 1.5 is no int, and none is no path; None for its own."""
    for kind in kinds_of(hint):
        if kind is bool:
            return None
        if typing.get_origin(kind) is tuple:
            element = typing.get_args(kind)[0]
            return lambda _, tokens: tuple(_value(x.value, element) for x in tokens)
    return lambda _, tokens: _value(tokens[0].value, hint)


def _value(word: str, hint: Any) -> Any:
    """Converts a word of the command line to its type, or raises ValueError."""
    kinds = [getattr(kind, "__origin__", kind) for kind in kinds_of(hint)]
    if type(None) in kinds and word.lower() == "none":
        return None
    if word in choices_of(hint):
        return word
    if str in kinds and any("\ud800" <= letter <= "\udfff" for letter in word):
        raise ValueError(f"must be UTF-8. Received: {word!a}")  # as paths need not be
    for kind in kinds:
        try:
            if kind in _WORDS:
                return kind(word)
        except ValueError:
            pass
    words = [_WORDS[kind] for kind in kinds if kind in _WORDS]
    words += [*choices_of(hint), *(["none"] if type(None) in kinds else [])]
    either = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    raise ValueError(f"must be {either}. Received: {word}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Either "Did you mean train?", or all that there is.

    Args:
        word: What was received.
        known: What it could be.
    """
    close = difflib.get_close_matches(word, list(known), 1)
    return f"Did you mean {close[0]}?" if close else f"There are {', '.join(known)}."


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


def _reworded(error: cyclopts.CycloptsError, argv: Sequence[str]) -> str:
    """One or two sentences on what was received and what would be right."""
    error.verbose = False
    place = error.argument.name if error.argument else ""
    more = f"see {PROG} {argv[0]} --help"
    match error:
        case cyclopts.CoercionError(argument=argument) if argument and error.msg:
            return f"{argument.name} {error.msg}"
        case cyclopts.MissingArgumentError():
            given = error.keyword or (error.argument and error.argument.tokens)
            wanting = "needs a value" if given else "is missing"
            count = error.argument.token_count()[0] if error.argument else 1
            if given and count > 1:
                rest = argv[argv.index(place) + 1 :] if place in argv else []
                received = itertools.takewhile(lambda x: not x.startswith("--"), rest)
                wanting = f"needs {count} values, and has {' '.join(received)}"
            if not given and place.isupper():
                wanting += " (it comes before options that take several values)"
            return f"{error.keyword or place} {wanting}: {more}."
        case cyclopts.UnusedCliTokensError():
            words = " ".join(error.unused_tokens or [])
            options = vars(_module(argv[0]))[f"{argv[0].capitalize()}Options"]
            option = options.ELSEWHERE.get("")
            meant = f"did you mean {option} {words}?" if option else f"{more}."
            if not option and os.path.exists(words):
                meant = f"two files have a comma between them, as a.fr,a.en; {meant}"
            return f"Nothing takes {words}: {meant}"
    return str(error)
