"""Warm-up requests, which TensorFlow Serving sends to a version before it serves it.

The first request to each signature takes seconds, as the graph is optimised and memory
allocated. With warm-up no user has to wait for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

WARMUP = Path("assets.extra", "tf_serving_warmup_requests")


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
