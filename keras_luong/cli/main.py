"""`keras-luong`: finds the command, reads its options, runs it, says what was wrong.

How help looks: names in the margin, texts beside them, no boxes and no colours.
"""

from __future__ import annotations

import contextlib
import dis
import importlib
import inspect
import itertools
import os
import platform
import re
import signal
import sys
import tempfile
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from types import FrameType
from typing import Any, NoReturn

import cyclopts
from cyclopts.help import HelpPanel, PlainFormatter

from keras_luong.checks import check_tensorflow
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
from keras_luong.files import DiskError, disk_is_full, naming, remove_unfinished
from keras_luong.quiet import quietly
from keras_luong.signals import answered

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


PROG = "keras-luong"
MISTAKES = (TypeError, ValueError, OSError, ImportError, FloatingPointError)

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
        _fail(prog, f"A command is needed: {', '.join(COMMANDS)}. See {prog} --help.")
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
        _fail(prog, _reworded(error, argv, prog))
    try:
        found = function(*bound.args, **bound.kwargs)
    except MISTAKES as error:  # values that do not fit together
        message, code = _told(error)
        _fail(prog, with_dashes(message, argv), code)
    return (name, found) if isinstance(found, (Options, tuple)) else None


def main(
    argv: Sequence[str] | None = None,
    run: Callable[[Any], Any] | None = None,
    ready: Callable[[], Any] = int,
) -> None:
    """Runs a command line.

    A mistake is a sentence or two on standard error, and exit code 2; `--debug` shows
    the traceback. Ctrl-C exits with 130, SIGTERM with 143.

    Args:
        argv: The words after the program's name; by default the process's.
        run: What to do with the options; by default what the command does.
        ready: Is called before what the command needs is imported.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words

    def work() -> None:
        parsed = parse([word for word in words if word != "--debug"])
        if parsed is None:
            return
        name, options = parsed
        check_tensorflow()
        options.check_places()
        _use_onednn()
        with contextlib.nullcontext() if debug else _quiet():
            ready()
            command = run or importlib.import_module(f"keras_luong.cli.{name}").run
        with warnings_as_notes():
            command(options)

    run_carefully(work, debug)


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Says what users are warned of plainly, without the line of code."""
    show = warnings.showwarning

    def note(message: Any, category: Any, *place: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            print(f"note: {message}", file=sys.stderr)
        else:
            show(message, category, *place, **more)

    with warnings.catch_warnings():
        warnings.showwarning = note
        yield


def _use_onednn() -> None:
    """Has TensorFlow compute by oneDNN, unless the user's environment says otherwise.

    On Linux it does so by itself only where the processor has VNNI, bfloat16 or AMX.
    Without them a training is faster by it too (docs/speed.md); on ARM that was not
    measured. It reads this once, while it is imported.
    """
    x86 = platform.machine() in ("x86_64", "AMD64")
    if x86 and "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def _quiet() -> contextlib.AbstractContextManager[None]:
    """Keeps TensorFlow from describing the machine, which would hide what we say.

    It obeys its variable for the level of messages only once it is loaded, and writes
    past Python's `sys.stderr` until then. Where loading fails, all is told.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return quietly()


def run_carefully(run: Callable[[], Any], debug: bool = False, prog: str = PROG) -> Any:
    """Runs, and ends the process with a sentence where something is wrong.

    Args:
        run: What to run.
        debug: Whether to show tracebacks.
        prog: The program's name.

    Returns:
        What `run` returns.

    Raises:
        SystemExit: With code 2 for a mistake, 1 for what went wrong otherwise, 130
            for Ctrl-C and 143 for SIGTERM.
    """
    with answered(remove_unfinished) as signals:
        try:
            done = run()
            with naming("Standard output"):
                print(end="", flush=True)
            return done
        except BrokenPipeError:  # who reads has read enough, as `head` does
            _drop_output()
        except BaseException as error:
            if signals.first or isinstance(error, KeyboardInterrupt):
                code = 128 + (signals.first or signal.SIGINT)
                raise SystemExit(code) from error
            if debug or not isinstance(error, Exception):
                raise
            try:
                print(end="", flush=True)
            except OSError:  # Python would try again at its end
                _drop_output()
            _fail(prog, *_told(error))


def _drop_output() -> None:
    with contextlib.suppress(OSError, AttributeError):  # there may be none
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(error: Exception) -> tuple[str, int]:
    """What is said of an error, and the exit code.

    What the library refuses it raises itself, and a user can put right. An error that
    an instruction of Python's has, or a library below, is no mistake of users.
    """
    message = " ".join(str(error).split()) or type(error).__name__
    if (reason := disk_is_full(error)) and not isinstance(error, DiskError):
        where = getattr(error, "filename", None) or (
            f"A file, standard output or the directory {tempfile.gettempdir()}"
        )
        return f"{where} cannot be written: {reason}. (--debug shows where.)", 2
    if isinstance(error, OSError):
        return message, 2
    trace = list(traceback.walk_tb(error.__traceback__))
    *_, (last, _) = trace
    if _is_ours(last) and _is_raised(error) and isinstance(error, MISTAKES):
        return message, 2
    own = _is_ours(last) and isinstance(error, RuntimeError) and _is_raised(error)
    machine = isinstance(error, (ImportError, MemoryError))
    if own or machine or type(error).__name__ == "ResourceExhaustedError":
        return f"{message} (--debug shows where.)", 1
    frame, line = [place for place in trace if _is_ours(place[0])][-1]
    library = "" if _is_ours(last) else f" or of {_module(last).partition('.')[0]}"
    return (
        f"This is a fault of keras-luong{library}, in {_module(frame)}, line {line}: "
        f"{type(error).__name__}: {message:.500} (--debug shows all of it.)"
    ), 1


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_ours(frame: FrameType) -> bool:
    return _module(frame).partition(".")[0] == "keras_luong"


def _is_raised(error: Exception) -> bool:
    """Whether an error comes from a `raise`, and not from what an instruction does."""
    trace: Any = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    instruction = trace.tb_frame.f_code.co_code[trace.tb_lasti]
    return dis.opname[instruction] == "RAISE_VARARGS"


def _fail(prog: str, message: str, code: int = 2) -> NoReturn:
    print(f"{prog}: {message}", file=sys.stderr)
    raise SystemExit(code)


def _app(prog: str, has_version: bool) -> cyclopts.App:
    """The application, without commands; `export` has a --version of its own."""
    return cyclopts.App(
        name=prog,
        help="Translators with Luong's attention, from two text files to a server. Any "
        "command takes --debug, which shows the traceback of an error.",
        help_format="plaintext",
        version=lambda: metadata.version("keras_luong"),
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
