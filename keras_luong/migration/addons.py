"""Loads checkpoints of models that were made with TensorFlow Addons' `tfa.seq2seq`.

The parts of a checkpoint are recognised by what they have, as their names are whatever
somebody's model called them. Nothing is guessed from names or from order: two
embeddings of one shape may be of the source and of the target, and the caller has to
say which. `load_addons_checkpoint` first lists where every weight goes, and assigns
when all of it fits.

What the weights of a `tfa.seq2seq.AttentionWrapper` become in a decoder's cell:

* The first cell's `kernel` has the rows of x and then those of h̃, `[E + A, .]`. In an
  `AttentionWrapper` it is the same; in an `InputFeedingDecoderCell` it is `kernel`
  `[:E]` and `feeding_kernel` `[E:]`.
* `LuongAttention`: the kernel W of `memory_layer` is `score.kernel`, transposed.
* `BahdanauAttention`: the kernels of `memory_layer` and `query_layer` are
  `score.value_kernel` and `score.query_kernel`, `attention_v` is `score.scale`.
* Of both: `attention_g` is `score.gain`, `attention_b` `score.bias`, and
  `attention_score_bias` that of the `MonotonicAttention`.
* The attention layer has the rows of h first, and ours those of the context.

Shapes: E inputs, A attentional units, H units of h.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_luong.compat import flat_layers
from keras_luong.layers.attention_wrapper import AttentionWrapper, cells_of
from keras_luong.layers.encoder import RecurrentEncoder
from keras_luong.layers.input_feeding_cell import (
    AttentionalVector,
    InputFeedingDecoderCell,
)
from keras_luong.layers.monotonic_attention import MonotonicAttention
from keras_luong.layers.scores import SCORES
from keras_luong.migration.object_graph import (
    Node,
    Piece,
    levels_of_layer,
    levels_of_node,
    nodes_of_cell,
    own_weights,
    pieces_of_checkpoint,
    pieces_of_model,
    read_checkpoint,
    weights_of,
)
from keras_luong.types import Shape

#: Cells that a wrapper of Addons can become.
CELLS = AttentionWrapper, InputFeedingDecoderCell

#: Layers that cannot be loaded before they are built.
WITH_WEIGHTS = (
    *CELLS,
    RecurrentEncoder,
    keras.layers.RNN,
    keras.layers.Bidirectional,
    keras.layers.Embedding,
    keras.layers.Dense,
)

#: Our score, by Addons' name and whether it has g.
SCORE_MODES = {
    ("Luong", False): "general",
    ("Luong", True): "scaled_general",
    ("Bahdanau", False): "concat",
    ("Bahdanau", True): "normed_concat",
}

#: The variable of the checkpoint, the weight of the model, and its new value.
Placing = tuple[Node, Any, Any]


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

        def count(weights: Mapping[str, Any]) -> str:
            return f"{len(weights)} weight{'s' * (len(weights) != 1)}"

        def listed(shapes: Mapping[str, Shape]) -> str:
            return ", ".join(f"{path} {shape}" for path, shape in shapes.items())

        verb = "is" if len(self.placed) == 1 else "are"
        lines = [f"{count(self.placed)} of the checkpoint {verb} placed."]
        if self.not_placed:
            lines.append(
                f"No place in the model for {count(self.not_placed)} of the "
                f"checkpoint: {listed(self.not_placed)}."
            )
        if self.not_loaded:
            lines.append(
                f"Not loaded, so as before: {count(self.not_loaded)} of the model: "
                f"{listed(self.not_loaded)}."
            )
        return "\n".join([*lines, *self.hints])


def load_addons_checkpoint(
    path: str | os.PathLike[str],
    model: Any,
    places: Mapping[str, keras.layers.Layer | None] | None = None,
) -> LoadedCheckpoint:
    """Loads a checkpoint of a model with a `tfa.seq2seq.AttentionWrapper` into ours.

    TensorFlow Addons is not needed. The parts of the checkpoint are found by what they
    are and not by their names, which are whatever somebody's model called them:

    * the `AttentionWrapper`, with `LuongAttention`, `BahdanauAttention` or the
      monotonic ones, becomes the model's decoder, which has to be its like;
    * the `output_layer` of its decoder becomes the model's;
    * recurrent layers, stacks of them and `Bidirectional` ones, embeddings and all
      other layers go to where names and shapes of weights fit, if that is one place
      only. Nothing is guessed: two embeddings of one shape need `places`.

    What is not in a checkpoint has to be known: activations, `output_attention`, what
    the encoder does with its states. No weight changes where an error is raised. The
    state of an optimizer is not loaded.

    Args:
        path: A checkpoint that `tf.train.Checkpoint` or `save_weights` of Keras 2
            wrote, without `.index`; or a directory, for its latest.
        model: A model such as `Seq2Seq`, or your own, with one decoder; or a layer; or
            a list or dictionary of layers, such as a decoder, its embedding and its
            output layer. All of them have their weights already.
        places: Where to put what is not clear: a layer of the model by the path of an
            object in the checkpoint. None for what is to be left out.

    Returns:
        What was placed where, and what was not.

    Warns:
        UserWarning: If weights of the checkpoint were not placed, or weights of the
            model not loaded.

    Raises:
        TypeError: An argument is none of the above.
        FileNotFoundError: There is no such checkpoint.
        ValueError: It is something else, there is no wrapper in it or no decoder in the
            model, more than one of them without `places`, or they do not fit each
            other; a model without weights, or a quantized one.

    Example:
        >>> config = kl.Seq2SeqConfig(
        ...     source_vocab_size=20, target_vocab_size=10, units=4, embedding_dim=3,
        ...     bidirectional=False, attentional_activation=None, output_bias=True,
        ... )
        >>> model = kl.Seq2Seq(config)
        >>> print(kl.migration.load_addons_checkpoint("addons/translator", model))
        12 weights of the checkpoint are placed.
    """
    layers = _built_layers(model)
    places = {} if places is None else places
    if not isinstance(places, Mapping) or not all(isinstance(x, str) for x in places):
        raise TypeError(
            "places must be a dictionary of layers of the model, or None, by paths of "
            f"the checkpoint. Received: {places!r}"
        )
    root, placings = read_checkpoint(path), Placings()
    for place, layer in places.items():
        _place_by_hand(root.find(place), layer, layers, placings)
    _place_decoder(root, layers, placings)
    _place_output_layer(root, layers, placings)
    theirs, ours = pieces_of_checkpoint(root), pieces_of_model(layers)
    hints = tuple(_match(theirs, ours, placings))
    weights = {id(x): x for layer in layers for x in layer.weights}.values()
    variables = [node for node in root.walk() if node.value is not None]
    loaded = LoadedCheckpoint(
        placings.paths(),
        {node.path: node.shape for node in variables if not placings.has(node)},
        {x.path: tuple(x.shape) for x in weights if not placings.has_weight(x)},
        hints,
    )
    placings.assign()  # all or nothing: whatever raises has done so
    if not loaded.complete:
        warnings.warn(str(loaded), stacklevel=2)
    return loaded


def _built_layers(model):
    """All layers of a model, of a layer or of several, each once; they are built."""
    parts = keras.tree.flatten(model)
    if not parts or not all(isinstance(x, keras.layers.Layer) for x in parts):
        raise TypeError(
            "model must be a Keras model or layer, or a list or dictionary of them. "
            f"Received: {model!r}"
        )
    layers = list({id(x): x for one in parts for x in flat_layers(one)}.values())
    for layer in layers:
        if isinstance(layer, WITH_WEIGHTS) and not layer.built:
            raise ValueError(
                f"{layer.name} has no weights yet: call the model once, on a batch of "
                "any numbers, and load the checkpoint then."
            )
        if layer.quantization_mode is not None:
            raise ValueError(
                f"{layer.name} is quantized ({layer.quantization_mode}): load the "
                "checkpoint first, and quantize then."
            )
    return layers


class Placings:
    """Which variable of the checkpoint goes to which weight, and what is left out."""

    def __init__(self) -> None:
        self._by_weight: dict[int, Placing] = {}  # by id
        self._nodes: set[Node] = set()  # variables

    def add(self, placings: Iterable[Placing]) -> None:
        """Adds placings.

        Raises:
            ValueError: A weight of the model has got another value already.
        """
        placings = list(placings)
        for node, weight, _ in placings:
            if self.has_weight(weight):
                other, *_ = self._by_weight[id(weight)]
                raise ValueError(
                    f"{weight.path} of the model has more than one place in the "
                    f"checkpoint: {other.path} and {node.path}."
                )
        self._by_weight |= {id(placing[1]): placing for placing in placings}
        self.leave_out(node for node, _, _ in placings)

    def leave_out(self, nodes: Iterable[Node]) -> None:
        """Marks variables of the checkpoint as placed, or as not needed."""
        self._nodes.update(nodes)

    def has(self, part: Any) -> bool:
        """Whether any weight of a node or of a layer, or in it, has been placed."""
        if isinstance(part, Node):
            return not self._nodes.isdisjoint(part.walk())
        return any(map(self.has_weight, part.weights))

    def has_weight(self, weight: Any) -> bool:
        """Whether a weight of the model is to be loaded."""
        return id(weight) in self._by_weight

    def paths(self) -> dict[str, str]:
        """Where everything goes: paths of ours by paths of the checkpoint."""
        found: dict[str, list[str]] = defaultdict(list)
        for node, weight, _ in self._by_weight.values():
            found[node.path].append(weight.path)
        return {path: ", ".join(ours) for path, ours in found.items()}

    def assign(self) -> None:
        """Gives the model its weights."""
        for _, weight, value in self._by_weight.values():
            weight.assign(value)


# The steps of `load_addons_checkpoint`.


def _place_by_hand(node, layer, layers, placings):
    """One of the argument `places`."""
    if layer is None:
        placings.leave_out(x for x in node.walk() if x.value is not None)
        return
    if node.value is not None:
        raise ValueError(
            "places must name objects of the checkpoint, such as layers. Received a "
            f"weight: {node.path!r}"
        )
    if not any(layer is x for x in layers):
        raise ValueError(
            f"places must name layers of the model. Received: {node.path!r}: {layer!r}"
        )
    if not is_wrapper(node):
        theirs = Piece(node.path, levels_of_node(node))
        placings.add(place_piece(theirs, Piece(layer.path, levels_of_layer(layer))))
        return
    cell = layer if isinstance(layer, CELLS) else getattr(layer, "cell", None)
    if not isinstance(cell, CELLS):
        raise ValueError(
            f"{node.path} of the checkpoint is an AttentionWrapper, and goes to a "
            f"decoder or its cell. Received: {layer!r}"
        )
    placings.add(place_wrapper(node, cell))


def _place_decoder(root, layers, placings):
    """Places a wrapper's weights in a decoder's cell, which must match it."""
    wrappers = [x for x in root.walk() if is_wrapper(x)]
    cells = [x for x in layers if isinstance(x, CELLS)]
    if not wrappers:
        raise ValueError(
            "There is no tfa.seq2seq.AttentionWrapper in the checkpoint. Received one "
            f"of {', '.join(x.path for x in root.children.values()) or 'nothing'}."
        )
    if not cells:
        raise ValueError(
            "There is no decoder in the model: no AttentionWrapper or "
            "InputFeedingDecoderCell. Received: "
            f"{', '.join(layer.name for layer in layers)}"
        )
    wrappers = [x for x in wrappers if not placings.has(x)]
    cells = [x for x in cells if not placings.has(x)]
    if len(wrappers) > 1 or (wrappers and len(cells) > 1):
        raise ValueError(
            "Say with places={path: layer} which wrapper is which decoder. The "
            f"checkpoint has {', '.join(x.path for x in wrappers)}, and the model "
            f"{', '.join(x.path for x in cells)}."
        )
    for wrapper, cell in zip(wrappers, cells, strict=False):
        placings.add(place_wrapper(wrapper, cell))


def _place_output_layer(root, layers, placings):
    """What Addons' decoders call `output_layer` goes to ours, if each has one."""
    nodes = [
        node.children[name]
        for node in root.walk()
        for name in ("output_layer", "_output_layer")
        if name in node.children and _has_wrapper(node)
    ]
    found: list[Any] = [getattr(layer, "output_layer", None) for layer in layers]
    found = [x for x in found if isinstance(x, keras.layers.Layer)]
    theirs = [x for x in dict.fromkeys(nodes) if not placings.has(x)]
    ours = [x for x in {id(x): x for x in found}.values() if not placings.has(x)]
    if not len(theirs) == len(ours) == 1:
        return
    (node,), (layer,) = theirs, ours
    has, wants = ("bias" in weights_of(x) for x in (node, layer))
    if has != wants:  # `Seq2Seq` has none by default
        raise ValueError(
            f"{node.path} of the checkpoint has {'a' if has else 'no'} bias, which "
            f"is output_bias={has} of Seq2SeqConfig, or use_bias={has} of your "
            f"own Dense. Received: {layer.path} with {'a' if wants else 'no'} bias"
        )
    placings.add(place_layer(node, layer))


