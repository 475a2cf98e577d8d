"""Asks TensorFlow Serving by gRPC; needs tensorflow-serving-api.

python export/serving/grpc_client.py localhost:8500 mine < in.txt > out.txt
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from lines import one_line, read_input, say_truncated
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

BATCH = 32


class Client:
    """A channel to a server; threads may share it.

    Args:
        server: such as "localhost:8500".
        model: its name there.

    Example:
        >>> Client("localhost:8500", "mine").predict({"text": ["A dog runs."]})
        {'translation': array([b'Ein Hund rennt.'], dtype=object), ...}
    """

    def __init__(self, server: str, model: str):
        self.model = model
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(
            grpc.insecure_channel(server)
        )

    def predict(
        self,
        inputs: dict[str, Any],
        signature: str = "serving_default",
        timeout: float = 60.0,
    ) -> dict[str, np.ndarray]:
        """Ask one signature.

        Args:
            inputs: input → values.
            signature: "serving_default", "n_best", "align", "score" or "ids".
            timeout: seconds.

        Returns:
            Output → array; strings are bytes.

        Raises:
            grpc.RpcError: if the server refuses, or there is none.
        """
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.model
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        response = self._stub.Predict(request, timeout=timeout)
        return {name: tf.make_ndarray(x) for name, x in response.outputs.items()}


def main() -> None:
    """Translates standard input, in batches of lines."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    client = Client(*sys.argv[1:])
    lines, count, truncated = read_input(), 0, 0
    while some := [*islice(lines, BATCH)]:
        try:
            said = client.predict({"text": some})
        except grpc.RpcError as error:
            sys.exit(f"{sys.argv[1]}: {error.code().name}: {error.details()}")
        for translation in said["translation"]:
            sys.stdout.buffer.write(one_line(translation.decode()))
        sys.stdout.buffer.flush()
        count, truncated = count + len(some), truncated + sum(said["truncated"])
    say_truncated(truncated, count)


if __name__ == "__main__":
    main()
