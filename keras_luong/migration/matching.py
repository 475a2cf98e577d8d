"""What goes where by itself: what fits in one place only.

Nothing is guessed from names or from order: two embeddings of one shape may be of the
source and of the target.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from keras_luong.migration.pieces import Piece
from keras_luong.migration.placings import Placings, place_piece


def match(theirs: Sequence[Piece], ours: Sequence[Piece], placings: Placings) -> None:
    """Places every piece that fits one piece of ours, where no other does.

    The largest come first: a stack as a whole rather than its layers one by one.

    Args:
        theirs: Pieces of the checkpoint.
        ours: Pieces of the model.
        placings: What has been placed, to which it is added.
    """
    for size in sorted({len(piece.leaves) for piece in ours}, reverse=True):
        for one, other in _alike(theirs, ours, placings, size):
            if len(one) == len(other) == 1:
                placings.add(place_piece(one[0], other[0]))


def _alike(theirs, ours, placings, size):
    """Lists of pieces of a size and of one signature, not placed yet: of both sides."""
    groups: Any = defaultdict(lambda: ([], []))
    for side, pieces in enumerate((theirs, ours)):
        for piece in pieces:
            if len(piece.leaves) == size and not any(map(placings.has, piece.leaves)):
                groups[piece.signature][side].append(piece)
    return list(groups.values())


def ambiguities(
    theirs: Sequence[Piece], ours: Sequence[Piece], placings: Placings
) -> Iterator[str]:
    """Sentences about layers that fit several places, or places that several fit."""
    for group in _alike(theirs, ours, placings, 1):
        names = [", ".join(piece.path for piece in side) for side in group]
        if all(names):
            yield (
                f"{names[0]} of the checkpoint could be {names[1]} of the model: "
                "say which with places={path: layer}."
            )
