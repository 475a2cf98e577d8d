"""TensorFlow Serving's gRPC method for server.py: Ray's proxy imports this.

The generated servicer would import TensorFlow into the proxy, which takes seconds and
500 MB; here it passes on bytes that it does not read.
"""

from __future__ import annotations

from typing import Any

import grpc

SERVICE = "tensorflow.serving.PredictionService"


def add_predict(servicer: Any, server: Any) -> None:
    """Adds the method `Predict`, as generated functions add theirs.

    Args:
        servicer: Unused: Ray asks a deployment's method of this name.
        server: The proxy's gRPC server.
    """
    method = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    handler = grpc.method_handlers_generic_handler(SERVICE, {"Predict": method})
    server.add_generic_rpc_handlers((handler,))
