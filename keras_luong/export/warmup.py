"""Warm-up: requests to a version before users send theirs.

The first request to each signature takes seconds, as the graph is optimised and memory
allocated. With warm-up no user has to wait for that. TensorFlow Serving sends itself
the requests of a file in the version's directory; a server in Python calls `warm_up`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

WARMUP = Path("assets.extra", "tf_serving_warmup_requests")
# Of sentences at once: one, which a search may treat in its own way, and several.
SIZES = (1, 2)
# What an export answers that takes fewer: its `max_batch_size` may be one.
TOO_MANY = "There are too many sentences at once"
LENGTH = 8  # of an axis of any length


def write_warmup(
    version: Path, model_name: str, requests: Mapping[str, Mapping[str, Any]]
) -> None:
    """Writes the file of warm-up requests that TensorFlow Serving looks for.

    Args:
        version: The version's directory.
        model_name: Name of the model on the server.
        requests: Signature → input → value.

    Raises:
        ModuleNotFoundError: If tensorflow-serving-api is not installed.
    """
    apis = serving_apis()
    path = version / WARMUP
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for signature, inputs in requests.items():
            request = apis.predict_pb2.PredictRequest()
            request.model_spec.name = model_name
            request.model_spec.signature_name = signature
            for name, value in inputs.items():
                request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
            log = apis.prediction_log_pb2.PredictionLog()
            log.predict_log.request.CopyFrom(request)
            file.write(log.SerializeToString())


def replay_warmup(version: Path) -> dict[str, dict[str, tf.Tensor]]:
    """Sends its warm-up requests to a version, as the server will.

    Args:
        version: The version's directory.

    Returns:
        Signature → output → tensor.

    Raises:
        ModuleNotFoundError: If tensorflow-serving-api is not installed.
        tf.errors.OpError: If a request fails.
    """
    signatures = tf.saved_model.load(str(version)).signatures
    answers = {}
    for record in tf.data.TFRecordDataset(str(version / WARMUP)):
        log = serving_apis().prediction_log_pb2.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        inputs = {
            name: tf.constant(tf.make_ndarray(value))
            for name, value in request.inputs.items()
        }
        name = request.model_spec.signature_name
        answers[name] = signatures[name](**inputs)
    return answers


def warm_up(loaded: Any) -> None:
    """Has the graphs of a loaded SavedModel compiled before the first user's request.

    Each signature is asked for one sentence and, unless the export takes one at a time,
    for two: the letter a, or ones where it takes numbers. An empty batch does nearly as
    much: it compiles the graph, but the next request still waits for what the first
    sentence of a process loads.

    Args:
        loaded: What `tf.saved_model.load` returned for a version that
            `export_saved_model` wrote.

    Raises:
        TypeError: If `loaded` has no signatures.
        tf.errors.OpError: If a signature fails.

    Example:
        >>> path = kl.export_saved_model(kl.load("runs/mine"), "models/mine", version=2)
        >>> loaded = tf.saved_model.load(path)
        >>> kl.export.warm_up(loaded)
        >>> answer = loaded.signatures["serving_default"](text=tf.constant(["the dog"]))
    """
    signatures = getattr(loaded, "signatures", None)
    if not isinstance(signatures, Mapping):
        raise TypeError(
            "`loaded` must be what tf.saved_model.load returns, with signatures. "
            f"Received: {loaded!r:.60}"
        )
    for function in signatures.values():
        _, specs = function.structured_input_signature
        for size in SIZES:
            asked = {}
            for name, spec in specs.items():
                axes = [LENGTH if axis is None else axis for axis in spec.shape[1:]]
                value = "a" if spec.dtype == tf.string else tf.ones([], spec.dtype)
                asked[name] = tf.fill([size, *axes], value)
            try:
                for tensor in function(**asked).values():
                    tensor.numpy()  # waits for it
            except tf.errors.InvalidArgumentError as error:
                if TOO_MANY not in error.message:
                    raise


def serving_apis() -> Any:
    """Returns the package of TensorFlow Serving's messages.

    Raises:
        ModuleNotFoundError: If it is not installed; the message says what to install.
    """
    try:
        from tensorflow_serving import apis
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Warm-up requests need tensorflow-serving-api: pip install "
            "keras_luong[serving], or export with warmup=()"
        ) from error
    return apis
