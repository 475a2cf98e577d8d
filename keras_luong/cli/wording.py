"""How what is wrong with a command line is worded."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence


def suggestion(word: str, known: Iterable[str]) -> str:
    """Either "Did you mean train?", or all that there is.

    Args:
        word: What was received.
        known: What it could be.
    """
    close = difflib.get_close_matches(word, list(known), 1)
    return f"Did you mean {close[0]}?" if close else f"There are {', '.join(known)}."


_BESIDE = "such text lies beside that to learn from"
_VALIDATION = ("val", "valid", "validation", "dev")
_DEVICES = (
    "all GPUs of this machine are used; CUDA_VISIBLE_DEVICES=0,1 before the command "
    "says which, and --strategy one is one of them"
)
#: Options of other programs: what to type here.
ELSEWHERE = {
    "train": {
        **dict.fromkeys(_VALIDATION, f"{_BESIDE}, as val.fr and val.en"),
        **dict.fromkeys(("gpu", "gpus", "num_gpus", "device", "devices"), _DEVICES),
        "test": f"{_BESIDE}, as test.fr and test.en",
        "batch_size": "--batch_tokens 4096 is the size of a batch, in tokens",
        "lr": "--learning_rate 0.001 is the learning rate",
    },
    "evaluate": {
        **dict.fromkeys(
            _VALIDATION,
            "without --test, the run's own text to validate and to test by is scored",
        ),
    },
}


def no_option(option: str, command: str, known: Iterable[str]) -> str:
    """Says of an option that there is not what to type instead.

    Args:
        option: What was received, with its dashes.
        command: The command.
        known: The options that there are, with their dashes.
    """
    name = option.removeprefix("--").replace("-", "_")
    if (instead := ELSEWHERE.get(command, {}).get(name)) is not None:
        return f"There is no option {option}: {instead}."
    close = difflib.get_close_matches(option, list(known), 1)
    hint = f"Did you mean {close[0]}?" if close else f"See {command} --help."
    return f"There is no option {option}. {hint}"


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
