"""Fields of configurations, checked by their types."""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from keras_luong.checks import (
    check_above,
    check_choice,
    check_coverage,
    check_flag,
    check_not_negative,
    check_path,
    check_rate,
    check_size,
)
from keras_luong.special_ids import EOS_ID


def _check_vocab_size(name: str, value: Any) -> int:
    if (size := check_size(name, value)) <= EOS_ID + 1:
        raise ValueError(
            f"{name} must be above {EOS_ID + 1}, as so many ids are special: 1000 is "
            f"right for little text, 8000 or 32000 for much. Received: {size}"
        )
    return size


def _check_positive(name: str, value: Any) -> float:
    return check_not_negative(name, check_above(name, value, 0))


def check_text(name: str, value: Any) -> str:
    """Returns `value` as a string if it is one or a path; raises TypeError if not."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a string. Received: {value!r}")
    return os.fspath(value)


#: Numbers that say what they may be; a plain `int` is at least 1.
Count = Annotated[int, partial(check_size, smallest=0)]  # 0 or more
VocabSize = Annotated[int, _check_vocab_size]
Seed = Annotated[int, partial(check_size, smallest=0, largest=2**32 - 1)]
Number = Annotated[float, partial(check_above, limit=float("-inf"))]
Rate = Annotated[float, check_rate]  # in [0, 1)
Coverage = Annotated[float, check_coverage]  # in [0.98, 1]
NotNegative = Annotated[float, check_not_negative]
Positive = Annotated[float, _check_positive]

#: SentencePiece's rules; see `keras_luong.text.sentencepiece`.
Normalization = Literal["identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf"]

_CHECKS = {bool: check_flag, int: check_size, str: check_text, Path: check_path}


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself.

    Example:
        >>> from keras_luong.config.fields import kinds_of
        >>> kinds_of(int | None)
        (<class 'int'>, <class 'NoneType'>)
    """
    unions = (typing.Union, types.UnionType)
    return typing.get_args(hint) if typing.get_origin(hint) in unions else (hint,)


def choices_of(hint: Any) -> tuple[str, ...]:
    """The words that a type allows.

    Example:
        >>> from typing import Literal
        >>> from keras_luong.config.fields import choices_of
        >>> choices_of(Literal["target", "all"] | None)
        ('target', 'all')
    """
    kinds = (kind for kind in kinds_of(hint) if typing.get_origin(kind) is Literal)
    return tuple(choice for kind in kinds for choice in typing.get_args(kind))


def hints_of(config_class: type) -> dict[str, Any]:
    """The type of each field of a dataclass, by name."""
    hints = typing.get_type_hints(config_class, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(config_class)}


def check_fields(config: Any) -> None:
    """Checks every field of a frozen dataclass by its type, and converts numbers.

    Args:
        config: An instance of the dataclass.

    Raises:
        TypeError, ValueError: A value that cannot be; it names the field.
    """
    for name, hint in hints_of(type(config)).items():
        value = _checked(name, getattr(config, name), hint)
        object.__setattr__(config, name, value)


def _checked(name: str, value: Any, hint: Any) -> Any:
    kinds, choices = kinds_of(hint), choices_of(hint)
    if value is None and type(None) in kinds:
        return None
    if isinstance(value, str) and value in choices:
        return value
    numbers = [kind for kind in kinds if typing.get_origin(kind) is Annotated]
    if numbers:
        return typing.get_args(numbers[0])[1](name, value)
    for kind in kinds:
        if typing.get_origin(kind) is tuple:
            element = typing.get_args(kind)[0]
            items = (value,) if isinstance(value, str) else value
            return tuple(_checked(name, item, element) for item in items)
        if kind in _CHECKS:
            return _CHECKS[kind](name, value)
    optional = (None,) if type(None) in kinds else ()
    return check_choice(name, value, (*choices, *optional)) if choices else value
