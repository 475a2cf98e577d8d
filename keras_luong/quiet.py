"""Keeps other libraries from talking to people, unless what they do fails."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Holds back what is written to standard error, past Python's `sys.stderr` too.

    If there is an error, all of it is told; else none, nor where a user stops it.

    Example:
        >>> import os
        >>> from keras_luong.quiet import quietly
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
