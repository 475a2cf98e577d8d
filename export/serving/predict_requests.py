"""What server.py is asked and answers: TensorFlow Serving's REST and gRPC as arrays.

REST: https://www.tensorflow.org/tfx/serving/api_rest. gRPC: predict.proto of
tensorflow-serving-api.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import grpc
import numpy as np
from starlette.requests import ClientDisconnect, Request

MOST_BYTES = 1 << 20  # of a request
MOST_TOLD = 300  # characters of what is refused and why
MOST_AXES = 32  # of an array, as many as NumPy goes through
MOST_INPUTS = 1000  # of a request
MOST_LISTS = 1 << 16  # and objects, of a request by REST: to read them takes time
ARRIVAL = 10.0  # seconds in which a request must have come whole

# NumPy's kind of a signature's input → what its values must be; no float is cut to an
# integer, and no text is read as a number.
TAKES: dict[str, set[type]] = {"O": {bytes, str}, "b": {bool}, "i": {int}, "u": {int}}

ONLY = ""  # a signature's only input, which needs no name

Arrays = dict[str, np.ndarray]


class Takes(NamedTuple):
    """What no signature of a model has more of."""

    axes: int = MOST_AXES
    inputs: int = MOST_INPUTS

    def check_inputs(self, count: int) -> None:
        """Refuses a request of more inputs."""
        if count > self.inputs:
            raise wrong(f"{count} are too many inputs: at most {self.inputs}")


class Refused(ValueError):
    """What a client is told that cannot be answered."""

    def __init__(self, status: int, code: grpc.StatusCode, why: str):
        if len(why) > MOST_TOLD:
            why = f"{why[:MOST_TOLD]}..."
        super().__init__(status, code, why)  # all, so that it can be pickled
        self.status, self.code, self.why = status, code, why


def wrong(why: str) -> Refused:
    """A request that is the client's mistake."""
    return Refused(400, grpc.StatusCode.INVALID_ARGUMENT, why)


def not_found(why: str) -> Refused:
    """A request for what the server does not have."""
    return Refused(404, grpc.StatusCode.NOT_FOUND, why)


def unavailable(why: str) -> Refused:
    """A request that the client may send again later."""
    return Refused(503, grpc.StatusCode.UNAVAILABLE, why)


def failed(why: str) -> Refused:
    """A request that the server could not answer, which is not the client's mistake."""
    return Refused(500, grpc.StatusCode.INTERNAL, why)


def gone() -> Refused:
    """A request whose client has left, or was made to."""
    return Refused(499, grpc.StatusCode.CANCELLED, "The client has gone")


def _too_long() -> Refused:
    why = f"The request has more than {MOST_BYTES} bytes"
    return Refused(413, grpc.StatusCode.INVALID_ARGUMENT, why)


async def read_body(request: Request) -> bytes:
    """Receives what a client sends by REST.

    Raises:
        Refused: If it is too long, does not say how long it is, or takes too long.
    """
    length = request.headers.get("content-length", "")
    if "transfer-encoding" in request.headers or not length.isdecimal():
        # Pieces of a byte would keep the server busy.
        why = "A request must have a Content-Length and no Transfer-Encoding"
        raise Refused(411, grpc.StatusCode.INVALID_ARGUMENT, why)
    if int(length) > MOST_BYTES:
        raise _too_long()
    try:
        return await asyncio.wait_for(_received(request), ARRIVAL)
    except asyncio.TimeoutError as error:
        why = f"The request did not come whole in {ARRIVAL} seconds"
        raise Refused(408, grpc.StatusCode.DEADLINE_EXCEEDED, why) from error
    except ClientDisconnect as error:
        raise gone() from error


async def _received(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise _too_long()
    return bytes(body)


def read_json(body: bytes) -> dict[str, Any]:
    """Reads a request by REST.

    Raises:
        Refused: If it is none.
    """
    if body.count(b"[") + body.count(b"{") > MOST_LISTS:  # or those are in its texts
        outside = body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]
        if sum(x.count(b"[") + x.count(b"{") for x in outside) > MOST_LISTS:
            raise wrong(f"The request has more than {MOST_LISTS} lists and objects")
    try:
        question = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise wrong(f"The request is not JSON: {error}") from error
    if not isinstance(question, dict) or ("inputs" in question) == (
        "instances" in question
    ):
        raise wrong('The request must be an object with "inputs" or "instances"')
    if not isinstance(question.get("signature_name", ""), str):
        raise wrong('"signature_name" must be a string')
    return question


def columns(question: dict[str, Any], takes: Takes) -> dict[str, Any]:
    """Returns input → values, of columns ("inputs") or of rows ("instances").

    Args:
        question: What `read_json` returned.
        takes: What the model takes at most.

    Raises:
        Refused: If they are neither, or more than that.
    """
    if isinstance(question.get("inputs"), dict):
        takes.check_inputs(len(question["inputs"]))
        return {key: _bytes(x, takes.axes) for key, x in question["inputs"].items()}
    rows = question.get("instances")
    if rows and isinstance(rows, list) and all(_is_row(row) for row in rows):
        keys = {key: None for row in rows for key in row}
        takes.check_inputs(len(keys))
        if any(row.keys() != keys.keys() for row in rows):
            raise wrong("The instances have different inputs")
        axes = takes.axes - 1
        return {key: [_bytes(row[key], axes) for row in rows] for key in keys}
    values = rows if "instances" in question else question["inputs"]
    return {ONLY: _bytes(values, takes.axes)}


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and row.keys() != {"b64"}


