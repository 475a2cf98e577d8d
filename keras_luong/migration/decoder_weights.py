"""From the weights of `tfa.seq2seq.AttentionWrapper` to those of a decoder's cell.

* The first cell's `kernel` has the rows of x and then those of h̃, `[E + A, .]`. In an
  `AttentionWrapper` it is the same; in an `InputFeedingDecoderCell` it is `kernel`
  `[:E]` and `feeding_kernel` `[E:]`.
* `LuongAttention`: the kernel W of `memory_layer` is `score.kernel`, transposed.
* `BahdanauAttention`: the kernels of `memory_layer` and `query_layer` are
  `score.value_kernel` and `score.query_kernel`, `attention_v` is `score.scale`.
* Of both: `attention_g` is `score.gain`, `attention_b` `score.bias`, and
  `attention_score_bias` that of the `MonotonicAttention`.
* The attention layer has the rows of h first, and we those of the context.

Shapes: E inputs, A attentional units, H units of h.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_luong.layers.attention_wrapper import AttentionWrapper
from keras_luong.layers.attentional_output import AttentionalVector
from keras_luong.layers.input_feeding_cell import InputFeedingDecoderCell
from keras_luong.layers.monotonic_attention import MonotonicAttention
from keras_luong.layers.score_modes import SCORES
from keras_luong.layers.wrapped_cell import cells_of
from keras_luong.migration.object_graph import Node
from keras_luong.migration.pieces import nodes_of_cell, own_weights
from keras_luong.migration.placings import Placing, place, place_layer

#: Cells that a wrapper of Addons can become.
CELLS = AttentionWrapper, InputFeedingDecoderCell


def is_wrapper(node: Node) -> bool:
    """Whether a node is a `tfa.seq2seq.AttentionWrapper`."""
    return {"_cell", "_attention_mechanisms"} <= node.children.keys()


def has_wrapper(node: Node) -> bool:
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
    return [
        *_place_cells(wrapper.children["_cell"], cell),
        *_place_mechanism(wrapper, cell),
        *_place_attention_layer(wrapper, cell),
    ]


def _place_cells(node, cell):
    theirs, is_wrapper = nodes_of_cell(node), isinstance(cell, AttentionWrapper)
    ours = cells_of(cell.cell) if is_wrapper else [x.cell for x in cell.layers]
    if len(theirs) != len(ours):
        raise ValueError(
            f"{node.path} of the checkpoint has {len(theirs)} recurrent layers, and "
            f"the model's decoder {len(ours)}."
        )
    pairs, placings = list(zip(theirs, ours, strict=True)), []
    if not is_wrapper:
        first, *pairs = pairs
        placings = _place_first(*first, cell)
    return placings + [x for pair in pairs for x in place_layer(*pair)]


def _place_first(node, layer, cell):
    """The rows of x and of h̃ are one kernel there, and two here."""
    kernel, feeding, split = (
        _weight(node, "kernel"),
        cell.feeding_kernel,
        cell.input_units,
    )
    fed = 0 if feeding is None else cell.attentional_units
    if kernel.shape != (split + fed, cell.columns):
        raise ValueError(
            f"{kernel.path} of the checkpoint has the shape {kernel.shape}, and the "
            f"model would need ({split} + {fed}, {cell.columns}): rows for the inputs, "
            "and for the attentional vector that is fed back."
        )
    value = kernel.read()
    placings = [place(kernel, layer.kernel, value[:split])]
    if feeding is not None:
        placings.append(place(kernel, feeding, value[split:]))
    for name in sorted((node.weights.keys() | own_weights(layer).keys()) - {"kernel"}):
        placings.append(place(_weight(node, name), getattr(layer, name)))
    return placings


def _place_mechanism(wrapper, cell):
    mechanisms = wrapper.children["_attention_mechanisms"].items
    attention = cell.attention
    if len(mechanisms) != 1:
        raise ValueError(
            f"{wrapper.path} of the checkpoint has {len(mechanisms)} attention "
            "mechanisms, and a decoder's cell has one."
        )
    (node,) = mechanisms
    _check_attention(node, attention)
    score, is_bahdanau = attention.score, "attention_v" in node.children
    memory = _weight(node, "memory_layer", "kernel")
    if is_bahdanau:
        placings = [
            place(memory, score.value_kernel),
            place(_weight(node, "query_layer", "kernel"), score.query_kernel),
            place(_weight(node, "attention_v"), score.scale),
        ]
    else:
        placings = [place(memory, score.kernel, memory.read().T)]
    for name, weight in (
        (_GAIN[is_bahdanau or _is_monotonic(node)], getattr(score, "gain", None)),
        ("attention_b", getattr(score, "bias", None)),
        ("attention_score_bias", getattr(attention, "score_bias", None)),
    ):
        if weight is not None:
            placings.append(place(_weight(node, name), weight))
    return placings


#: What Addons calls g: in `LuongAttention`, and in its other mechanisms.
_GAIN = {False: "scale_weight", True: "attention_g"}


def _is_monotonic(node):
    return "attention_score_bias" in node.children


def _check_attention(node, attention):
    """Raises unless a mechanism's kind is an attention's."""
    has_gain = bool({"scale_weight", "attention_g"} & node.children.keys())
    if "attention_v" in node.children:
        theirs, option = "Bahdanau", ", normalize=True" * has_gain
        wanted = "normed_concat" if has_gain else "concat"
    else:
        theirs, option = "Luong", ", scale=True" * has_gain
        wanted = "scaled_general" if has_gain else "general"
    monotonic = _is_monotonic(node)
    kind = "MonotonicAttention" if monotonic else "LuongAttention"
    score = getattr(attention, "score", None)
    if isinstance(attention, MonotonicAttention) != monotonic or (
        type(score) is not SCORES[wanted]
    ):
        theirs += "Monotonic" * monotonic
        raise ValueError(
            f"{node.path} of the checkpoint is a {theirs}Attention(units{option}), "
            f'which is {kind}("{wanted}") here. Received: {_described(attention)}'
        )


def _described(attention):
    mode = getattr(attention, "score_mode", None)
    mode = repr(mode) if mode is not None else ""
    return f"{type(attention).__name__}({mode})"


def _place_attention_layer(wrapper, cell):
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
