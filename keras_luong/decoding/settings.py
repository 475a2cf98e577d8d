"""Settings of searches, checked by `keras_luong.config.fields.check_fields`."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any

from keras_luong.checks import check_size
from keras_luong.decoding.penalties import (
    CoveragePenalty,
    LengthPenalty,
    coverage_penalty_of,
    length_penalty_of,
)
from keras_luong.decoding.shortlist import Shortlist
from keras_luong.decoding.sources import LONGEST

Size = Annotated[int, partial(check_size, largest=LONGEST)]
SizeOrZero = Annotated[int, partial(check_size, smallest=0, largest=LONGEST)]
SizeOrNone = Annotated[int | None, partial(check_size, optional=True, largest=LONGEST)]


def _penalty(read: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    """Returns a check of a penalty that keeps numbers and makes objects of mappings."""

    def check(name: str, given: Any) -> Any:
        del name  # `read` has it
        penalty = read(given)
        return float(given) if isinstance(given, numbers.Real) else penalty

    return check


def _check_forbidden(name: str, given: Any) -> tuple[int, ...]:
    if not isinstance(given, Iterable):
        raise TypeError(f"{name} must be ids, such as (1,). Received: {given!r}")
    # Files hold a list. A tuple makes the search hashable.
    return tuple(check_size(f"an id in {name}", x, smallest=0) for x in given)


def _check_shortlist(name: str, given: Any) -> Shortlist | None:
    if not isinstance(given, Shortlist | None):
        raise TypeError(f"{name} must be a Shortlist or None. Received: {given!r}")
    return given


def _check_early_stopping(name: str, given: Any) -> bool | str:
    if not isinstance(given, bool) and given != "first":
        raise ValueError(f'{name} must be True, False or "first". Received: {given!r}')
    return given


LengthPenaltyOf = Annotated[
    float | Mapping[str, Any] | LengthPenalty, _penalty(length_penalty_of)
]
CoveragePenaltyOf = Annotated[
    float | Mapping[str, Any] | CoveragePenalty, _penalty(coverage_penalty_of)
]
Forbidden = Annotated[tuple[int, ...], _check_forbidden]
ShortlistOrNone = Annotated[Shortlist | None, _check_shortlist]
EarlyStopping = Annotated[bool | str, _check_early_stopping]
