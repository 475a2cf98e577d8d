"""Progress of long work: a bar where it can be seen, else a line now and then.

Work that cannot be counted says what it is. Other libraries are kept from talking to
people, unless what they do fails.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import TextIO

SECONDS = 60.0  # between two lines
PATIENCE = 10.0  # seconds without a word


class Progress:
    """Tells how far a long work is, on standard error.

    Args:
        total: How many there are, or None if that is not known.
        unit: What is counted, such as "text".
        stream: Where to tell it; standard error by default.

    Example:
        >>> import io
        >>> from keras_luong.progress import Progress
        >>> progress = Progress(total=2, unit="text", stream=io.StringIO())
        >>> progress.add(2)
    """

    def __init__(
        self, total: int | None, unit: str = "text", stream: TextIO | None = None
    ):
        self.total, self.unit, self.done = total, unit, 0
        self.stream = sys.stderr if stream is None else stream
        can_be_seen = _is_terminal(self.stream) or "ipykernel" in sys.modules
        self._bar = None
        if can_be_seen:
            import keras  # here, as a command line is read without it

            self._bar = keras.utils.Progbar(total, unit_name=unit)
        self._start = self._told = time.monotonic()

    def add(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count
        if self._bar is not None:
            with contextlib.redirect_stdout(self.stream):  # Keras knows no other place
                self._bar.add(count)
        elif self.stream is not None and time.monotonic() - self._told > SECONDS:
            self._told = time.monotonic()
            self._line()

    def _line(self) -> None:
        of = "" if self.total is None else f" of {self.total:,}"
        minutes = (time.monotonic() - self._start) / 60
        text = f"{self.done:,}{of} {self.unit}s in {minutes:.0f} min"
        if self.total and self.done:
            left = minutes * max(self.total - self.done, 0) / self.done
            text += f", {left:.0f} min left"
        print(text, file=self.stream, flush=True)

    def close(self) -> None:
        """Ends the bar's line where the total was not known, or not reached."""
        if self._bar is not None and self.done and self.done != self.total:
            with contextlib.redirect_stdout(self.stream):
                self._bar.update(self.done, finalize=True)


def in_words(seconds: float) -> str:
    """Returns a duration as one says it.

    Args:
        seconds: The duration.

    Example:
        >>> from keras_luong.progress import in_words
        >>> in_words(2.4), in_words(200), in_words(9000), in_words(4e6)
        ('3 s', '4 min', '2.5 hours', '46 days')
    """
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    hours = seconds / 3600
    if hours >= 100:
        return f"{hours / 24:,.0f} days"
    return f"{minutes} min" if minutes < 90 else f"{hours:.1f} hours"


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


@contextlib.contextmanager
def telling(what: str) -> Iterator[None]:
    """Says on standard error what is being done, if it takes more than ten seconds.

    Also a decorator of functions.

    Args:
        what: What is done, such as "Reading the corpus".

    Example:
        >>> from keras_luong.progress import telling
        >>> with telling("Adding up"):
        ...     sum(range(10))
        45
    """
    timer = threading.Timer(PATIENCE, _say, [f"{what} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Holds back what is written to standard error, past Python's `sys.stderr` too.

    If there is an error, all of it is told; else none, nor where a user stops it.

    Example:
        >>> import os
        >>> from keras_luong.progress import quietly
        >>> with quietly():
        ...     written = os.write(2, b"This machine has a processor.")
    """
    if sys.stderr is None:
        yield
        return
    sys.stderr.flush()
    standard = os.dup(2)
    with tempfile.TemporaryFile() as told:
        os.dup2(told.fileno(), 2)
        try:
            yield
        except Exception:
            told.seek(0)
            os.write(standard, told.read())
            raise
        finally:
            os.dup2(standard, 2)
            os.close(standard)