def _match(
    theirs: Sequence[Piece], ours: Sequence[Piece], placings: Placings
) -> Iterator[str]:
    """Places every piece that fits one piece of ours, where no other does.

    The largest come first: a stack as a whole rather than its layers one by one.

    Yields:
        Sentences about layers that fit several places, or places that several fit.
    """

    def alike(size: int) -> list[tuple[list[Piece], list[Piece]]]:
        """Those of a size that fit each other and are not placed yet, of both sides."""
        groups: Any = defaultdict(lambda: ([], []))
        for side, pieces in enumerate((theirs, ours)):
            for piece in pieces:
                if len(piece.leaves) == size and not any(
                    map(placings.has, piece.leaves)
                ):
                    groups[piece.signature][side].append(piece)
        return [group for group in groups.values() if all(group)]

    for size in sorted({len(piece.leaves) for piece in ours}, reverse=True):
        for one, other in alike(size):
            if len(one) == len(other) == 1:
                placings.add(place_piece(one[0], other[0]))
    for group in alike(1):
        names = [", ".join(piece.path for piece in side) for side in group]
        yield (
            f"{names[0]} of the checkpoint could be {names[1]} of the model: "
            "say which with places={path: layer}."
        )


# What goes where of a wrapper of Addons.


def is_wrapper(node: Node) -> bool:
    """Whether a node is a `tfa.seq2seq.AttentionWrapper`."""
    return {"_cell", "_attention_mechanisms"} <= node.children.keys()


