"""What a checkpoint and a model are made of, beside the decoder: layers and stacks.

A piece is a layer with weights of its own; or recurrent ones that belong together: a
stack, the two directions of one, or an encoder.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras

from keras_luong.compat import flat_layers
from keras_luong.layers.encoder import RecurrentEncoder
from keras_luong.layers.wrapped_cell import cells_of
from keras_luong.migration.object_graph import Node

#: Of each layer of a stack, from below, its directions.
Levels = tuple[tuple[Any, ...], ...]


class Piece(NamedTuple):
    """A part of a checkpoint, of `Node`s, or of a model, of Keras layers.

    Attributes:
        path: Its name.
        levels: Nodes or layers that have weights of their own.
    """

    path: str
    levels: Levels

    @property
    def leaves(self) -> list[Any]:
        """The nodes or layers."""
        return list(itertools.chain(*self.levels))

    @property
    def signature(self) -> Any:
        """Two pieces that fit each other have the same one: names and shapes."""
        return tuple(tuple(map(_names_and_shapes, level)) for level in self.levels)


def _names_and_shapes(leaf):
    return frozenset((name, tuple(x.shape)) for name, x in weights_of(leaf).items())


def weights_of(leaf: Any) -> dict[str, Any]:
    """A node's or a layer's own weights, by name."""
    return leaf.weights if isinstance(leaf, Node) else own_weights(leaf)


def own_weights(layer: keras.layers.Layer) -> dict[str, Any]:
    """The weights of a layer that are not those of a layer in it, by name."""
    inner = itertools.islice(flat_layers(layer), 1, None)
    others = {id(weight) for part in inner for weight in part.weights}
    return {x.name: x for x in layer.weights if id(x) not in others}


def pieces_of_checkpoint(root: Node) -> list[Piece]:
    """All pieces, those in others too; the nearest to the root first."""
    found = (Piece(node.path, levels_of_node(node)) for node in root.walk())
    return _unlike(piece for piece in found if piece.levels)


def levels_of_node(node: Node) -> Levels:
    """The levels of a node; none where it is no piece."""
    if {"forward_layer", "backward_layer"} <= node.children.keys():
        names = "forward_layer", "backward_layer"
        return _abreast([levels_of_node(node.children[name]) for name in names])
    if node.is_list and len(node.children) > 1:
        parts = [levels_of_node(child) for child in node.items]
        is_stack = all(map(_is_recurrent, parts))
        return tuple(itertools.chain(*parts)) if is_stack else ()
    cells = nodes_of_cell(node)
    if cells != [node]:
        levels: Levels = tuple((cell,) for cell in cells)
        return levels if _is_recurrent(levels) else ()
    return ((node,),) if node.weights else ()


def nodes_of_cell(node: Node) -> list[Node]:
    """The cells of a stack, from below, or the one; without what is around them."""
    if "cells" in node.children:
        return [x for cell in node.children["cells"].items for x in nodes_of_cell(cell)]
    inner = node.children.get("cell")  # of a layer, or of Keras's wrappers of cells
    return [node] if inner is None or node.weights else nodes_of_cell(inner)


def _is_recurrent(levels):
    leaves = list(itertools.chain(*levels))
    return bool(leaves) and all("recurrent_kernel" in x.weights for x in leaves)


def pieces_of_model(layers: Iterable[Any]) -> list[Piece]:
    """All pieces of layers, those in others too."""
    found = (Piece(x.path, levels_of_layer(x)) for x in layers)
    return _unlike(piece for piece in found if piece.levels)


def levels_of_layer(layer: Any) -> Levels:
    """The levels of a layer; none where it is no piece."""
    if isinstance(layer, RecurrentEncoder):
        directions = layer.forward_layers, layer.backward_layers
        levels = [
            tuple((one.cell,) for one in direction)
            for direction in directions
            if direction
        ]
        return _abreast(levels)
    if isinstance(layer, keras.layers.Bidirectional):
        directions = layer.forward_layer, layer.backward_layer
        return _abreast([levels_of_layer(one) for one in directions])
    if isinstance(layer, keras.layers.RNN):
        return tuple((cell,) for cell in cells_of(layer.cell))
    return ((layer,),) if own_weights(layer) else ()


def _abreast(directions: Sequence[Levels]) -> Levels:
    """Levels whose directions stand beside each other."""
    rows = itertools.zip_longest(*directions, fillvalue=())
    return tuple(tuple(itertools.chain(*row)) for row in rows)


def _unlike(pieces: Iterable[Piece]) -> list[Piece]:
    """Without those that are the same as an earlier one, such as a layer's one cell."""

    def distinct() -> Iterator[Piece]:
        seen = set()
        for piece in pieces:
            key = tuple(tuple(map(id, level)) for level in piece.levels)
            if key not in seen:
                seen.add(key)
                yield piece

    return list(distinct())
