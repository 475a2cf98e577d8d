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
from keras_luong.migration.pieces import nodes_of_cell
from keras_luong.migration.placings import Placing, place, place_layer, same_names

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
    mechanism = _mechanism(wrapper)
    _check_attention(mechanism, cell.attention)  # the kind first, then sizes
    return [
        *_place_cells(wrapper.children["_cell"], cell),
        *_place_mechanism(mechanism, cell.attention),
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
    kernel, split = _weight(node, "kernel"), cell.input_units
    feeding = cell.feeding_kernel
    fed = 0 if feeding is None else cell.attentional_units
    if kernel.shape != (split + fed, cell.columns):
        raise ValueError(
            f"{kernel.path} of the checkpoint has the shape {kernel.shape}, and the "
            f"model would need ({split} + {fed}, {cell.columns}): rows for the inputs, "
            "and for the attentional vector that is fed back."
        )
    ours, value = same_names(node, layer), kernel.read()
    placings = [place(kernel, ours.pop("kernel"), value[:split])]
    if feeding is not None:
        placings.append(place(kernel, feeding, value[split:]))
    return placings + [place(node.weights[name], ours[name]) for name in ours]


def _mechanism(wrapper):
    mechanisms = wrapper.children["_attention_mechanisms"].items
    if len(mechanisms) != 1:
        raise ValueError(
            f"{wrapper.path} of the checkpoint has {len(mechanisms)} attention "
            "mechanisms, and a decoder's cell has one."
        )
    return mechanisms[0]


def _place_mechanism(node, attention):
    score, gain = attention.score, _gain_of(node)
    more = {
        "attention_b": getattr(score, "bias", None),
        "attention_score_bias": getattr(attention, "score_bias", None),
        **({gain: score.gain} if gain else {}),
    }
    return _place_matrices(node, score) + [
        place(_weight(node, name), weight)
        for name, weight in more.items()
        if weight is not None
    ]


def _place_matrices(node, score):
    memory = _weight(node, "memory_layer", "kernel")
    if not _is_bahdanau(node):
        return [place(memory, score.kernel, memory.read().T)]
    return [
        place(memory, score.value_kernel),
        place(_weight(node, "query_layer", "kernel"), score.query_kernel),
        place(_weight(node, "attention_v"), score.scale),
    ]


def _is_bahdanau(node):
    return "attention_v" in node.children


def _is_monotonic(node):
    return "attention_score_bias" in node.children


def _gain_of(node):
    """What g is called there: in `LuongAttention` otherwise than in the others."""
    names = "scale_weight", "attention_g"
    return next((name for name in names if name in node.children), None)


#: Our score, by Addons' name and whether it has g.
_SCORE_MODES = {
    ("Luong", False): "general",
    ("Luong", True): "scaled_general",
    ("Bahdanau", False): "concat",
    ("Bahdanau", True): "normed_concat",
}


def _check_attention(node, attention):
    """Raises unless a mechanism's kind is an attention's."""
    name = "Bahdanau" if _is_bahdanau(node) else "Luong"
    scaled, monotonic = _gain_of(node) is not None, _is_monotonic(node)
    wanted = _SCORE_MODES[name, scaled]
    same_kind = isinstance(attention, MonotonicAttention) == monotonic
    if same_kind and type(getattr(attention, "score", None)) is SCORES[wanted]:
        return
    option = "normalize" if _is_bahdanau(node) else "scale"
    theirs = f"{name}{'Monotonic' * monotonic}Attention"
    theirs += f"(units{f', {option}=True' * scaled})"
    kind = "MonotonicAttention" if monotonic else "LuongAttention"
    raise ValueError(
        f"{node.path} of the checkpoint is a {theirs}, which is "
        f'{kind}("{wanted}") here. Received: {_described(attention)}'
    )


def _described(attention):
    if attention is None:
        return "no attention"
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
