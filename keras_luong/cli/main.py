"""`keras-luong`: reads its command line, checks the paths, runs the command.

What takes long is imported by `main`, so that Ctrl-C is answered from the beginning.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def main(
    argv: Sequence[str] | None = None,
    run: Callable[[Any], Any] | None = None,
) -> None:
    """Runs a command line.

    A mistake is a sentence or two on standard error, and exit code 2; `--debug` shows
    the traceback. Ctrl-C exits with 130, SIGTERM with 143.

    Args:
        argv: The words after the program's name; by default the process's.
        run: What to do with the options; by default what the command does.
    """
    try:
        from keras_luong.cli.errors import run_carefully
    except KeyboardInterrupt:
        sys.exit(130)
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words

    def work() -> None:
        from keras_luong.checks import check_tensorflow
        from keras_luong.cli.command_line import parse

        parsed = parse([word for word in words if word != "--debug"])
        if parsed is None:
            return
        name, options = parsed
        check_tensorflow()
        options.check_places()
        _use_onednn()
        with contextlib.nullcontext() if debug else _quiet():
            importlib.import_module("tensorflow")
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
    from keras_luong.progress import quietly

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return quietly()