def _has_wrapper(node):
    """Whether a node is a decoder of Addons around such a wrapper."""
    cell = node.children.get("cell") or node.children.get("_cell")
    return cell is not None and is_wrapper(cell)


def place_wrapper(wrapper: Node, cell: Any) -> list[Placing]:
    """Every weight of a wrapper.

    Args:
        wrapper: The node of a wrapper.
        cell: An `AttentionWrapper` or `InputFeedingDecoderCell` that is built.

    Raises:
        ValueError: The cell has other parts, or other sizes.
    """
    mechanisms = wrapper.children["_attention_mechanisms"].items
    if len(mechanisms) != 1:
        raise ValueError(
            f"{wrapper.path} of the checkpoint has {len(mechanisms)} attention "
            "mechanisms, and a decoder's cell has one."
        )
    _check_attention(mechanisms[0], cell.attention)  # the kind first, then sizes
    return [
        *_place_cells(wrapper.children["_cell"], cell),
        *_place_attention(mechanisms[0], cell.attention),
        *_place_attention_layer(wrapper, cell),
    ]


def _check_attention(node, attention):
    """Raises unless an attention mechanism is of the model's kind."""
    is_bahdanau = "attention_v" in node.children
    is_monotonic = "attention_score_bias" in node.children
    is_scaled = _gain_of(node) is not None
    name = "Bahdanau" if is_bahdanau else "Luong"
    mode = SCORE_MODES[name, is_scaled]
    same_kind = isinstance(attention, MonotonicAttention) == is_monotonic
    if same_kind and type(getattr(attention, "score", None)) is SCORES[mode]:
        return
    option = "normalize" if is_bahdanau else "scale"
    theirs = f"{name}{'Monotonic' * is_monotonic}Attention"
    theirs += f"(units{f', {option}=True' * is_scaled})"
    kind = "MonotonicAttention" if is_monotonic else "LuongAttention"
    ours = "no attention"
    if attention is not None:
        own_mode = getattr(attention, "score_mode", None)
        ours = "" if own_mode is None else repr(own_mode)
        ours = f"{type(attention).__name__}({ours})"
    raise ValueError(
        f"{node.path} of the checkpoint is a {theirs}, which is "
        f'{kind}("{mode}") here. Received: {ours}'
    )


