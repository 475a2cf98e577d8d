"""Reads a command line of `keras-luong`: its help, its options, what is wrong with it.

How help looks: names in the margin, texts beside them, no boxes and no colours.
"""

from __future__ import annotations

import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import cyclopts
from cyclopts.help import HelpPanel, PlainFormatter

from keras_luong.cli.errors import MISTAKES, PROG, fail, told
from keras_luong.cli.options import (
    COMMANDS,
    Options,
    RunOptions,
    metavar,
    no_option,
    signature,
    suggestion,
    training_options,
    training_signature,
    with_dashes,
)
from keras_luong.version import __version__

MARGIN = 28


class Formatter(PlainFormatter):
    """Writes one panel of a command's help."""

    def __call__(self, console: Any, options: Any, panel: HelpPanel) -> None:
        """Writes the panel, if it has anything."""
        if not panel.entries:
            return
        lines = [f"{panel.title}:"]
        for entry in panel.entries:
            lines += _wrapped(_head(entry), _text(entry), console.width)
        text = "\n".join(lines) + "\n"
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _head(entry: Any) -> str:
    """What stands in the margin, such as "--epochs INT" or "RUN_DIR"."""
    label = getattr(entry, "positional_label", None)  # cyclopts 4: a name
    names = ", ".join([label] if label else entry.all_options)
    is_option = names.startswith("-") and entry.type is not None
    return f"  {names} {metavar(entry.type) if is_option else ''}".rstrip()


def _text(entry: Any) -> str:
    notes = [str(_plain(entry.description))] if entry.description else []
    if entry.choices and len(entry.choices) > 1:
        notes.append(f"One of {', '.join(entry.choices)}.")
    told = "default" in notes[0] if notes else False
    if entry.default not in (None, "", "None") and not (
        told and entry.default == "none"
    ):
        notes.append(f"[default: {entry.default}]")
    return " ".join(notes)


def _plain(text: Any) -> Any:
    """The text of what cyclopts made of it."""
    plain = getattr(text, "primary_renderable", text)
    return getattr(plain, "plain", plain)


def _wrapped(head: str, text: str, width: int) -> list[str]:
    indent = " " * MARGIN
    first = [head] if len(head) > MARGIN - 2 else []
    start = indent if first else head.ljust(MARGIN)
    body = textwrap.wrap(
        text,
        width,
        initial_indent=start,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return [*first, *(body or [start.rstrip()])]


#: A command line that was read: the command, and what it runs with.
Parsed = tuple[str, Any]


def parse(argv: Sequence[str], prog: str = PROG) -> Parsed | None:
    """Reads a command line.

    Args:
        argv: The words after the program's name.
        prog: The program's name.

    Returns:
        The command, and its `Options` (of "train": a `TrainingConfig` and the run
        directory); None if help was asked for, and printed.

    Raises:
        SystemExit: With code 2, a mistake, which it tells.
    """
    if not argv:
        fail(prog, f"A command is needed: {', '.join(COMMANDS)}. See {prog} --help.")
    name = argv[0]
    app = _app(prog, has_version=name not in COMMANDS)
    try:
        for order, (other, command) in enumerate(COMMANDS.items()):
            reader = _reader(other, argv[1:]) if other == name else _nothing
            about = (
                command.about if other != name else f"{command.about} {command.more}"
            )
            app.command(reader, name=other, help=about, sort_key=order)
        function, bound, _ = app.parse_args(
            list(argv), print_error=False, exit_on_error=False
        )
    except cyclopts.CycloptsError as error:
        fail(prog, _reworded(error, argv, prog))
    try:
        found = function(*bound.args, **bound.kwargs)
    except MISTAKES as error:  # values that do not fit together
        message, code = told(error)
        fail(prog, with_dashes(message, argv), code)
    return (name, found) if isinstance(found, (Options, tuple)) else None


def _app(prog: str, has_version: bool) -> cyclopts.App:
    """The application, without commands; `export` has a --version of its own."""
    return cyclopts.App(
        name=prog,
        help="Translators with Luong's attention, from two text files to a server. Any "
        "command takes --debug, which shows the traceback of an error.",
        help_format="plaintext",
        version=lambda: __version__,
        version_flags=("--version",) if has_version else (),
        help_formatter=Formatter(),
        default_parameter=cyclopts.Parameter(
            name_transform=lambda name: name,  # learning_rate, not learning-rate
            negative_iterable=(),  # no --empty-ensemble
        ),
    )


def _nothing() -> None:
    """Stands for a command that this command line is not about."""


def _reader(name: str, argv: Sequence[str]) -> Callable[..., Any]:
    """A function that takes a command's options and returns them as its dataclass.

    Raises:
        CycloptsError: There is an option that the command has not.
    """
    options = COMMANDS[name].options
    is_training = name == "train"
    sign = training_signature(argv) if is_training else _signature(options)
    _check_names(name, sign, argv)

    def read(*args: Any, **kwargs: Any) -> Any:
        given = sign.bind(*args, **kwargs).arguments
        return training_options(given) if is_training else options(**given)

    read.__signature__ = sign  # type: ignore[attr-defined] # what cyclopts reads
    return read


def _signature(options: type[Options]) -> inspect.Signature:
    """A command's options, in a panel for each dataclass: its own after the run's."""
    classes = [cls for cls in options.__mro__ if issubclass(cls, Options)][:-1]
    classes.sort(key=lambda cls: cls is not RunOptions)
    return signature(
        {(cls.__doc__ or "").split(".\n")[0]: cls for cls in classes},
        positional=options.positional,
        exclusive=options.exclusive,
        repeated=options.repeated,
        complete=False,
    )


def _check_names(command: str, sign: inspect.Signature, argv: Sequence[str]) -> None:
    """Refuses options that there are not, before what is missing is told."""
    names = [f"--{name}" for name in sign.parameters]
    known = {*names, *(f"--no-{name}" for name in sign.parameters), "--help"}
    for word in itertools.takewhile(lambda word: word != "--", argv):
        option = word.partition("=")[0]
        if option.startswith("--") and option not in known:
            raise cyclopts.CycloptsError(msg=no_option(option, command, names))


def _reworded(error: cyclopts.CycloptsError, argv: Sequence[str], prog: str) -> str:
    """One or two sentences on what was received and what would be right."""
    error.verbose = False
    place = error.argument.name if error.argument else ""
    more = f"see {prog} {argv[0]} --help"
    match error:
        case cyclopts.UnknownCommandError():
            return f"There is no command {argv[0]}. {suggestion(argv[0], COMMANDS)}"
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
        case cyclopts.ValidationError(group=group) if group:
            names = re.findall(r"--\w+", error.exception_message)
            return f"At most one of {', '.join(names)} can be given."
        case cyclopts.UnusedCliTokensError():
            words = " ".join(error.unused_tokens or [])
            option = COMMANDS[argv[0]].options.stray
            meant = f"did you mean {option} {words}?" if option else f"{more}."
            return f"Nothing takes {words}: {meant}"
    return str(error)  # of an unknown option: "... Did you mean --learning_rate?"
