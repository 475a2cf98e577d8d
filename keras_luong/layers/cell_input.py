"""What enters a recurrent cell, and how its equations put it together."""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple


class CellInput(NamedTuple):
    """What enters a cell from outside: a part projected already and parts to project.

    Attributes:
        ready: `x W + b` if that could be done before the loop, or None.
        weights: Tuple of matrices for `tensors`.
        tensors: Tuple of inputs that exist only inside the loop.
        bias: Of the input's projection, if it is not in `ready`; or None.
        beside: What is added to the state's own projection `h U`, which a GRU's reset
            gate goes over; or None.
    """

    ready: Any = None
    weights: tuple = ()
    tensors: tuple = ()
    bias: Any = None
    beside: Any = None


def total(*parts):
    """The sum of those parts that are not None."""
    return functools.reduce(operator.add, [x for x in parts if x is not None])


def dropped(h, noise):
    """The h that meets `recurrent_kernel`; what a GRU carries of it stays whole.

    Args:
        h: State [..., H].
        noise: Dropout multipliers [..., H], or None.
    """
    return h if noise is None else h * noise
