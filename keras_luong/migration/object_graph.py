"""What a `tf.train.Checkpoint` and a model consist of, in the same terms.

A checkpoint is read as a graph of `Node`s: objects and variables. A `Piece` is a part
of it, or of a model, with weights of its own: a layer; or recurrent ones that belong
together: a stack, the two directions of one, or an encoder. Two pieces fit each other
where the names and shapes of their weights are the same.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_luong.checks import check_path
from keras_luong.compat import flat_layers, trackable_objects
from keras_luong.layers.attention_wrapper import cells_of
from keras_luong.layers.encoder import RecurrentEncoder
from keras_luong.types import Shape

#: What a checkpoint holds beside models: counters, and Keras 2's notes for itself.
NOT_OF_MODELS = {"save_counter", "keras_api"}

#: What others call a weight of a layer that Keras has too: OpenNMT-tf's embedding.
RENAMED = {"embedding": "embeddings"}

#: What the optimizers of Keras 2 have, the newer and the older ones.
OF_OPTIMIZERS = {"_iterations", "iter"}


@dataclasses.dataclass(eq=False)
class Node:
    """An object of a checkpoint: a layer, a list of them, or a variable.

    Attributes:
        path: How it is reached: the names of attributes and places in lists.
        children: What it has, by name.
        value: Of a variable, what reads it; None of any other object.
        shape: Of a variable, its shape.
    """

    path: str
    children: dict[str, Node] = dataclasses.field(default_factory=dict)
    value: Any = None
    shape: Shape = ()

    @property
    def weights(self) -> dict[str, Node]:
        """Its own variables, by the names that Keras has for them."""
        own = {k: x for k, x in self.children.items() if x.value is not None}
        return {RENAMED.get(name, name): x for name, x in own.items()}

    @property
    def is_list(self) -> bool:
        """Whether it is a list: the names of what it has are numbers."""
        return bool(self.children) and all(name.isdigit() for name in self.children)

    @property
    def items(self) -> list[Node]:
        """What a list has, in order."""
        return [self.children[name] for name in sorted(self.children, key=int)]

    def read(self) -> np.ndarray:
        """A variable's value."""
        return self.value()

    def walk(self) -> Iterator[Node]:
        """It and all that it has, each once: the nearest first."""
        seen, waiting = {self}, deque([self])
        while waiting:
            node = waiting.popleft()
            yield node
            for child in node.children.values():
                if child not in seen:
                    seen.add(child)
                    waiting.append(child)

    def find(self, path: str) -> Node:
        """Finds the node at a path from this one.

        Raises:
            ValueError: Nothing is.
        """
        node = self
        for name in path.split("/"):
            if name not in node.children:
                known = [x.path for x in self.walk() if x.value is None and x.path]
                close = difflib.get_close_matches(path, known, n=3, cutoff=0.3)
                raise ValueError(
                    f"There is no {path!r} in the checkpoint. Its objects are "
                    f"{', '.join(close or known[:10])}, among others."
                )
            node = node.children[name]
        return node


def read_checkpoint(path: str | os.PathLike[str]) -> Node:
    """The root of a checkpoint's objects, without optimizers.

    Args:
        path: The checkpoint without `.index`, or the directory of which to take the
            latest.

    Raises:
        TypeError: It is no path.
        FileNotFoundError: There is no checkpoint of that name.
        ValueError: It is something else, or a checkpoint without objects.
    """
    prefix = _prefix(check_path("path", path))
    try:
        reader = tf.train.load_checkpoint(prefix)
        objects = trackable_objects(reader)
    except tf.errors.OpError as error:
        raise ValueError(f"{prefix} cannot be read: {error}") from error
    if objects is None:
        raise ValueError(
            f"{prefix} holds variables by name and no objects, as those of TensorFlow "
            "1 do. Load it into its model there, and save it with "
            "tf.train.Checkpoint(model=model).write(path)."
        )
    # The nodes that are reached from the first, each by its shortest path.
    shapes = reader.get_variable_to_shape_map()
    root = Node("")
    made, waiting = {0: root}, deque([0])
    while waiting:
        number = waiting.popleft()
        node, children = made[number], objects[number].children
        for name, child in children.items():
            if name in NOT_OF_MODELS or OF_OPTIMIZERS & objects[child].children.keys():
                continue
            if child not in made:
                made[child] = Node(f"{node.path}/{name}".lstrip("/"))
                key = objects[child].key
                if key in shapes:
                    made[child].value = partial(reader.get_tensor, key)
                    made[child].shape = tuple(shapes[key])
                waiting.append(child)
            node.children[name] = made[child]
    return root


def _prefix(path: Path) -> str:
    """The name of a checkpoint, or of a folder's latest, without an ending."""
    if path.is_dir():
        if found := tf.train.latest_checkpoint(str(path)):
            return found
        raise FileNotFoundError(
            f"{path} has no file named checkpoint that says which is the latest "
            "and where it is: give the path of one." + _those_in(path)
        )
    prefix = re.sub(r"\.(index|data-\d+-of-\d+)$", "", str(path))
    if Path(f"{prefix}.index").is_file():
        return prefix
    if path.is_file():
        raise ValueError(
            f"{path} is no checkpoint, which is files NAME.index and NAME.data-... "
            "Load it into its model in TensorFlow Addons, and save that with "
            "tf.train.Checkpoint(model=model).write(path)."
        )
    raise FileNotFoundError(
        f"There is no checkpoint {prefix}, whose index would be {prefix}.index."
        + _those_in(path.parent)
    )


def _those_in(directory):
    """Names the checkpoints in a directory, also a SavedModel's, in a sentence."""
    found = [*directory.glob("*.index"), *directory.glob("variables/*.index")]
    names = sorted(str(x.relative_to(directory).with_suffix("")) for x in found)
    return f" In {directory} there is {', '.join(names[:10]) or 'none'}."


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

        def of_leaf(leaf: Any) -> frozenset[tuple[str, Shape]]:
            weights = weights_of(leaf).items()
            return frozenset((name, tuple(x.shape)) for name, x in weights)

        return tuple(tuple(map(of_leaf, level)) for level in self.levels)


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
    return _distinct(piece for piece in found if piece.levels)


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
    return _distinct(piece for piece in found if piece.levels)


def levels_of_layer(layer: Any) -> Levels:
    """The levels of a layer; none where it is no piece."""
    if isinstance(layer, RecurrentEncoder):
        directions = filter(None, (layer.forward_layers, layer.backward_layers))
        return _abreast([tuple((x.cell,) for x in one) for one in directions])
    if isinstance(layer, keras.layers.Bidirectional):
        return _abreast(
            [levels_of_layer(x) for x in (layer.forward_layer, layer.backward_layer)]
        )
    if isinstance(layer, keras.layers.RNN):
        return tuple((cell,) for cell in cells_of(layer.cell))
    return ((layer,),) if own_weights(layer) else ()


def _abreast(directions: Sequence[Levels]) -> Levels:
    """Levels whose directions stand beside each other."""
    rows = itertools.zip_longest(*directions, fillvalue=())
    return tuple(tuple(itertools.chain(*row)) for row in rows)


def _distinct(pieces: Iterable[Piece]) -> list[Piece]:
    """Without those that are the same as an earlier one, such as a layer's one cell."""
    found: dict[Any, Piece] = {}
    for piece in pieces:
        found.setdefault(tuple(tuple(map(id, level)) for level in piece.levels), piece)
    return list(found.values())
