"""What the reference server is asked: what is wrong is the client's mistake."""

from __future__ import annotations

import asyncio
import json
import pickle

import numpy as np
import pytest
import tensorflow as tf
from export_scripts import export_script

pytest.importorskip("grpc")
Request = pytest.importorskip("starlette.requests").Request
pytest.importorskip("tensorflow_serving.apis")

from tensorflow_serving.apis import predict_pb2  # noqa: E402

requests = export_script("predict_requests")
Refused = requests.Refused


def test_a_small_message_is_no_large_tensor():
    for shape in ([1 << 30], [4000], [-1], [-2, -2]):
        proto = tf.make_tensor_proto("a" * 1000)
        for size in shape:
            proto.tensor_shape.dim.add().size = size
        with pytest.raises(Refused, match="'text' do not fill its shape"):
            requests.ndarray("text", proto)


@pytest.mark.parametrize("kind", [tf.resource, tf.variant])
def test_what_is_no_array_is_refused(kind):
    proto = tf.make_tensor_proto(b"a")
    proto.dtype = kind.as_datatype_enum
    with pytest.raises(Refused, match="'x' is no array"):
        requests.ndarray("x", proto)


@pytest.mark.parametrize(
    "values",
    [b"a", [b"a", b"b"], [[4, 5], [6, 7]], np.ones([2, 3], "float32"), [True], []],
)
def test_what_fills_its_shape_is_read(values):
    array = requests.ndarray("x", tf.make_tensor_proto(values))
    np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"inputs": ' + b"[" * 60_000, "not JSON"),
        (b'{"inputs": ' + b"[" * 40 + b"]" * 40 + b"}", "nested too deeply"),
        (b'{"inputs": {"b64": ' + b"[" * 500 + b"]" * 500 + b"}}", "too deeply"),
        (b'{"inputs": [{"b64": ' + b"[" * 500 + b"]" * 500 + b"}]}", "nor base64"),
        (b'{"inputs": [], "signature_name": ["a"]}', '"signature_name" must be a'),
    ],
)
def test_odd_json_is_the_clients_mistake(body, message):
    with pytest.raises(Refused, match=message) as found:
        requests.columns(requests.read_json(body), requests.Takes())
    assert found.value.status == 400


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([4.9], "int32"),
        ([5.0], "int32"),
        ([b"5"], "int32"),
        ([True], "int32"),
        ([4, True], "int64"),
        ([1 << 40], "int32"),
        (np.array([1 << 40]), "int32"),
        ([None], "int32"),
        ([[4], [5, 6]], "int32"),
        ([True], "float32"),
        ([b"1"], "float32"),
        ([1], "bool"),
        ([1], "string"),
    ],
)
def test_values_of_another_kind_are_not_read_as_if_they_fitted(values, dtype):
    with pytest.raises(Refused, match="^.400.*'x': ") as found:
        requests.array_like("x", values, tf.TensorSpec(None, dtype))
    assert found.value.status == 400


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([4], "int64"), (np.array([4]), "int32"), ([1, 0.5], "float32"), ([True], "bool")],
)
def test_values_that_fit_are_taken(values, dtype):
    array = requests.array_like("x", values, tf.TensorSpec([None], dtype))
    np.testing.assert_array_equal(array, values)
    assert array.dtype == dtype


def test_what_is_said_of_a_long_mistake_is_short():
    no = requests.wrong("a" * (1 << 20))
    assert no.why == "a" * requests.MOST_TOLD + "..."
    assert pickle.loads(pickle.dumps(no)).why == no.why


@pytest.mark.parametrize(
    "proto",
    [
        {"dtype": tf.uint8, "int_val": [300]},
        {"dtype": tf.int8, "int_val": [1000]},
        {"dtype": tf.half, "half_val": [70000]},
        {"dtype": tf.bfloat16, "half_val": [-1]},
    ],
)
def test_values_that_their_type_cannot_hold(proto):
    proto = {**proto, "dtype": proto["dtype"].as_datatype_enum}
    proto = tf.make_tensor_proto([1]).__class__(**proto)
    proto.tensor_shape.dim.add().size = 1
    with pytest.raises(Refused, match="'x' is no array"):
        requests.ndarray("x", proto)


@pytest.mark.parametrize("rank", [None, 1])
@pytest.mark.parametrize("axes", [33, 40])
def test_arrays_of_too_many_axes(rank, axes):
    spec = tf.TensorSpec(None if rank is None else [None] * rank, "int32")
    with pytest.raises(Refused, match="^.400"):
        proto = tf.make_tensor_proto(np.ones([1] * 32, "int32"))
        for _ in range(axes - 32):
            proto.tensor_shape.dim.add().size = 1
        requests.array_like("x", requests.ndarray("x", proto), spec)
    with pytest.raises(Refused, match="nested too deeply"):
        nested = json.loads("[" * axes + "1" + "]" * axes)
        requests.columns({"inputs": {"x": nested}}, requests.Takes())
    nested = json.loads("[" * 32 + "1" + "]" * 32)
    found = requests.columns({"inputs": {"x": nested}}, requests.Takes())["x"]
    if rank is None:
        assert requests.array_like("x", found, spec).shape == (1,) * 32


