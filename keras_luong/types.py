"""Types that Keras has no names for."""

from __future__ import annotations

from typing import Any, TypeAlias

#: A tensor of the backend, symbolic or not. Keras's backends have no type in common.
Tensor: TypeAlias = Any

#: A tensor, or a list of tensors.
Tensors: TypeAlias = Any

#: Sizes of a tensor's axes, None where one is not known.
Shape: TypeAlias = tuple[int | None, ...]

#: What Keras tells a callback: name → value, if there is any.
Logs: TypeAlias = dict[str, Any] | None
