"""What became of a checkpoint's weights, and of a model's."""

from __future__ import annotations

import dataclasses

from keras_luong.types import Shape


@dataclasses.dataclass(frozen=True)
class LoadedCheckpoint:
    """What was loaded from a checkpoint; `print` shows it.

    Attributes:
        placed: The weights of the model that have new values: of each weight of the
            checkpoint, by its path, the path of ours that has it.
        not_placed: The shapes of those weights of the checkpoint that fit nowhere, or
            in more than one place.
        not_loaded: The shapes of those weights of the model that keep their values.
        hints: Sentences about what could go to several places.

    Example:
        >>> loaded = kl.migration.LoadedCheckpoint(
        ...     {"words/embeddings": "embedding/embeddings"}, {"step": ()}, {}
        ... )
        >>> loaded.complete
        False
        >>> print(loaded)
        1 weight of the checkpoint is placed.
        No place in the model for 1 weight of the checkpoint: step ().
    """

    placed: dict[str, str]
    not_placed: dict[str, Shape]
    not_loaded: dict[str, Shape]
    hints: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all weights of both sides have found each other."""
        return not self.not_placed and not self.not_loaded

    def __str__(self) -> str:
        """Sentences."""
        verb = "is" if len(self.placed) == 1 else "are"
        lines = [f"{_count(self.placed)} of the checkpoint {verb} placed."]
        if self.not_placed:
            lines.append(
                f"No place in the model for {_count(self.not_placed)} of the "
                f"checkpoint: {_listed(self.not_placed)}."
            )
        if self.not_loaded:
            lines.append(
                f"Not loaded, so as before: {_count(self.not_loaded)} of the model: "
                f"{_listed(self.not_loaded)}."
            )
        return "\n".join([*lines, *self.hints])


def _count(weights):
    return f"{len(weights)} weight{'s' * (len(weights) != 1)}"


def _listed(shapes):
    return ", ".join(f"{path} {shape}" for path, shape in shapes.items())