def _gain_of(node):
    """The checkpoint's name for g, which differs by attention; None without g."""
    names = "scale_weight", "attention_g"
    return next((name for name in names if name in node.children), None)


def _place_cells(node, cell):
    """The recurrent layers. The first one's rows of x and of h̃ are one kernel there."""
    has_one_kernel = isinstance(cell, AttentionWrapper)
    if has_one_kernel:
        ours = cells_of(cell.cell)
    else:
        ours = [layer.cell for layer in cell.recurrent.layers]
    theirs = nodes_of_cell(node)
    if len(theirs) != len(ours):
        raise ValueError(
            f"{node.path} of the checkpoint has {len(theirs)} recurrent layers, and "
            f"the model's decoder {len(ours)}."
        )
    pairs, placings = list(zip(theirs, ours, strict=True)), []
    if not has_one_kernel:
        (first, layer), *pairs = pairs
        kernel, split = _weight(first, "kernel"), cell.input_units
        feeding = cell.feeding_kernel
        fed = 0 if feeding is None else cell.attentional_units
        columns = cell.recurrent.columns
        if kernel.shape != (split + fed, columns):
            raise ValueError(
                f"{kernel.path} of the checkpoint has the shape {kernel.shape}, and "
                f"the model would need ({split} + {fed}, {columns}): rows for the "
                "inputs, and for the attentional vector that is fed back."
            )
        weights, value = _same_names(first, layer), kernel.read()
        placings = [place(kernel, weights.pop("kernel"), value[:split])]
        if feeding is not None:
            placings.append(place(kernel, feeding, value[split:]))
        placings += [place(first.weights[name], x) for name, x in weights.items()]
    return placings + [x for pair in pairs for x in place_layer(*pair)]


