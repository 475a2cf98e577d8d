"""What a command says when it fails, and the exit code."""

from __future__ import annotations

import contextlib
import dis
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NoReturn

from keras_luong.files import DiskError, disk_is_full, naming, remove_unfinished
from keras_luong.signals import answered

PROG = "keras-luong"
MISTAKES = (TypeError, ValueError, OSError, ImportError, FloatingPointError)


def run_carefully(run: Callable[[], Any], debug: bool = False) -> Any:
    """Runs, and ends the process with a sentence where something is wrong.

    Args:
        run: What to run.
        debug: Whether to show tracebacks.

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
            fail(*told(error))


def _drop_output() -> None:
    with contextlib.suppress(OSError, AttributeError):  # there may be none
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def told(error: Exception) -> tuple[str, int]:
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
    trace = error.__traceback__
    ours = []  # places in this library
    while trace is not None:
        frame, line, last = trace.tb_frame, trace.tb_lineno, trace
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] == "keras_luong":
            ours.append(f"{module}, line {line}")
        trace = trace.tb_next
    is_ours = module.partition(".")[0] == "keras_luong"
    operation = dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]]
    is_refusal = is_ours and operation == "RAISE_VARARGS"
    if is_refusal and isinstance(error, MISTAKES):
        return message, 2
    is_machines = isinstance(error, (ImportError, MemoryError))
    is_machines |= type(error).__name__ == "ResourceExhaustedError"
    if is_machines or is_refusal and isinstance(error, RuntimeError):
        return f"{message} (--debug shows where.)", 1
    library = "" if is_ours else f" or of {module.partition('.')[0]}"
    return (
        f"This is a fault of keras-luong{library}, in {ours[-1]}: "
        f"{type(error).__name__}: {message:.500} (--debug shows all of it.)"
    ), 1


def fail(message: str, code: int = 2) -> NoReturn:
    """Ends the process with a sentence on standard error."""
    print(f"{PROG}: {message}", file=sys.stderr)
    raise SystemExit(code)
