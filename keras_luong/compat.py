"""Private names of Keras, TensorFlow and tensorflow-text that the library uses.

All that are imported, read or called on another object are here, because there is no
public way; `tests/test_compat.py` says so when one of them goes. Private methods that
Keras leaves to subclasses are overridden, and called on `self`, where they are needed:
in `training.optimizers`, `models.transformer` and `text.sentencepiece`.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import ops
from keras.src import backend
from keras.src.backend.common import global_state

#: The graph in which the tape of a training step is.
_TAPED: contextvars.ContextVar[Any] = contextvars.ContextVar("taped", default=None)
#: Dtypes of what a gradient flows through; resources are variables.
_WITH_GRADIENT = frozenset(
    {tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128}
    | {tf.variant, tf.resource}
)
_MOST_BATCHES = 1 << 24  # in an epoch; `list` makes room for as many


class TrackableObject(NamedTuple):
    """An object in a checkpoint.

    Attributes:
        children: What it has: places in the list of objects, by name.
        key: Of a variable, the name of its value in the checkpoint.
    """

    children: dict[str, int]
    key: str | None


def get_keras_mask(tensor: Any) -> Any:
    """The implicit mask of a tensor, or None.

    Keras fills in the mask of a layer's first argument only where that is its one
    tensor; a decoder has two.
    """
    return backend.get_keras_mask(tensor)


def set_keras_mask(tensor: Any, mask: Any) -> None:
    """Gives a tensor an implicit mask.

    Keras itself hands on the implicit mask of a layer's first argument, but no mask
    that was an argument of its own.
    """
    backend.set_keras_mask(tensor, mask)


def autocasting(layer: keras.layers.Layer) -> contextlib.AbstractContextManager[Any]:
    """A context in which a layer's weights are read in its compute dtype.

    For methods other than `call` that subclasses write. Within another layer's call
    they would read in the compute dtype of that one.
    """
    wanted = layer.compute_dtype if layer.autocast else None
    if backend.get_autocast_scope() is None and wanted in (None, layer.variable_dtype):
        return contextlib.nullcontext()
    return backend.AutocastScope(wanted)


def with_epochs_of_any_length(dataset: Any) -> Any:
    """Lets each iteration of a dataset be an epoch of its own length in `fit`.

    Keras takes the number of batches in the first epoch for that in every one, and cuts
    those that are longer, unless a dataset knows its size. So this one says that it has
    more than there will ever be; an epoch ends where its data does.

    Args:
        dataset: A dataset of unknown size, or a distributed one. It is changed.
    """
    if isinstance(dataset, tf.data.Dataset):
        dataset.cardinality = lambda: tf.constant(_MOST_BATCHES, tf.int64)
    else:
        dataset._cardinality = _MOST_BATCHES
    return dataset


def keep_dtypes(layer: keras.layers.Layer) -> None:
    """Makes a layer's call get its arguments in the dtypes that they have.

    Keras casts every floating argument to the layer's compute dtype.
    """
    layer._convert_input_args = False


def outputs_of_calls(layer: keras.layers.Layer) -> list[list[Any]]:
    """A layer's symbolic outputs, of each call; `layer.output` has the first's."""
    return [node.output_tensors for node in layer._inbound_nodes]


def takes_training(layer: Any) -> bool:
    """Whether a layer's call has an argument `training`; what is no layer has none."""
    return getattr(layer, "_call_has_training_arg", False)


def output_spec(function: Callable[..., Any], *args: Any) -> Any:
    """The symbolic outputs of a function for symbolic arguments."""
    return backend.compute_output_spec(function, *args)


def serialize_shared(layer: Any) -> Any:
    """`keras.saving.serialize_keras_object`, for a part that two layers may share.

    Keras marks what it meets a second time, and copies the first's configuration before
    it can be marked: the file of a model in which two layers have one cell would make
    two of it when it is loaded, and have weights for one. So each is marked at once,
    where Keras looks for marks: while a model is saved. Names and None stay
    as they are.
    """
    config = keras.saving.serialize_keras_object(layer)
    saving = global_state.get_global_attribute("shared_objects/id_to_config_map")
    if isinstance(config, dict) and saving is not None:
        config["shared_object_id"] = id(layer)
    return config


def as_tensor(x: Any) -> Any:
    """An array or a variable as a tensor.

    Keras takes TensorFlow's variables for tensors, but some of its operations do not.
    """
    x = ops.convert_to_tensor(x)
    return x.read_value() if hasattr(x, "read_value") else x