def _bytes(value: Any, axes: int) -> Any:
    """JSON's strings as bytes; what is of any bytes comes in base64."""
    if isinstance(value, list):
        if axes == 0:
            raise wrong("The values are nested too deeply")
        return [_bytes(x, axes - 1) for x in value]
    if isinstance(value, dict):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (KeyError, TypeError, ValueError) as error:
            raise wrong(f"Neither a value nor base64: {[*value]}") from error
    # A lone surrogate is read as other invalid UTF-8 is.
    return value.encode(errors="surrogatepass") if isinstance(value, str) else value


def as_json(question: dict[str, Any], said: Arrays) -> bytes:
    """Writes an answer by REST, in rows if the question was in rows."""
    write = json.JSONEncoder(default=bytes.decode, ensure_ascii=False).encode
    # Row by row: meanwhile no other thread has a turn.
    columns = {key: [write(x) for x in y.tolist()] for key, y in said.items()}
    if "instances" in question:
        rows = zip(*columns.values(), strict=True)
        answer = _list(_object(dict(zip(columns, row, strict=True))) for row in rows)
        return _object({"predictions": answer}).encode()
    answer = _object({key: _list(rows) for key, rows in columns.items()})
    return _object({"outputs": answer}).encode()


def _list(written: Iterable[str]) -> str:
    return f"[{', '.join(written)}]"


def _object(written: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{json.dumps(k)}: {x}" for k, x in written.items()) + "}"


def read_message(request: bytes) -> Any:
    """Reads a request by gRPC, a `PredictRequest`.

    Raises:
        Refused: If it is none, or too long.
    """
    from google.protobuf.message import DecodeError
    from tensorflow_serving.apis import predict_pb2

    if len(request) > MOST_BYTES:
        raise _too_long()
    try:
        return predict_pb2.PredictRequest.FromString(request)
    except DecodeError as error:
        raise wrong(f"The request is no PredictRequest: {error}") from error


def ndarray(name: str, proto: Any) -> np.ndarray:
    """Reads an input of a request by gRPC, a `TensorProto`.

    Raises:
        Refused: If it is no array, or is larger than what was sent.
    """
    import tensorflow as tf

    # A protocol buffer's last value may stand for all that follow. So a small request
    # could be a tensor of any size, and is not taken.
    shape = [dim.size for dim in proto.tensor_shape.dim]
    values = [x for field, x in proto.ListFields() if field.name.endswith("_val")]
    if not proto.tensor_content and math.prod(shape) != sum(map(len, values)):
        raise wrong(f"The values of {name!r} do not fill its shape {shape}")
    try:
        return tf.make_ndarray(proto)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise wrong(f"{name!r} is no array: {error}") from error


def as_message(question: Any, said: Arrays) -> Any:
    """Writes an answer by gRPC, a `PredictResponse`: the outputs that it asks for.

    Args:
        question: The `PredictRequest`.
        said: Output → array.

    Raises:
        Refused: If it asks for others.
    """
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    wanted = list(question.output_filter) or list(said)
    if not said.keys() >= {*wanted}:
        raise wrong(f"The outputs are {[*said]}, and not {wanted}")
    response = predict_pb2.PredictResponse(model_spec=question.model_spec)
    for key in wanted:
        response.outputs[key].CopyFrom(tf.make_tensor_proto(said[key]))
    return response


def count_rows(given: Mapping[str, Any]) -> int:
    """Returns the number of sentences of a request: a single value counts as one."""
    arrays = [x for x in given.values() if isinstance(x, list) or np.ndim(x)]
    return max([1, *map(len, arrays)])


def array_like(name: str, values: Any, spec: Any) -> np.ndarray:
    """Makes an array of an input's values.

    Args:
        name: The input.
        values: Lists, or an array.
        spec: What the signature takes, a `tf.TensorSpec`.

    Raises:
        Refused: If it takes no such values.
    """
    wanted = np.dtype(spec.dtype.as_numpy_dtype)
    takes = TAKES.get(wanted.kind, {int, float})
    try:
        array = np.asarray(values, object)
        if array.shape == (0,) and spec.shape.rank:  # JSON's [] has no other axes
            array = array.reshape([0, *(axis or 1 for axis in spec.shape[1:])])
        if not spec.shape.is_compatible_with(array.shape):
            raise ValueError(f"has the shape {array.shape}, and not {spec.shape}")
        for kind in {type(x) for x in array.flat} - takes:
            raise TypeError(f"takes {spec.dtype.name}, and not {kind.__name__}")
        return array.astype(wanted)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise wrong(f"{name!r}: {error}") from error