def test_the_outputs_that_are_asked_for():
    said = {"translation": np.array([b"a"]), "score": np.array([0.5], "float32")}
    question = predict_pb2.PredictRequest(output_filter=["score"])
    assert [*requests.as_message(question, said).outputs] == ["score"]
    assert len(requests.as_message(predict_pb2.PredictRequest(), said).outputs) == 2
    question = predict_pb2.PredictRequest(output_filter=["words"])
    with pytest.raises(Refused, match="outputs are .*'score'.*and not .*words"):
        requests.as_message(question, said)


def arriving(length, parts=(b"a", b"b"), then=0.0, **more):
    """A request that says how long it is, and comes after some seconds."""
    headers = {"content-length": length, **more}
    messages = [{"type": "http.request", "body": x, "more_body": True} for x in parts]
    coming = iter([*messages, {"type": "http.request"}])

    async def receive():
        await asyncio.sleep(then)
        return next(coming)

    named = [(k.encode(), v.encode()) for k, v in headers.items() if v]
    return Request({"type": "http", "headers": named}, receive)


def test_a_body_comes_whole_and_soon(monkeypatch):
    assert asyncio.run(requests.read_body(arriving("2"))) == b"ab"
    for length, status in (("1048577", 413), ("", 411), ("-1", 411)):
        with pytest.raises(Refused) as found:
            asyncio.run(requests.read_body(arriving(length)))
        assert found.value.status == status
    monkeypatch.setattr(requests, "ARRIVAL", 0.05)
    with pytest.raises(Refused, match="did not come whole") as found:
        asyncio.run(requests.read_body(arriving("2", then=60)))
    assert found.value.status == 408


def test_s2_a_body_is_counted_whatever_length_it_says():
    chunked = {"transfer-encoding": "chunked"}
    for request, status in (
        (arriving("5", **chunked), 411),
        (arriving("", **chunked), 411),
        (arriving("5", [b"a" * (1 << 19)] * 3), 413),
    ):
        with pytest.raises(Refused) as found:
            asyncio.run(requests.read_body(request))
        assert found.value.status == status


EMPTIES = b",".join([b"[]"] * 300_000)
SOME = EMPTIES[:99_998]
NAMES = b",".join(b'"%d": 1' % i for i in range(90_000))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"inputs": [[%s]]}' % SOME, "nested too deeply"),
        (b'{"inputs": {"text": [[%s]]}}' % SOME, "nested too deeply"),
        (b'{"instances": [{"text": [%s]}]}' % SOME, "nested too deeply"),
        (b'{"inputs": {%s}}' % NAMES, "90000 are too many inputs: at most 2"),
        (b'{"instances": [{%s}]}' % NAMES, "90000 are too many inputs: at most 2"),
    ],
    ids=["only", "named", "row", "names", "names of rows"],
)
def test_s3_more_than_any_signature_takes_is_not_passed_on(body, message):
    with pytest.raises(Refused, match=message):
        requests.columns(requests.read_json(body), requests.Takes(2, 2))


@pytest.mark.parametrize("of", [b"[%s]" % EMPTIES, b",".join([b"{}"] * 70_000)])
def test_s3_lists_are_counted_before_they_are_made(of, monkeypatch):
    monkeypatch.setattr(json, "loads", lambda body: pytest.fail("read"))
    with pytest.raises(Refused, match="has more than 65536 lists and objects"):
        requests.read_json(b'{"instances": [%s]}' % of)


@pytest.mark.parametrize("text", ["[{" * 60_000, '\\"[' * 60_000, '\\\\"[' * 66_000])
def test_those_of_a_text_are_not_counted(text):
    body = json.dumps({"inputs": [text, "\\"]}).encode()
    assert requests.read_json(body)["inputs"][0] == text


def test_s9_nothing_has_the_axes_that_are_wanted():
    for axes in ([None], [None, None], [None, 3]):
        spec = tf.TensorSpec(axes, "int32")
        found = requests.array_like("ids", [], spec)
        assert len(found) == 0 and spec.shape.is_compatible_with(found.shape)
    with pytest.raises(Refused, match=r"has the shape \(1,\)"):
        requests.array_like("ids", [1], spec)


def test_s4_a_name_does_not_write_to_a_terminal():
    name, spec = "\x1b[31m\0", tf.TensorSpec([None], "int32")
    proto = tf.make_tensor_proto([b"a"])
    proto.tensor_shape.dim[0].size = 2
    for refused in (
        lambda: requests.array_like(name, [b"a"], spec),
        lambda: requests.ndarray(name, proto),
        lambda: requests.columns({"inputs": {"b64x": {name: 1}}}, requests.Takes()),
    ):
        with pytest.raises(Refused) as found:
            refused()
        assert found.value.why.isprintable()
