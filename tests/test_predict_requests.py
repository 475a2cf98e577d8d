"""What the reference server is asked: what is wrong is the client's mistake."""

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


def proto_of(values, shape=None, **fields):
    """A `TensorProto`, whatever it says of itself."""
    proto = tf.make_tensor_proto(values)
    if fields:
        proto = type(proto)(**fields)
    for size in shape or ():
        proto.tensor_shape.dim.add().size = size
    return proto


def of_type(dtype, **values):
    return proto_of([], [1], dtype=dtype.as_datatype_enum, **values)


NOT_FILLED = "'x' do not fill its shape"


NO_ARRAYS = [
    # A small message is no large tensor.
    *((proto_of("a" * 1000, x), NOT_FILLED) for x in ([1 << 30], [4000])),
    *((proto_of("a" * 1000, x), NOT_FILLED) for x in ([-1], [-2, -2])),
    (of_type(tf.resource, string_val=[b"a"]), "no array"),
    # What their types cannot hold.
    (of_type(tf.uint8, int_val=[300]), "no array"),
    (of_type(tf.half, half_val=[70000]), "no array"),
    (of_type(tf.bfloat16, half_val=[-1]), "no array"),
]


@pytest.mark.parametrize("proto, why", NO_ARRAYS)
def test_messages_that_are_no_arrays(proto, why):
    with pytest.raises(Refused, match=f"^.400.*{why}"):
        requests.ndarray("x", proto)


def test_what_fills_its_shape_is_read():
    floats = np.ones([2, 3], "float32")
    for values in (b"a", [b"a", b"b"], [[4, 5], [6, 7]], floats, [True], []):
        array = requests.ndarray("x", tf.make_tensor_proto(values))
        np.testing.assert_array_equal(array, values)


EMPTIES = b",".join([b"[]"] * 300_000)
SOME = EMPTIES[:99_998]
NAMES = b",".join(b'"%d": 1' % i for i in range(90_000))
TOO_DEEP, TOO_MANY = "nested too deeply", "90000 are too many inputs: at most 2"


ODD_JSON = [
    (b'{"inputs": ' + b"[" * 60_000, "not JSON"),
    (b'{"inputs": ' + b"[" * 40 + b"]" * 40 + b"}", TOO_DEEP),
    (b'{"inputs": {"b64": ' + b"[" * 500 + b"]" * 500 + b"}}", "too deeply"),
    (b'{"inputs": [{"b64": ' + b"[" * 500 + b"]" * 500 + b"}]}", "nor base64"),
    (b'{"inputs": [], "signature_name": ["a"]}', '"signature_name" must be a'),
    (b'{"inputs": [], "instances": []}', '"inputs" or "instances"'),
    (b'{"instances": [{"a": 1}, {"b": 1}]}', "instances have different inputs"),
    # S3: more than any signature takes is not passed on.
    (b'{"inputs": [[%s]]}' % SOME, TOO_DEEP),
    (b'{"inputs": {"text": [[%s]]}}' % SOME, TOO_DEEP),
    (b'{"instances": [{"text": [%s]}]}' % SOME, TOO_DEEP),
    (b'{"inputs": {%s}}' % NAMES, TOO_MANY),
    (b'{"instances": [{%s}]}' % NAMES, TOO_MANY),
]


@pytest.mark.parametrize("body, message", ODD_JSON, ids=range(12))
def test_odd_json_is_the_clients_mistake(body, message):
    with pytest.raises(Refused, match=message) as found:
        requests.columns(requests.read_json(body), requests.Takes(2, 2))
    assert found.value.status == 400


QUESTIONS = [
    ({"inputs": ["a", {"b64": "/w=="}]}, {"": [b"a", b"\xff"]}),
    ({"inputs": {"a": [1], "b": "\ud800"}}, {"a": [1], "b": b"\xed\xa0\x80"}),
    ({"instances": [{"a": 1}, {"a": 2}]}, {"a": [1, 2]}),
    ({"instances": [{"b64": "YQ=="}, "b"]}, {"": [b"a", b"b"]}),
    ({"instances": []}, {"": []}),
    ({"inputs": []}, {"": []}),
]


