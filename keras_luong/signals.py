"""Ctrl-C and SIGTERM, answered in every phase of a command.

Python runs a signal's handler between two of its own instructions, of which there are
none while TensorFlow works on a step of minutes. But the operating system's part of the
handler writes to a pipe at once, and a thread that reads there can speak and act.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 2.0  # seconds for Python to get to its handler
TOGETHER = 0.2  # seconds in which signals are one: `timeout` and others send two

_watch: Watch | None = None


class Watch:
    """Answers Ctrl-C and SIGTERM while a command runs.

    Attributes:
        first: The signal that came first; None before.
        stops: Events that the first signal sets in place of interrupting: of work that
            saves, and ends by itself.
    """

    def __init__(self, before_the_end: Callable[[], object]) -> None:
        self.first: int | None = None
        self.stops: list[threading.Event] = []
        self._before_the_end = before_the_end
        self._noticed = threading.Event()
        self._stderr = 2

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Python's own handler, in the main thread; a second signal is the thread's."""
        if not self.stops and not self._noticed.is_set():
            self._noticed.set()
            self.first = self.first or number
            raise KeyboardInterrupt

    def _answer(self, reader: int) -> None:
        """Waits for a first signal and for a second one, in a thread."""
        with contextlib.suppress(EOFError):
            number = self.first = _next_signal(reader) or signal.SIGINT
            if stops := list(self.stops):
                self._tell(
                    "Stopping after this step, or the validation at hand, to save it. "
                    "A second signal stops at once."
                )
            for event in stops:
                event.set()
            _next_signal(reader, TOGETHER)
            again = None if stops else _next_signal(reader, PATIENCE)
            if again is None and (stops or self._noticed.is_set()):
                if not stops:
                    self._tell("Stopping. A second signal stops at once.")
                again = _next_signal(reader)
            self._end(again or number)

    def _tell(self, text: str) -> None:
        """Writes a line of its own, also where there is a progress bar."""
        start = "\n" if os.isatty(self._stderr) else ""
        with contextlib.suppress(OSError):  # nobody may be there to read it
            os.write(self._stderr, f"{start}{text}\n".encode())

    def _end(self, number: int) -> None:
        """Ends the process, whatever its main thread is at."""

        def flush_all() -> None:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()

        self._before_the_end()
        flush = threading.Thread(target=flush_all, daemon=True)  # who reads may not
        flush.start()
        flush.join(TOGETHER)
        end_children()
        os._exit(128 + number)


def _next_signal(reader: int, seconds: float | None = None) -> int | None:
    """The next of the signals that are answered; None if it takes longer.

    Raises:
        EOFError: The watch has ended.
    """
    while select.select([reader], [], [], seconds)[0]:
        byte = os.read(reader, 1)
        if not byte:
            raise EOFError
        if byte[0] in SIGNALS:
            return byte[0]
    return None


@contextlib.contextmanager
def answered(before_the_end: Callable[[], object] = int) -> Iterator[Watch]:
    """Answers Ctrl-C and SIGTERM while a command runs, for the main thread.

    The first one interrupts the command by a KeyboardInterrupt, or ends the process
    where Python does not get to it within two seconds. But see `stopping`. A second one
    ends the process at once, with exit code 130 or 143, and its child processes.

    Args:
        before_the_end: Is called before the process is ended so.
    """
    global _watch
    watch = Watch(before_the_end)
    if threading.current_thread() is not threading.main_thread():
        yield watch
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    watch._stderr = os.dup(2)  # which is turned away while TensorFlow is imported
    thread = threading.Thread(target=watch._answer, args=[reader], daemon=True)
    thread.start()
    watch_before, _watch = _watch, watch
    fd_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        with handlers_kept():
            _handle_signals(watch._handle)
            yield watch
    finally:
        signal.set_wakeup_fd(fd_before)
        os.close(writer)
        thread.join()
        for fd in (reader, watch._stderr):
            os.close(fd)
        _watch = watch_before
        if watch.first is not None:
            end_children()


@contextlib.contextmanager
def stopping(event: threading.Event) -> Iterator[None]:
    """Lets the first Ctrl-C or SIGTERM set an event, for work that then ends by itself.

    Outside of commands, the second one interrupts.

    Args:
        event: What the work looks at between two steps.

    Raises:
        KeyboardInterrupt: The event was set, and the work ended as if it were not.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    with contextlib.ExitStack() as stack:
        if _watch is not None:
            _watch.stops.append(event)
            stack.callback(_watch.stops.remove, event)
        elif threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                stack.callback(signal.signal, number, signal.signal(number, handle))
        yield
    if event.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Lets signals end a command's process where a library keeps all threads waiting.

    SentencePiece's training and TensorFlow's converter hold Python's lock throughout.
    """
    if _watch is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    with handlers_kept():
        _handle_signals(signal.SIG_DFL)
        yield


def _handle_signals(handler: Any) -> None:
    """Sets a handler; what nohup or a shell's & has a process ignore stays ignored."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """Sets the signals' handlers back afterwards: Ray, for one, installs its own."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)


def end_children() -> None:
    """Ends all processes that this one has started, and theirs."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