def _place_attention(node, attention):
    """The weights of an attention mechanism."""
    score, memory = attention.score, _weight(node, "memory_layer", "kernel")
    if "attention_v" in node.children:  # a Bahdanau attention
        placings = [
            place(memory, score.value_kernel),
            place(_weight(node, "query_layer", "kernel"), score.query_kernel),
            place(_weight(node, "attention_v"), score.scale),
        ]
    else:
        placings = [place(memory, score.kernel, memory.read().T)]
    more = {
        "attention_b": getattr(score, "bias", None),
        "attention_score_bias": getattr(attention, "score_bias", None),
    }
    if gain := _gain_of(node):
        more[gain] = score.gain
    there = {name: weight for name, weight in more.items() if weight is not None}
    return placings + [place(_weight(node, name), x) for name, x in there.items()]


def _place_attention_layer(wrapper, cell):
    """Placings of W_c: its rows of h come first there, those of the context here."""
    vector, layers = cell.attentional_vector, wrapper.children.get("_attention_layers")
    if (layers is None) != (vector is None):
        theirs = "no attention layer" if layers is None else "an attention layer"
        raise ValueError(
            f"{wrapper.path} of the checkpoint has {theirs}, which is "
            f"use_attentional_vector={layers is not None} here. Received: "
            f"use_attentional_vector={vector is not None}"
        )
    if layers is None or not isinstance(vector, AttentionalVector):
        return []
    (node,) = layers.items
    kernel, h = _weight(node, "kernel"), cell.query_units
    value = kernel.read()
    placings = [place(kernel, vector.kernel, np.concatenate([value[h:], value[:h]]))]
    if ("bias" in node.children) != vector.use_bias:
        raise ValueError(
            f"{node.path} of the checkpoint has "
            f"{'a' if not vector.use_bias else 'no'} bias, which is attentional_bias="
            f"{not vector.use_bias} here. Received: attentional_bias={vector.use_bias}"
        )
    if vector.use_bias:
        placings.append(place(_weight(node, "bias"), vector.bias))
    return placings


