"""The reference server on Ray Serve: right under load, and when parts of it die."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import tensorflow as tf
from export_scripts import EXPORT, export_script
from small_translator import word_translator

from keras_luong import export_saved_model
from keras_luong.decoding import BeamSearch

pytest.importorskip("ray.serve")
grpc = pytest.importorskip("grpc")
pytest.importorskip("tensorflow_serving.apis")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*max_source_length"),
]
rest_client = export_script("rest_client")
grpc_client = export_script("grpc_client")

MOST_WAITING = 40
REPLICA = "ray::ServeReplica:default:Model"
WORDS = "the red dog is the cat".split()
TEXTS = [" ".join(WORDS[i % 5 :] + WORDS[: i % 3]) for i in range(15)] + ["", "Ж"]


@pytest.fixture(scope="module")
def translator():
    return word_translator(BeamSearch(2, max_length=6))


@pytest.fixture(scope="module")
def version(translator, tmp_path_factory):
    return export_saved_model(translator, tmp_path_factory.mktemp("models") / "dogs")


@pytest.fixture(scope="module")
def expected(translator):
    return {t: x.text for t, x in zip(TEXTS, translator.translate(TEXTS), strict=True)}


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for x in sockets:
            x.bind(("localhost", 0))
        return [x.getsockname()[1] for x in sockets]


class Server:
    """The server's process and addresses."""

    def __init__(self, version, folder):
        rest, grpc_port, metrics = free_ports(3)
        self.rest = f"http://localhost:{rest}"
        self.grpc = f"localhost:{grpc_port}"
        self.metrics = f"http://localhost:{metrics}/metrics"
        ports = ["--rest", rest, "--grpc", grpc_port, "--metrics", metrics]
        command = [sys.executable, EXPORT / "serving" / "server.py", version, *ports]
        command += ["--most_waiting", MOST_WAITING]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                list(map(str, command)), stdout=subprocess.PIPE, stderr=log, text=True
            )
        for line in self.process.stdout:
            if line.startswith("ready"):
                return
        raise RuntimeError(self.log.read_text())

    def replicas(self):
        """Those that are alive."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[0].startswith(REPLICA):
                    found.append(process)
        return found

    def get(self, path):
        with urllib.request.urlopen(self.rest + path, timeout=60) as response:
            return response.read().decode()


@contextlib.contextmanager
def running(version, folder):
    server = Server(version, folder)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait(60)


@pytest.fixture(scope="module")
def server(version, tmp_path_factory):
    with running(version, tmp_path_factory.mktemp("server")) as found:
        yield found


def by_rest(server):
    return lambda texts: rest_client.predict(server.rest, "dogs", {"text": texts})


def by_grpc(server):
    client = grpc_client.Client(server.grpc, "dogs")

    def ask(texts):
        said = client.predict({"text": texts})
        return {"translation": [x.decode() for x in said["translation"].tolist()]}

    return ask


def asked_by(clients, ask, seconds=None, requests=10):
    """What each of some clients was answered, one question after another."""

    def client(number):
        pairs, end = [], seconds and time.monotonic() + seconds
        while time.monotonic() < end if end else len(pairs) < requests:
            place = number + len(pairs)
            texts = [TEXTS[(place + i) % len(TEXTS)] for i in range(1 + place % 3)]
            try:
                pairs.append((texts, ask(texts)["translation"]))
            except (RuntimeError, grpc.RpcError, OSError) as error:
                pairs.append((texts, error))
        return pairs

    with ThreadPoolExecutor(clients) as pool:
        return [pair for pairs in pool.map(client, range(clients)) for pair in pairs]


def right(pairs, expected):
    return all(said == [expected[text] for text in texts] for texts, said in pairs)


@pytest.mark.parametrize("clients", [1, 8, 32])
@pytest.mark.parametrize("way", [by_rest, by_grpc])
def test_every_client_is_answered_and_rightly(server, expected, way, clients):
    pairs = asked_by(clients, way(server))
    assert len(pairs) == 10 * clients and right(pairs, expected)


def test_every_signature_and_both_shapes_of_json(server, translator, expected):
    client = grpc_client.Client(server.grpc, "dogs")
    texts = ["the red dog", "cat"]
    for signature in ("n_best", "align", "score"):
        given = {"text": texts, **({"target": texts} if signature == "score" else {})}
        rest = rest_client.predict(server.rest, "dogs", given, signature)
        also = client.predict(given, signature)
        assert rest.keys() == also.keys()
    np.testing.assert_allclose(rest["log_prob"], also["log_prob"], rtol=1e-5)
    wanted = [t.score for t in translator.score(texts, texts)]
    np.testing.assert_allclose(rest["log_prob"], wanted, rtol=1e-4)
    ids = {"ids": [[4, 5, 6], [7, 0, 0]], "length": [3, 1]}
    wanted = [t.score for t in translator.translate(texts)]
    said = client.predict(ids, "ids")["score"]
    np.testing.assert_allclose(said, wanted, rtol=1e-4)
    for row in ({"text": TEXTS[0]}, TEXTS[0]):
        question = json.dumps({"instances": [row]}).encode()
        address = f"{server.rest}/v1/models/dogs:predict"
        with urllib.request.urlopen(address, question) as response:
            (said,) = json.load(response)["predictions"]
        assert said["translation"] == expected[TEXTS[0]]


def test_health_and_metrics(server):
    (state,) = json.loads(server.get("/v1/models/dogs"))["model_version_status"]
    assert (state["version"], state["state"]) == ("1", "AVAILABLE")
    assert server.get("/-/healthz") == "success"
    rest_client.predict(server.rest, "dogs", {"text": ["cat"]})
    assert wait_for(lambda: metric(server, "ray_translation_requests_answered") > 0)


def test_requests_are_computed_together_and_none_suffers_for_another(server, expected):
    ask, numbers = by_rest(server), itertools.count()

    def sometimes_wrong(texts):
        return ask([1]) if next(numbers) % 4 == 0 else ask(texts)

    pairs = asked_by(16, sometimes_wrong)
    refused = [said for _, said in pairs if isinstance(said, Exception)]
    assert len(refused) == len(pairs) // 4
    assert all("answers 400" in str(said) for said in refused)
    assert right([x for x in pairs if not isinstance(x[1], Exception)], expected)
    name = "ray_serve_actual_batch_size_"
    # More sentences than batches, of one to three each.
    assert wait_for(
        lambda: metric(server, name + "sum") > 3 * metric(server, name + "count") > 0
    )


def metric(server, name):
    with urllib.request.urlopen(server.metrics, timeout=60) as response:
        lines = response.read().decode().splitlines()
    return sum(float(x.split()[-1]) for x in lines if x.startswith(name))


def wait_for(what, seconds=120):
    end = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.5)
    return found


@pytest.mark.parametrize(
    ("model", "inputs", "status", "message"),
    [
        ("cats", {"text": ["a"]}, 404, "Not found"),
        ("dogs", {"words": ["a"]}, 400, r"takes \['text'\]"),
        ("dogs", {"text": [["a"]]}, 400, "shape"),
        ("dogs", {"text": [1]}, 400, "object type int"),
        ("dogs", {"text": ["a"] * 257}, 400, "too many sentences"),
        ("dogs", {"text": ["a" * (1 << 20)]}, 413, "more than 1048576 bytes"),
        ("dogs", {"text": ["a", {"b64": "!"}]}, 400, "Neither a value nor base64"),
    ],
)
def test_what_is_wrong_is_refused(server, model, inputs, status, message):
    with pytest.raises(RuntimeError, match=f"answers {status}: .*{message}"):
        rest_client.predict(server.rest, model, inputs)


def test_grpc_says_what_is_wrong(server):
    for model, inputs, code in [
        ("cats", {"text": ["a"]}, grpc.StatusCode.NOT_FOUND),
        ("dogs", {"text": ["a"] * 257}, grpc.StatusCode.INVALID_ARGUMENT),
    ]:
        with pytest.raises(grpc.RpcError) as found:
            grpc_client.Client(server.grpc, model).predict(inputs)
        assert found.value.code() == code


@pytest.mark.parametrize("way", [by_rest, by_grpc])
def test_overload_is_refused_and_says_so(server, expected, way):
    ask = way(server)

    def large(texts):
        found = ask((texts * 200)[:200])
        return {"translation": found["translation"][: len(texts)]}

    pairs = asked_by(3 * MOST_WAITING, large, requests=1)
    refused = [said for _, said in pairs if isinstance(said, Exception)]
    assert 0 < len(refused) <= 2 * MOST_WAITING
    assert right([x for x in pairs if not isinstance(x[1], Exception)], expected)
    for error in refused:
        assert "The server is busy" in str(error)
        if isinstance(error, grpc.RpcError):
            assert error.code() == grpc.StatusCode.UNAVAILABLE
        else:
            assert "answers 503" in str(error)
    assert right(asked_by(1, ask), expected)  # afterwards it is as it was


def test_a_killed_replica_loses_no_request_and_is_restarted(server, expected):
    ask = by_rest(server)
    before = server.replicas()
    assert len(before) == 2
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(asked_by, 8, ask, 20)
        time.sleep(5)
        before[0].send_signal(signal.SIGKILL)
        pairs = load.result()
    assert len(pairs) > 50 and right(pairs, expected)

    def restarted():
        now = {x.pid for x in server.replicas()}
        return len(now) == 2 and before[0].pid not in now

    assert wait_for(restarted)
    assert right(asked_by(8, ask), expected)


def test_even_if_all_replicas_are_killed(server, expected):
    for replica in server.replicas():
        replica.send_signal(signal.SIGKILL)
    assert right(asked_by(8, by_grpc(server), requests=2), expected)


def test_sigterm_answers_what_was_accepted(version, expected, tmp_path):
    cut_off = []

    def ask(texts):
        start = time.monotonic()
        try:
            return by_rest(server)(texts)
        except OSError:  # no answer, and no refusal
            cut_off.append(start)
            raise

    with running(version, tmp_path) as server:
        children = psutil.Process(server.process.pid).children(recursive=True)
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(asked_by, 8, ask, 12)
            time.sleep(4)
            server.process.terminate()
            ended = time.monotonic()
            pairs = load.result()
        assert server.process.wait(60) == 0
        psutil.wait_procs(children, timeout=30)
        assert not [child for child in children if child.is_running()]
    answered = [pair for pair in pairs if not isinstance(pair[1], Exception)]
    assert len(answered) > 20 and right(answered, expected)
    # None that was sent before; later ones were refused as long as there was a server.
    assert all(start > ended for start in cut_off)
    refused = [said for _, said in pairs if isinstance(said, RuntimeError)]
    assert refused and all("answers 503" in str(said) for said in refused)
    assert all("shutting down" in str(said) for said in refused)


@pytest.fixture
def model(translator, tmp_path):
    """A model outside of Ray, of which no more than four are asked at once."""
    server = export_script("server")
    path = export_saved_model(translator, tmp_path / "dogs", max_batch_size=4)
    return server.Model.func_or_class(str(path))


def test_no_more_are_computed_at_once_than_the_export_takes(model):
    assert model.most == 4 == model.together._get_max_batch_size()


@pytest.mark.parametrize(
    "error", [tf.errors.ResourceExhaustedError, tf.errors.InternalError]
)
def test_the_servers_own_failures_are_not_the_clients(model, monkeypatch, error):
    def failing(signature, inputs):
        raise error(None, None, "no memory")

    monkeypatch.setattr(model, "_call", failing)
    (no,) = model.answer([model.read("serving_default", {"text": ["the dog"]})])
    assert (no.status, no.code, no.why) == (500, grpc.StatusCode.INTERNAL, "no memory")


def test_a_tensor_that_says_to_be_large_is_refused():
    server = export_script("server")
    proto = tf.make_tensor_proto("a")
    proto.tensor_shape.dim.add().size = 1 << 30
    with pytest.raises(server.Refused, match="text has more than 1048576 values"):
        server._ndarray("text", proto)
