"""What is changed in a text before SentencePiece splits it.

The rules are data within a SentencePiece model, so every runtime that has the model
follows them. Two models may have the same pieces and different rules.
"""

from __future__ import annotations

import functools
import io
import tempfile
from collections.abc import Callable
from typing import Any, get_args

from keras_luong.checks import check_choice
from keras_luong.config.fields import Normalization

NORMALIZATIONS = get_args(Normalization)
"""SentencePiece's rules. "identity" changes nothing but white space: each run of it,
whatever characters it is of, becomes one space, and none is left at the ends. "nfkc" is
Unicode's, which writes `，` as `,` and `½` as `1⁄2`; "nmt_nfkc" also drops invisible
characters, and "_cf" lower-cases."""

WORD_START = "▁"  # stands for a space within SentencePiece, so a text cannot keep it


def check_normalization(name: str, value: str) -> str:
    """Returns a rule if it is one of `NORMALIZATIONS`; raises ValueError if not."""
    return check_choice(name, value, NORMALIZATIONS)


def with_normalization(model: bytes, normalization: str) -> bytes:
    """Gives a SentencePiece model another rule.

    Args:
        model: The serialised model.
        normalization: One of `NORMALIZATIONS`.

    Returns:
        The serialised model, its pieces and ids as before.
    """
    changed = parsed(model)
    changed.normalizer_spec.CopyFrom(parsed(_ruled(normalization)).normalizer_spec)
    changed.normalizer_spec.name = normalization
    # Which says where a temporary file was.
    changed.normalizer_spec.ClearField("normalization_rule_tsv")
    return bytes(changed.SerializeToString(deterministic=True))


def normalization_of(model: bytes) -> str:
    """Returns the name of the rule that a serialised SentencePiece model follows."""
    return str(parsed(model).normalizer_spec.name)


def normalizer(normalization: str) -> Callable[[str], str]:
    """A function that changes a text as a model with this rule does.

    Args:
        normalization: One of `NORMALIZATIONS`.

    Example:
        >>> from keras_luong.text.normalization import normalizer
        >>> normalizer("nmt_nfkc")("１２ ½")
        '12 1⁄2'
    """
    import sentencepiece

    rule = with_normalization(_ruled(normalization), normalization)
    return sentencepiece.SentencePieceNormalizer(
        model_proto=rule, remove_extra_whitespaces=True
    ).normalize


@functools.cache
def _ruled(normalization: str) -> bytes:
    """The smallest model that has the rule: only SentencePiece's trainer makes them."""
    import sentencepiece

    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        options = {"normalization_rule_name": normalization}
        if normalization == "identity":
            file.writelines(f"{ord(x):X}\t20\n" for x in _white_space())
            file.flush()
            options = {"normalization_rule_tsv": file.name}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter("a"),
            model_writer=model,
            vocab_size=5,
            hard_vocab_limit=False,
            minloglevel=2,
            **options,
        )
    return model.getvalue()


def _white_space() -> list[str]:
    """All characters that become a space."""
    return [WORD_START, *(x for x in map(chr, range(0x110000)) if x.isspace())]


def parsed(model: bytes) -> Any:
    """Returns a serialised SentencePiece model as a message that can be changed."""
    from sentencepiece import sentencepiece_model_pb2

    return sentencepiece_model_pb2.ModelProto.FromString(model)
