"""Checkpoints of models that were made with TensorFlow Addons' `tfa.seq2seq`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import keras

from keras_luong.compat import flat_layers
from keras_luong.layers.encoder import RecurrentEncoder
from keras_luong.migration.decoder_weights import (
    CELLS,
    has_wrapper,
    is_wrapper,
    place_wrapper,
)
from keras_luong.migration.matching import ambiguities, match
from keras_luong.migration.object_graph import read_checkpoint
from keras_luong.migration.pieces import (
    Piece,
    levels_of_layer,
    levels_of_node,
    pieces_of_checkpoint,
    pieces_of_model,
    weights_of,
)
from keras_luong.migration.placings import Placings, place_layer, place_piece
from keras_luong.migration.report import LoadedCheckpoint

#: Layers that cannot be loaded before they are built.
WITH_WEIGHTS = (
    *CELLS,
    RecurrentEncoder,
    keras.layers.RNN,
    keras.layers.Bidirectional,
    keras.layers.Embedding,
    keras.layers.Dense,
)


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
    layers, places = _layers(model), _checked(places)
    root, placings = read_checkpoint(path), Placings()
    for place, layer in places.items():
        _place_by_hand(root.find(place), layer, layers, placings)
    _place_decoder(root, layers, placings)
    _place_output_layer(root, layers, placings)
    theirs, ours = pieces_of_checkpoint(root), pieces_of_model(layers)
    match(theirs, ours, placings)
    hints = tuple(ambiguities(theirs, ours, placings))
    loaded = _report(root, layers, placings, hints)
    placings.assign()  # all or nothing: whatever raises has done so
    if not loaded.complete:
        warnings.warn(str(loaded), stacklevel=2)
    return loaded


def _layers(model):
    """All layers of a model, of a layer or of several, each once."""
    given = keras.tree.flatten(model)
    if not given or not all(isinstance(x, keras.layers.Layer) for x in given):
        raise TypeError(
            "model must be a Keras model or layer, or a list or dictionary of them. "
            f"Received: {model!r}"
        )
    layers = list({id(x): x for one in given for x in flat_layers(one)}.values())
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


def _checked(places):
    """The argument `places`."""
    places = {} if places is None else places
    if not isinstance(places, Mapping) or not all(isinstance(x, str) for x in places):
        raise TypeError(
            "places must be a dictionary of layers of the model, or None, by paths of "
            f"the checkpoint. Received: {places!r}"
        )
    return places


def _place_by_hand(node, layer, layers, placings):
    """One of the argument `places`."""
    if layer is None:
        placings.leave_out(x for x in node.walk() if x.value is not None)
    elif node.value is not None:
        raise ValueError(
            "places must name objects of the checkpoint, such as layers. Received a "
            f"weight: {node.path!r}"
        )
    elif not any(layer is x for x in layers):
        raise ValueError(
            f"places must name layers of the model. Received: {node.path!r}: {layer!r}"
        )
    elif is_wrapper(node):
        placings.add(place_wrapper(node, _cell_of(layer, node)))
    else:
        placings.add(
            place_piece(
                Piece(node.path, levels_of_node(node)),
                Piece(layer.path, levels_of_layer(layer)),
            )
        )


def _cell_of(layer, node):
    """The cell of a decoder, or the cell that it is itself."""
    cell = layer if isinstance(layer, CELLS) else getattr(layer, "cell", None)
    if not isinstance(cell, CELLS):
        raise ValueError(
            f"{node.path} of the checkpoint is an AttentionWrapper, and goes to a "
            f"decoder or its cell. Received: {layer!r}"
        )
    return cell


def _place_decoder(root, layers, placings):
    """The wrapper goes to the decoder's cell, which has to be its like."""
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
        if name in node.children and has_wrapper(node)
    ]
    found = {id(x): x for layer in layers if (x := _output_layer(layer)) is not None}
    theirs = [node for node in dict.fromkeys(nodes) if not placings.has(node)]
    ours = [layer for layer in found.values() if not placings.has(layer)]
    if len(theirs) == len(ours) == 1:
        _check_bias(theirs[0], ours[0])
        placings.add(place_layer(theirs[0], ours[0]))


def _check_bias(node, layer):
    """Raises where one output layer has a bias: `Seq2Seq` has none by default."""
    theirs, ours = ("bias" in weights_of(x) for x in (node, layer))
    if theirs != ours:
        raise ValueError(
            f"{node.path} of the checkpoint has {'a' if theirs else 'no'} bias, which "
            f"is output_bias={theirs} of Seq2SeqConfig, or use_bias={theirs} of your "
            f"own Dense. Received: {layer.path} with {'a' if ours else 'no'} bias"
        )


def _output_layer(layer):
    found = getattr(layer, "output_layer", None)
    return found if isinstance(found, keras.layers.Layer) else None


def _report(root, layers, placings, hints):
    not_placed = {
        node.path: node.shape
        for node in root.walk()
        if node.value is not None and not placings.has(node)
    }
    weights = {id(x): x for layer in layers for x in layer.weights}
    not_loaded = {
        weight.path: tuple(weight.shape)
        for weight in weights.values()
        if not placings.has_weight(weight)
    }
    return LoadedCheckpoint(placings.paths(), not_placed, not_loaded, hints)