@pytest.mark.parametrize("question, expected", QUESTIONS)
def test_columns_and_rows(question, expected):
    body = json.dumps(question).encode()
    assert requests.columns(requests.read_json(body), requests.Takes()) == expected


def test_answers_are_in_columns_or_rows_as_was_asked():
    said = {"a": np.array([b"x", b"\xc3\xa4"], object), "b": np.array([1.5, 2])}
    none = {key: x[:0] for key, x in said.items()}
    columns = {"a": ["x", "ä"], "b": [1.5, 2.0]}
    rows = [{"a": "x", "b": 1.5}, {"a": "ä", "b": 2.0}]
    for question, answer, expected in (
        ({"inputs": 1}, said, {"outputs": columns}),
        ({"instances": 1}, said, {"predictions": rows}),
        ({"instances": []}, none, {"predictions": []}),  # S9
    ):
        assert json.loads(requests.as_json(question, answer)) == expected


BIG = 1 << 40
WRONG = {
    "int32": [[4.9], [5.0], [b"5"], [BIG], np.array([BIG]), [None], [[4], [5, 6]]],
    "int64": [[4, True]],
    "float32": [[True], [b"1"]],
    "bool": [[1]],
    "string": [[1]],
}
RIGHT = {"int64": [4], "int32": np.array([4]), "float32": [1, 0.5], "bool": [True]}


def test_values_of_another_kind_are_not_read_as_if_they_fitted():
    for dtype, lists in WRONG.items():
        for values in lists:
            with pytest.raises(Refused, match="^.400.*'x': "):
                requests.array_like("x", values, tf.TensorSpec(None, dtype))
    for dtype, values in RIGHT.items():
        array = requests.array_like("x", values, tf.TensorSpec([None], dtype))
        np.testing.assert_array_equal(array, values)
        assert array.dtype == dtype


def test_what_is_said_of_a_long_mistake_is_short():
    no = requests.wrong("a" * (1 << 20))
    assert no.why == "a" * requests.MOST_TOLD + "..."
    assert pickle.loads(pickle.dumps(no)).why == no.why


@pytest.mark.parametrize("rank", [None, 1])
@pytest.mark.parametrize("axes", [32, 33, 40])
def test_arrays_of_too_many_axes(rank, axes):
    spec = tf.TensorSpec(None if rank is None else [None] * rank, "int32")
    message = proto_of(np.ones([1] * 32, "int32"), [1] * (axes - 32))
    nested = {"inputs": {"x": json.loads("[" * axes + "1" + "]" * axes)}}
    for read in (
        lambda: requests.ndarray("x", message),
        lambda: requests.columns(nested, requests.Takes())["x"],
    ):
        if axes == 32 and rank is None:
            assert requests.array_like("x", read(), spec).shape == (1,) * 32
        else:
            with pytest.raises(Refused, match="^.400"):
                requests.array_like("x", read(), spec)


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


CHUNKED = {"transfer-encoding": "chunked"}


BODIES = [
    *((["2"], {}, None), (["1048576"], {}, None), (["1048577"], {}, 413)),
    *(([""], {}, 411), (["2"], {"then": 60}, 408)),
    # S2: it is counted whatever length it says.
    (["5"], CHUNKED, 411),
    ([""], CHUNKED, 411),
    (["5", [b"a" * (1 << 19)] * 3], {}, 413),
]


@pytest.mark.parametrize("arguments, more, status", BODIES)
def test_a_body_comes_whole_and_soon(arguments, more, status, monkeypatch):
    monkeypatch.setattr(requests, "ARRIVAL", 0.05 if "then" in more else 10.0)
    request = arriving(*arguments, **more)
    if status is None:
        assert asyncio.run(requests.read_body(request)) == b"ab"
    else:
        with pytest.raises(Refused) as found:
            asyncio.run(requests.read_body(request))
        assert found.value.status == status


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
