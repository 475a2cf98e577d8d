"""Which weights of a checkpoint go to which weights of a model, before they do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from keras_luong.migration.object_graph import Node
from keras_luong.migration.pieces import Piece, own_weights, weights_of

#: The node that a weight is loaded from, the weight, and what it is to be.
Placing = tuple[Node, Any, Any]


class Placings:
    """All placings of a checkpoint, and what is left out on purpose."""

    def __init__(self) -> None:
        self._placings: list[Placing] = []
        self._nodes: set[Node] = set()  # variables
        self._weights: set[int] = set()

    def add(self, placings: Iterable[Placing]) -> None:
        """Adds some.

        Raises:
            ValueError: A weight of the model has got another value already.
        """
        placings = list(placings)
        for node, weight, _ in placings:
            if self.has_weight(weight):
                raise ValueError(
                    f"{weight.path} of the model has more than one place in the "
                    f"checkpoint: {self._source(weight)} and {node.path}."
                )
        self._placings += placings
        self._nodes.update(node for node, _, _ in placings)
        self._weights.update(id(weight) for _, weight, _ in placings)

    def _source(self, weight):
        return next(node.path for node, x, _ in self._placings if x is weight)

    def leave_out(self, nodes: Iterable[Node]) -> None:
        """Notes variables that nobody wants."""
        self._nodes.update(nodes)

    def has(self, part: Any) -> bool:
        """Whether any weight of a node or of a layer, or in it, has been placed."""
        if isinstance(part, Node):
            return not self._nodes.isdisjoint(part.walk())
        return any(map(self.has_weight, part.weights))

    def has_weight(self, weight: Any) -> bool:
        """Whether a weight of the model is to be loaded."""
        return id(weight) in self._weights

    def paths(self) -> dict[str, str]:
        """Where everything goes: paths of ours by paths of the checkpoint."""
        found: dict[str, list[str]] = {}
        for node, weight, _ in self._placings:
            found.setdefault(node.path, []).append(weight.path)
        return {path: ", ".join(ours) for path, ours in found.items()}

    def assign(self) -> None:
        """Gives the model its weights."""
        for _, weight, value in self._placings:
            weight.assign(value)


def place_piece(theirs: Piece, ours: Piece) -> list[Placing]:
    """Every weight of a piece, by its name.

    Raises:
        ValueError: They do not fit each other.
    """
    if [len(level) for level in theirs.levels] != [len(x) for x in ours.levels]:
        raise ValueError(
            f"{theirs.path} of the checkpoint does not fit {ours.path}: it has "
            f"{_described(theirs)}, and the model {_described(ours)}."
        )
    pairs = zip(theirs.leaves, ours.leaves, strict=True)
    return [placing for pair in pairs for placing in place_layer(*pair)]


def _described(piece):
    levels = [" and ".join(str(_shapes(leaf)) for leaf in x) for x in piece.levels]
    return f"{len(levels)} level{'s' * (len(levels) != 1)} ({'; '.join(levels)})"


def _shapes(leaf):
    return {name: tuple(x.shape) for name, x in weights_of(leaf).items()}


def place_layer(node: Node, layer: Any) -> list[Placing]:
    """Every weight of a layer, by its name.

    Raises:
        ValueError: The two have other weights.
    """
    ours = same_names(node, layer)
    return [place(node.weights[name], ours[name]) for name in ours]


def same_names(node: Node, layer: Any) -> dict[str, Any]:
    """The weights of a layer, by name, where the node has the same names.

    Raises:
        ValueError: The two have other weights.
    """
    ours = own_weights(layer)
    if node.weights.keys() != ours.keys():
        raise ValueError(
            f"{node.path} of the checkpoint has {_shapes(node)}, and {layer.path} of "
            f"the model {_shapes(layer)}."
        )
    return ours


def place(node: Node, weight: Any, value: Any = None) -> Placing:
    """One weight of the checkpoint, as it is or as `value`, as one of ours.

    Raises:
        ValueError: They have other shapes.
    """
    value = node.read() if value is None else value
    if tuple(value.shape) != tuple(weight.shape):
        raise ValueError(
            f"{node.path} of the checkpoint has the shape {node.shape}, and "
            f"{weight.path} of the model would need it to be "
            f"{_as_theirs(node, value, weight)}."
        )
    return node, weight, value


def _as_theirs(node, value, weight):
    shape = tuple(weight.shape)
    turned = node.shape != value.shape and node.shape == value.shape[::-1]
    return shape[::-1] if turned else shape
