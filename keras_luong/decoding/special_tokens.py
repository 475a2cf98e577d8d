"""The ids of the tokens that every search must know: begin, end and padding."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Annotated, Any

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.config.fields import check_fields
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID

LARGEST_ID = 2**31 - 1  # ids are int32

#: The id of a token, checked by `keras_luong.config.fields.check_fields`.
TokenId = Annotated[int, partial(check_size, smallest=0, largest=LARGEST_ID)]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class SpecialTokens:
    """The ids that a model's tokens begin, end and are padded with.

    The defaults are those of this library's tokenizers. Two or all three of them may be
    the same id: a model may be started with its end token or with padding, and may end
    with padding.

    Args:
        bos_id: The token that a model reads first. It is never generated, unless it is
            the end token too.
        eos_id: The token that ends a hypothesis, and the last one of it.
        pad_id: What fills rows of ids up, in sources, prefixes and results. It is never
            generated, unless it is the end token too: then the first one in a row is
            its end.

    Raises:
        TypeError: If an id is not an integer.
        ValueError: If an id is negative.

    Example:
        >>> tokens = kl.SpecialTokens(bos_id=1, eos_id=2)
        >>> tokens.never_generated, tokens.special_ids
        ({0, 1}, {'bos_id': 1, 'eos_id': 2, 'pad_id': 0})
    """

    bos_id: TokenId = BOS_ID
    eos_id: TokenId = EOS_ID
    pad_id: TokenId = PAD_ID

    def __post_init__(self) -> None:
        """Checks all fields, and converts NumPy numbers to Python's."""
        check_fields(self)

    @property
    def special_ids(self) -> dict[str, Any]:
        """The ids by the names of their fields."""
        return {name: getattr(self, name) for name in IDS}

    @property
    def never_generated(self) -> set[int]:
        """The ids of tokens that no hypothesis may have."""
        return {self.bos_id, self.pad_id} - {self.eos_id}

    def is_token(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns where target ids [B, T] are tokens and not padding, bool [B, T]."""
        is_padding = ids == self.pad_id
        if self.pad_id != self.eos_id:
            return ~is_padding
        return tf.cumsum(tf.cast(is_padding, tf.int32), axis=1, exclusive=True) == 0

    def check_begin(self, size: int | None) -> None:
        """Raises ValueError if a model with so many words cannot read the first."""
        if size is not None and self.bos_id >= size:
            raise ValueError(
                f"bos_id must be one of the model's {size} tokens, which it reads "
                f"first. Received: bos_id={self.bos_id}"
            )

    def check_logits(self, logits: tf.Tensor) -> None:
        """Raises ValueError if a model's logits [..., V] have no place for the end."""
        size = logits.shape[-1]
        if size is not None and self.eos_id >= size:
            raise ValueError(
                f"eos_id must be one of the model's {size} tokens, or nothing ends. "
                f"Received: eos_id={self.eos_id}"
            )

    def __repr__(self) -> str:
        """Returns the arguments; the special ids only where they are not the usual."""
        values = {x.name: getattr(self, x.name) for x in dataclasses.fields(self)}
        ids = {name: values.pop(name) for name in IDS}
        shown = {**values, **{k: v for k, v in ids.items() if v != USUAL[k]}}
        arguments = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({arguments})"


USUAL: dict[str, Any] = {x.name: x.default for x in dataclasses.fields(SpecialTokens)}
IDS = tuple(USUAL)