def _weight(node, *names):
    """The variable that is reached by names.

    Raises:
        ValueError: There is none.
    """
    for name in names:
        if name not in node.children:
            raise ValueError(
                f"{node.path} of the checkpoint has no {name}. It has "
                f"{', '.join(node.children)}."
            )
        node = node.children[name]
    return node


# What goes where of a piece, of a layer, of a weight.


def place_piece(theirs: Piece, ours: Piece) -> list[Placing]:
    """Every weight of a piece, by its name.

    Raises:
        ValueError: They do not fit each other.
    """

    def described(piece: Piece) -> str:
        levels = [" and ".join(str(_shapes(leaf)) for leaf in x) for x in piece.levels]
        return f"{len(levels)} level{'s' * (len(levels) != 1)} ({'; '.join(levels)})"

    if [len(level) for level in theirs.levels] != [len(x) for x in ours.levels]:
        raise ValueError(
            f"{theirs.path} of the checkpoint does not fit {ours.path}: it has "
            f"{described(theirs)}, and the model {described(ours)}."
        )
    pairs = zip(theirs.leaves, ours.leaves, strict=True)
    return [placing for pair in pairs for placing in place_layer(*pair)]


def place_layer(node: Node, layer: Any) -> list[Placing]:
    """Every weight of a layer, by its name.

    Raises:
        ValueError: The two have other weights.
    """
    ours = _same_names(node, layer)
    return [place(node.weights[name], weight) for name, weight in ours.items()]


def _same_names(node, layer):
    """The weights of a layer, by name; raises unless the node has the same names."""
    ours = own_weights(layer)
    if node.weights.keys() != ours.keys():
        raise ValueError(
            f"{node.path} of the checkpoint has {_shapes(node)}, and {layer.path} of "
            f"the model {_shapes(layer)}."
        )
    return ours


def _shapes(leaf):
    return {name: tuple(x.shape) for name, x in weights_of(leaf).items()}


def place(node: Node, weight: Any, value: Any = None) -> Placing:
    """One weight of the checkpoint, as it is or as `value`, as one of ours.

    Raises:
        ValueError: They have other shapes.
    """
    value, wanted = node.read() if value is None else value, tuple(weight.shape)
    if tuple(value.shape) != wanted:
        is_transposed = node.shape != value.shape and node.shape == value.shape[::-1]
        raise ValueError(
            f"{node.path} of the checkpoint has the shape {node.shape}, and "
            f"{weight.path} of the model would need it to be "
            f"{wanted[::-1] if is_transposed else wanted}."
        )
    return node, weight, value
