"""What the configurations of all models have in common."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, TypeVar

from keras_luong.checks import check_choice
from keras_luong.config.fields import VocabSize, check_fields
from keras_luong.config.presets import PRESETS
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

Ties = Literal["target", "all"] | None
Config = TypeVar("Config", bound="ModelConfig")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Hyperparameters of a model; a subclass has the model's own.

    Args:
        source_vocab_size: Number of source ids, the four special ones included.
        target_vocab_size: Number of target ids, likewise.
    """

    source_vocab_size: VocabSize
    target_vocab_size: VocabSize

    pad_id: ClassVar[int] = PAD_ID
    unk_id: ClassVar[int] = UNK_ID
    bos_id: ClassVar[int] = BOS_ID
    eos_id: ClassVar[int] = EOS_ID

    def __post_init__(self) -> None:
        """Checks all fields, and fills in what follows from others."""
        check_fields(self)
        for name, value in self.implied().items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        shared = self.source_vocab_size == self.target_vocab_size
        if getattr(self, "tie_embeddings", None) == "all" and not shared:
            raise ValueError(
                'tie_embeddings="all" needs one vocabulary for both sides. Received: '
                f"source_vocab_size={self.source_vocab_size}, "
                f"target_vocab_size={self.target_vocab_size}"
            )
        self.check_together()

    def implied(self) -> dict[str, Any]:
        """Fields that follow from others where they are None."""
        return {}

    def check_together(self) -> None:
        """Raises ValueError where fields do not fit each other."""

    @classmethod
    def preset(
        cls: type[Config],
        name: str,
        source_vocab_size: int,
        target_vocab_size: int,
        **changes: Any,
    ) -> Config:
        """The configuration of a preset.

        Args:
            name: A name in `keras_luong.config.presets.PRESETS`.
            source_vocab_size: Number of source ids, the four special ones included.
            target_vocab_size: Number of target ids, likewise.
            **changes: Fields that are to differ from the preset's.

        Raises:
            ValueError, TypeError: An unknown preset, one of another model, or values
                that cannot be.

        Example:
            >>> config = kl.Seq2SeqConfig.preset("luong2015-base", 50000, 50000)
            >>> config.units, config.num_layers, config.attention
            (1000, 4, None)
        """
        preset = PRESETS[check_choice("preset", name, PRESETS)]
        known = {field.name for field in dataclasses.fields(cls)}
        if not preset.fields.keys() <= known:
            raise ValueError(
                f"The preset {name} is no {cls.__name__}: it is one of a {preset.model}"
            )
        if strangers := sorted(changes.keys() - known):
            raise ValueError(
                f"The preset {name} has no {', '.join(strangers)}; it has "
                f"{', '.join(sorted(known))}"
            )
        fields = {**preset.fields, **changes}
        return cls(source_vocab_size, target_vocab_size, **fields)
