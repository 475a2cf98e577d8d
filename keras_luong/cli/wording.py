"""How what is wrong with a command line is worded."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def suggestion(word: str, known: Iterable[str]) -> str:
    """Either "Did you mean train?", or all that there is.

    Args:
        word: What was received.
        known: What it could be.
    """
    close = difflib.get_close_matches(word, list(known), 1)
    return f"Did you mean {close[0]}?" if close else f"There are {', '.join(known)}."


def with_dashes(message: str, argv: Sequence[str]) -> str:
    """A message that names a field, with the option's name in its place.

    Args:
        message: What is wrong.
        argv: The command line, of which the options' names are known.
    """
    field = message.split(" ", 1)[0]
    names = {word.partition("=")[0] for word in argv}
    return f"--{message}" if f"--{field}" in names else message
