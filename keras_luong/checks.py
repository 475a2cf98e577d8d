"""Checks of arguments, each naming the value that it received."""

from __future__ import annotations

import difflib
import json
import numbers
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar, cast

T = TypeVar("T")


def check_size(
    name: str,
    value: T,
    optional: bool = False,
    smallest: int = 1,
    largest: int | None = None,
) -> T:
    """Returns `value` as an int if it is one and not too small, or None if `optional`.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is below `smallest`, or above `largest` if there is one.
    """
    if optional and value is None:
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(
            f"{name} must be an integer{' or None' * optional}. Received: {value!r}"
        )
    size = int(value)
    if size < smallest:
        raise ValueError(f"{name} must be at least {smallest}. Received: {value!r}")
    if largest is not None and size > largest:
        raise ValueError(f"{name} must be at most {largest}. Received: {value!r}")
    return cast(T, size)


def check_rate(name: str, value: float) -> float:
    """Returns `value` as a float if it is a rate, a number in [0, 1).

    Raises:
        TypeError: If it is no number.
        ValueError: If it is outside.
    """
    if not 0 <= _number(name, value, "a number in [0, 1)") < 1:
        raise ValueError(f"{name} must be in [0, 1). Received: {value!r}")
    return float(value)


def check_coverage(name: str, value: float) -> float:
    """Returns `value` as a float if SentencePiece takes it, a number in [0.98, 1].

    Raises:
        TypeError: If it is no number.
        ValueError: If it is outside.
    """
    if not 0.98 <= _number(name, value, "a number in [0.98, 1]") <= 1:
        raise ValueError(f"{name} must be in [0.98, 1]. Received: {value!r}")
    return float(value)


def check_above(name: str, value: float, limit: float) -> float:
    """Returns `value` as a float if it is a number above `limit`.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is not above.
    """
    if not _number(name, value) > limit:
        raise ValueError(f"{name} must be above {limit}. Received: {value!r}")
    return float(value)


def check_not_negative(name: str, value: float) -> float:
    """Returns `value` as a float if it is at least 0 and finite, also in float32.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is below 0, too large, infinite or NaN.
    """
    if not 0 <= _number(name, value) <= 3e38:
        raise ValueError(f"{name} must be finite and not negative. Received: {value!r}")
    return float(value)


def _number(name: str, value: Any, wanted: str = "a number") -> Any:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be {wanted}. Received: {value!r}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Returns `value` if it is True or False; raises TypeError if not."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False. Received: {value!r}")
    return value


def check_choice(name: str, value: T, choices: Collection[Any]) -> T:
    """Returns `value` if it is one of `choices`; raises ValueError if not."""
    if not (value is None or isinstance(value, str)) or value not in choices:
        message = f"{name} must be one of {list(choices)}. Received: {value!r}"
        named = filter(None, choices) if isinstance(value, str) else ()
        for close in difflib.get_close_matches(str(value), named, n=1):
            message += f". Did you mean {close!r}?"
        raise ValueError(message)
    return value


def check_ids(name: str, ids: Any) -> None:
    """Raises TypeError unless a tensor has integers."""
    dtype = getattr(ids.dtype, "name", ids.dtype)
    if "int" not in dtype:
        hint = " (a Translator takes text)" if dtype == "string" else ""
        raise TypeError(
            f"{name} must be ids of an integer dtype{hint}. Received: "
            f"{name}.dtype={dtype}"
        )


def check_strings(name: str, value: Any) -> None:
    """Raises TypeError at one string in place of a list of them."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name} must be a list of strings. Received one: {value!r}")


def check_path(name: str, value: str | os.PathLike[str]) -> Path:
    """Returns `value` as a Path if it is one or a string; raises TypeError if not."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path. Received: {value!r}")
    return Path(value)


def check_file(name: str, value: str | os.PathLike[str]) -> Path:
    """Returns `value` as a Path if there is a file of that name.

    Raises:
        TypeError: If it is no path.
        FileNotFoundError: If there is no such file.
        IsADirectoryError: If it is a directory.
        ValueError: If it is a pipe or a device.
    """
    path = check_path(name, value)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, and not a {name}.")
    if path.exists() and not path.is_file():
        raise ValueError(
            f"{path} is a pipe or a device, and is read more than once: write what it "
            f"gives to a {name}, and name that."
        )
    if not path.is_file():
        raise FileNotFoundError(f"There is no {name} {path}.")
    return path


def check_tensorflow() -> None:
    """Raises ValueError unless Keras computes with TensorFlow.

    Before Keras is imported its settings are read, as Keras will read them.
    """
    if (keras := sys.modules.get("keras")) is not None:
        name = keras.backend.backend()
    else:
        path = Path(os.environ.get("KERAS_HOME", "~/.keras"), "keras.json").expanduser()
        try:
            settings = json.loads(path.read_text())
        except (OSError, ValueError):
            settings = {}
        if not isinstance(settings, dict):
            raise ValueError(
                f"{path} is damaged: Keras's settings must be an object. "
                f"Received: {settings!r:.60}"
            )
        name = os.environ.get("KERAS_BACKEND") or settings.get("backend", "tensorflow")
    if name != "tensorflow":
        raise ValueError(
            "Searches, translators, their training by keras-luong, and exports need "
            "TensorFlow as Keras's backend: set KERAS_BACKEND=tensorflow. (Layers, "
            f"models and their fit run on others too.) Received: {name!r}"
        )


def check_same(what: str, **sizes: int | None) -> None:
    """Raises ValueError where sizes that must be equal are known and differ."""
    known = {name: size for name, size in sizes.items() if size is not None}
    if len(set(known.values())) > 1:
        received = ", ".join(f"{name}: {size}" for name, size in known.items())
        raise ValueError(f"{what} must be the same everywhere. Received: {received}")


def check_axes(**tensors: tuple[Any, ...]) -> None:
    """Raises ValueError where tensors have other axes than they must.

    And TypeError where they are ragged.

    Args:
        **tensors: By name, (tensor or None, what each of its axes is). Axes of one name
            must have one size, where it is known; axes called None may have any, and
            axes that are numbers must have just that size.
    """
    sizes: dict[str, dict[str, int | None]] = {}
    for name, (tensor, *axes) in tensors.items():
        if tensor is None:
            continue
        if hasattr(tensor, "row_splits") or getattr(tensor, "ragged", False):
            raise TypeError(
                f"{name} is ragged. Pass {name}.to_tensor(), and a mask such as "
                f"tf.sequence_mask({name}.row_lengths())."
            )
        shape = tuple(tensor.shape)
        if len(shape) != len(axes):
            raise ValueError(
                f"{name} must have {len(axes)} axes. Received: {name}.shape={shape}"
            )
        for i, (axis, size) in enumerate(zip(axes, shape, strict=True)):
            if isinstance(axis, int) and size not in (axis, None):
                raise ValueError(
                    f"Axis {i} of {name} must be {axis}. Received: {name}.shape={shape}"
                )
            if isinstance(axis, str):
                sizes.setdefault(axis, {})[name] = size
    for axis, by_name in sizes.items():
        check_same(axis.capitalize(), **by_name)