def autocast_as_now(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that reads variables in the dtype that they are read in now.

    Under mixed precision they are cast within a layer's call only; but a gradient's
    gradient computes a layer's step again when the call is over.
    """
    scope = backend.get_autocast_scope()
    dtype = None if scope is None else scope.dtype

    def as_then(*args: Any) -> Any:
        with backend.AutocastScope(dtype):
            return function(*args)

    return as_then


def flat_layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """All layers of a model, each before those that it is made of.

    `model.layers` has the outermost alone.
    """
    return model._flatten_layers()


def made_by(tensor: Any) -> Any:
    """The layer or operation whose output a functional model's tensor is."""
    return tensor._keras_history.operation


def variable_key(optimizer: keras.optimizers.Optimizer, variable: Any) -> Any:
    """An optimizer's key for a variable, also for a replica's copy of it."""
    return optimizer._var_key(variable)


def learning_rate_as_given(optimizer: keras.optimizers.Optimizer) -> Any:
    """An optimizer's learning rate, or the schedule of it.

    The public `learning_rate` is the schedule's value.
    """
    return optimizer._learning_rate


def frozen(function: Any) -> Any:
    """A concrete function with its weights as constants, loops left as they are.

    `tf.lite.TFLiteConverter` does so itself, but lowers loops first.
    """
    from tensorflow.python.framework import convert_to_constants

    return convert_to_constants.convert_variables_to_constants_v2(
        function, lower_control_flow=False
    )


def sentencepiece_op() -> Callable[..., Any]:
    """The op that makes a SentencePiece model, with a `shared_name` of one's own."""
    from tensorflow_text.python.ops import sentencepiece_tokenizer

    return sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op


def set_sentencepiece_model(tokenizer: Any, model: Any) -> None:
    """Gives tensorflow-text's tokenizer another resource."""
    tokenizer._model_resource = model


def scratch_graph() -> Any:
    """A graph to trace a function in, which may use tensors of the current one.

    It has `captures`, pairs of such a tensor and what stands for it.
    """
    return tf.__internal__.FuncGraph("scratch_graph")


def share_functions(graph: Any) -> None:
    """Gives the current graph what another one calls, such as the bodies of loops.

    `tf.graph_util.import_graph_def` copies their definitions alone, and TensorFlow
    forgets the functions when Python forgets the graph in which they were made.
    """
    here = tf.compat.v1.get_default_graph()
    for function in graph._functions.values():
        here._add_function_recursive(function)


def in_this_graph(x: Any) -> Any:
    """Captures a tensor of an outer graph in the current one."""
    graph = tf.compat.v1.get_default_graph()
    return graph.capture(x) if hasattr(graph, "capture") else x


@contextlib.contextmanager
def taping() -> Iterator[None]:
    """A context for a whole training step: its tape is in the graph that is traced now.

    So `in_a_branch` knows that a `tf.cond` around the step, as of Keras's
    `steps_per_execution`, is around the tape too.
    """
    token = _TAPED.set(tf.compat.v1.get_default_graph())
    try:
        yield
    finally:
        _TAPED.reset(token)


def in_a_branch() -> bool:
    """Whether what is being traced is in a branch of a `tf.cond`, at any depth.

    Not of one that is around the tape as well, see `taping`.
    """
    graph, taped = tf.compat.v1.get_default_graph(), _TAPED.get()
    while graph is not None and graph is not taped:
        if type(graph).__name__ == "CondBranchFuncGraph":
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def in_xla() -> bool:
    """Whether what is being traced is compiled by XLA."""
    from tensorflow.python.ops import control_flow_util

    graph = tf.compat.v1.get_default_graph()
    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def is_recorded() -> bool:
    """Whether a `tf.GradientTape` watches what is computed now."""
    from tensorflow.python.eager import record

    return record.could_possibly_record()


def may_have_gradient(x: Any) -> bool:
    """Whether a tensor depends on a variable, an argument, or what a tape watches."""
    from tensorflow.python.eager import record

    todo, seen = [x], set()
    while todo:
        y = todo.pop()
        if record.should_record_backprop([y]):
            return True
        if isinstance(y, tf.__internal__.EagerTensor) or id(y) in seen:
            continue
        seen.add(id(y))
        if y.op.type == "Placeholder":
            return True
        if y.op.type not in ("StopGradient", "PreventGradient"):
            todo += [z for z in y.op.inputs if z.dtype in _WITH_GRADIENT]
    return False


def unrecorded() -> Any:
    """A context in which no `tf.GradientTape` around it watches what is computed."""
    from tensorflow.python.eager import record

    return record.stop_recording()


def trackable_objects(reader: Any) -> list[TrackableObject] | None:
    """The objects of a `tf.train.Checkpoint`, the first of which has all others.

    Args:
        reader: What `tf.train.load_checkpoint` returned.

    Returns:
        None of a checkpoint of TensorFlow 1, which has variables only.
    """
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    if not reader.has_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"):
        return None
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    return [
        TrackableObject(
            {child.local_name: child.node_id for child in node.children},
            next((x.checkpoint_key for x in node.attributes), None),
        )
        for node in graph.nodes
    ]


def replicas_update_alone() -> bool:
    """Tells, in a replica, whether it updates its variables without the others.

    Keras's optimizers ask the same: under XLA no `merge_call` can join replicas.
    """
    return bool(tf.__internal__.distribute.strategy_supports_no_merge_call())
