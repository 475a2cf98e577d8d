"""The objects of a `tf.train.Checkpoint`, and the weights that they have."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_path
from keras_luong.compat import trackable_objects
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
        """What is reached by a path from here.

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
    prefix = find_checkpoint(path)
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
    return _connected(objects, reader)


def find_checkpoint(path: str | os.PathLike[str]) -> str:
    """The name of a checkpoint, without the ending of its files; see the above."""
    path = check_path("path", path)
    if path.is_dir():
        return _latest(path)
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


def _latest(directory):
    found = tf.train.latest_checkpoint(str(directory))
    if found is None:
        raise FileNotFoundError(
            f"{directory} has no file named checkpoint that says which is the latest "
            "and where it is: give the path of one." + _those_in(directory)
        )
    return found


def _those_in(directory):
    """A sentence; one in a SavedModel is variables/variables."""
    found = [*directory.glob("*.index"), *directory.glob("variables/*.index")]
    names = sorted(str(x.relative_to(directory).with_suffix("")) for x in found)
    return f" In {directory} there is {', '.join(names[:10]) or 'none'}."


def _connected(objects, reader):
    """The nodes that are reached from the first, each by its shortest path."""
    shapes = reader.get_variable_to_shape_map()
    made = {0: Node("")}
    waiting = deque([0])
    while waiting:
        number = waiting.popleft()
        node, children = made[number], objects[number].children
        for name, child in children.items():
            if name in NOT_OF_MODELS or OF_OPTIMIZERS & objects[child].children.keys():
                continue
            if child not in made:
                path = f"{node.path}/{name}".lstrip("/")
                made[child] = _node(path, objects[child].key, reader, shapes)
                waiting.append(child)
            node.children[name] = made[child]
    return made[0]


def _node(path, key, reader, shapes):
    if key not in shapes:
        return Node(path)
    return Node(path, {}, lambda: reader.get_tensor(key), tuple(shapes[key]))
