"""What a command says when it fails, and the exit code."""

from __future__ import annotations

import contextlib
import dis
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from keras_luong.files import DiskError, disk_is_full, naming, remove_unfinished
from keras_luong.signals import answered

PROG = "keras-luong"
MISTAKES = (TypeError, ValueError, OSError, ImportError, FloatingPointError)


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
            fail(prog, *told(error))


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


def fail(prog: str, message: str, code: int = 2) -> NoReturn:
    """Ends the process with a sentence on standard error."""
    print(f"{prog}: {message}", file=sys.stderr)
    raise SystemExit(code)
