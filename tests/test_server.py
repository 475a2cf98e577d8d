"""The reference server on Ray Serve: right under load, and when parts of it die."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import psutil
import pytest
import tensorflow as tf
from export_scripts import EXPORT, export_script
from small_translator import word_translator

from keras_luong import export_saved_model
from keras_luong.decoding import BeamSearch

RayActorError = pytest.importorskip("ray.exceptions").RayActorError
pytest.importorskip("ray.serve")
grpc = pytest.importorskip("grpc")
predict_pb2 = pytest.importorskip("tensorflow_serving.apis.predict_pb2")

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")
rest_client = export_script("rest_client")
grpc_client = export_script("grpc_client")
with mock.patch.dict(os.environ):  # what it sets there is for its own process
    server_script = export_script("server")
Refused = server_script.Refused

MOST_WAITING = 1024  # sentences
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

    def __init__(self, version, folder, *options):
        rest, grpc_port, metrics = free_ports(3)
        self.rest = f"http://localhost:{rest}"
        self.grpc = f"localhost:{grpc_port}"
        self.metrics = f"http://localhost:{metrics}/metrics"
        ports = ["--rest", rest, "--grpc", grpc_port, "--metrics", metrics]
        command = [sys.executable, EXPORT / "serving" / "server.py", version, *ports]
        command += ["--most_waiting", MOST_WAITING, *options]
        self.log = folder / "log"
        self.home = folder
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                list(map(str, command)),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "HOME": str(folder)},
            )
        self.ports = ports
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
def running(version, folder, *options):
    server = Server(version, folder, *options)
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


@pytest.mark.slow
@pytest.mark.parametrize("clients", [1, 8, 32])
@pytest.mark.parametrize("way", [by_rest, by_grpc])
def test_every_client_is_answered_and_rightly(server, expected, way, clients):
    pairs = asked_by(clients, way(server))
    assert len(pairs) == 10 * clients and right(pairs, expected)


@pytest.mark.slow
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


@pytest.mark.slow
def test_health_and_metrics(server):
    (state,) = json.loads(server.get("/v1/models/dogs"))["model_version_status"]
    assert (state["version"], state["state"]) == ("1", "AVAILABLE")
    with grpc.insecure_channel(server.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"", timeout=60) == b"\x08\x01"  # {status: SERVING}
        service = b"tensorflow.serving.PredictionService"
        asked = b"\x0a%c%s" % (len(service), service)  # {service: "..."}
        assert check(asked, timeout=60) == b"\x08\x01"
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        states = watch(asked)
        assert next(states) == b"\x08\x01"
        states.cancel()
        with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
            check(b"\x0a\x01a", timeout=60)
    rest_client.predict(server.rest, "dogs", {"text": ["cat"]})
    assert wait_for(lambda: metric(server, "ray_translation_requests_answered") > 0)


@pytest.mark.slow
def test_none_suffers_for_another_with_which_it_is_computed(server, expected):
    ask, numbers = by_rest(server), itertools.count()

    def sometimes_wrong(texts):
        return ask([1]) if next(numbers) % 4 == 0 else ask(texts)

    pairs = asked_by(16, sometimes_wrong)
    refused = [said for _, said in pairs if isinstance(said, Exception)]
    assert len(refused) == len(pairs) // 4
    assert all("answers 400" in str(said) for said in refused)
    assert right([x for x in pairs if not isinstance(x[1], Exception)], expected)


@pytest.mark.slow
def test_what_has_waited_is_computed_together(server, expected):
    before = computed_together(server)
    with ThreadPoolExecutor(1) as pool:
        with suspended(server.replicas()):
            load = pool.submit(asked_by, 32, by_rest(server), requests=1)
            time.sleep(5)
        pairs = load.result()
    assert right(pairs, expected)
    now = computed_together(server)
    # A request has two sentences on average.
    assert now[0] - before[0] > 4 * (now[1] - before[1]) > 0


@contextlib.contextmanager
def suspended(processes):
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def computed_together(server):
    """How many sentences were, in how many batches, once nothing more comes."""
    names, seen = ("ray_translation_sentences", "ray_translation_batches"), []

    def settled():
        seen.append([metric(server, name) for name in names])
        return len(seen) > 30 and seen[-1] == seen[-30]  # Ray tells it every 10 s

    assert wait_for(settled)
    return seen[-1]


def metric(server, name):
    with urllib.request.urlopen(server.metrics, timeout=60) as response:
        lines = response.read().decode().splitlines()
    return sum(float(x.split()[-1]) for x in lines if x.startswith(name))


def wait_for(what, seconds=120):
    end = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.5)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "inputs", "status", "message"),
    [
        ("cats", {"text": ["a"]}, 404, "Not found"),
        ("dogs", {"words": ["a"]}, 400, r"takes \['text'\]"),
        ("dogs", {"text": [["a"]]}, 400, "shape"),
        ("dogs", {"text": [1]}, 400, "takes string, and not int"),
        ("dogs", {"text": ["a"] * 257}, 400, "too many sentences"),
        ("dogs", {"text": ["a" * (1 << 20)]}, 413, "more than 1048576 bytes"),
        ("dogs", {"text": ["a", {"b64": "!"}]}, 400, "Neither a value nor base64"),
    ],
)
def test_what_is_wrong_is_refused(server, model, inputs, status, message):
    with pytest.raises(RuntimeError, match=f"answers {status}: .*{message}"):
        rest_client.predict(server.rest, model, inputs)


@pytest.mark.slow
def test_grpc_says_what_is_wrong(server):
    for model, inputs, code in [
        ("cats", {"text": ["a"]}, grpc.StatusCode.NOT_FOUND),
        ("dogs", {"text": ["a"] * 257}, grpc.StatusCode.INVALID_ARGUMENT),
    ]:
        with pytest.raises(grpc.RpcError) as found:
            grpc_client.Client(server.grpc, model).predict(inputs)
        assert found.value.code() == code


@pytest.mark.slow
def test_outputs_and_labels_by_grpc(server):
    client = grpc_client.Client(server.grpc, "dogs")
    request = predict_pb2.PredictRequest(output_filter=["score"])
    request.model_spec.name = "dogs"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto([b"cat"]))
    assert [*client._stub.Predict(request, 60).outputs] == ["score"]
    request.model_spec.version_label = "stable"
    with pytest.raises(grpc.RpcError, match="No version has the label 'stable'"):
        client._stub.Predict(request, 60)


@pytest.mark.slow
@pytest.mark.parametrize("taken", [0, 1, 2])
def test_ports_that_are_in_use_are_refused(server, version, taken):
    """Ray would take a part of the other server's requests."""
    ports = [str(x) for x in server.ports]
    for place, port in enumerate(free_ports(3)):
        if place != taken:
            ports[2 * place + 1] = str(port)
    command = [sys.executable, EXPORT / "serving" / "server.py", version, *ports]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    option, port = ports[2 * taken : 2 * taken + 2]
    assert ended.returncode == 2
    assert f"{option} {port} cannot be had: Address already in use" in ended.stderr


@pytest.mark.slow
def test_a_large_message_is_refused(server):
    with pytest.raises(grpc.RpcError) as found:
        grpc_client.Client(server.grpc, "dogs").predict({"text": [b"a" * (2 << 20)]})
    assert found.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.slow
def test_of_rays_own_ports_the_network_sees_only_what_wants_its_token(server):
    found = set()
    for process in psutil.Process(server.process.pid).children(recursive=True):
        for x in process.net_connections("inet"):
            if x.status == psutil.CONN_LISTEN and not x.laddr.ip.endswith("127.0.0.1"):
                found.add(x.laddr.port)
    assert len(found) == 2  # a replica's each
    for port in found:
        with grpc.insecure_channel(f"localhost:{port}") as channel:
            ask = channel.unary_unary("/ray.serve.ASGIService/HandleRequest")
            with pytest.raises(grpc.RpcError) as no:
                ask(b"", timeout=60)
        assert no.value.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.slow
def test_rays_token_is_nobody_elses(server):
    token = server.home / ".ray" / "auth_token"
    assert token.read_text() and token.stat().st_mode & 0o077 == 0


@pytest.mark.slow
@pytest.mark.parametrize("way", [by_rest, by_grpc])
def test_overload_is_refused_and_says_so(server, expected, way):
    ask = way(server)

    def large(texts):
        found = ask((texts * 256)[:256])
        return {"translation": found["translation"][: len(texts)]}

    # Three are never too much; a fourth may come while others are being read.
    pairs = asked_by(12, large, requests=1)
    refused = [said for _, said in pairs if isinstance(said, Exception)]
    assert 0 < len(refused) <= 9
    assert right([x for x in pairs if not isinstance(x[1], Exception)], expected)
    for error in refused:
        assert "The server is busy" in str(error)
        if isinstance(error, grpc.RpcError):
            assert error.code() == grpc.StatusCode.UNAVAILABLE
        else:
            assert "answers 503" in str(error)
    assert right(asked_by(1, ask), expected)  # afterwards it is as it was


@pytest.mark.slow
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


@pytest.mark.slow
def test_it_is_not_healthy_while_no_replica_answers(server):
    with suspended(server.replicas()):
        with pytest.raises(urllib.error.HTTPError, match="503") as found:
            server.get("/v1/models/dogs")
        assert b"LOADING" in found.value.read()
        with grpc.insecure_channel(server.grpc) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            assert check(b"", timeout=60) == b"\x08\x02"  # NOT_SERVING
    assert wait_for(lambda: "AVAILABLE" in server.get("/v1/models/dogs"))


@pytest.mark.slow
def test_even_if_all_replicas_are_killed(server, expected):
    for replica in server.replicas():
        replica.send_signal(signal.SIGKILL)
    assert right(asked_by(8, by_grpc(server), requests=2), expected)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 2])
def test_it_ends_though_a_request_is_not_answered(version, tmp_path, signals):
    grace = {1: 5, 2: 600}[signals]
    with running(version, tmp_path, "--grace", grace) as server:
        children = psutil.Process(server.process.pid).children(recursive=True)
        for replica in server.replicas():
            replica.suspend()
        with ThreadPoolExecutor(1) as pool:
            request = pool.submit(by_rest(server), ["cat"])
            time.sleep(3)
            start = time.monotonic()
            server.process.terminate()
            if signals == 2:
                time.sleep(3)
                server.process.terminate()
            assert server.process.wait(60) == signals - 1
            assert signals == 2 or time.monotonic() - start > grace
            with pytest.raises((RuntimeError, OSError)):
                request.result()
        psutil.wait_procs(children, timeout=30)
        assert not [child for child in children if child.is_running()]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_free_ports_are_had(host):
    rest, grpc_port, metrics = free_ports(3)
    given = ["models", "--host", host, "--rest", rest, "--grpc", grpc_port]
    given = server_script._parser().parse_args(
        [str(x) for x in [*given, "--metrics", metrics]]
    )
    server_script.check_ports(given, pytest.fail)
    with socket.create_server(("", metrics)):
        refused = []
        server_script.check_ports(given, refused.append)
    (why,) = refused
    assert why.startswith(f"--metrics {metrics} cannot be had: Address already in use")


@pytest.fixture
def model(translator, tmp_path):
    """A model outside of Ray, of which no more than four are asked at once."""
    path = export_saved_model(translator, tmp_path / "dogs", max_batch_size=4)
    return server_script.Model.func_or_class(str(path))


@pytest.mark.slow
def test_every_signature_is_warmed_up_by_one_row_and_by_two(request, monkeypatch):
    kind, answered = server_script.Model.func_or_class, []
    call = kind._call

    def recorded(self, signature, inputs):
        said = call(self, signature, inputs)
        answered.append((signature, *{len(x) for x in inputs.values()}))
        return said

    monkeypatch.setattr(kind, "_call", recorded)
    request.getfixturevalue("model")
    names = ["align", "constrain", "ids", "n_best", "score", "serving_default"]
    assert sorted(answered) == [(name, rows) for name in names for rows in (1, 2)]


@pytest.mark.slow
def test_no_more_are_computed_at_once_than_the_export_takes(model):
    assert model.batches.most == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [tf.errors.ResourceExhaustedError, tf.errors.InternalError]
)
def test_the_servers_own_failures_are_not_the_clients(model, monkeypatch, error):
    def failing(signature, inputs):
        raise error(None, None, "no memory")

    monkeypatch.setattr(model, "_call", failing)
    (no,) = model.answer([model.read("serving_default", {"text": ["the dog"]})])
    assert (no.status, no.code, no.why) == (500, grpc.StatusCode.INTERNAL, "no memory")


class Replicas:
    """Ray's handle of replicas that do what a test wants."""

    def __init__(self, answer):
        self.answer, self.asked, self.cancelled = answer, 0, 0
        self.predict = self.alive = self

    def remote(self, *_):
        self.asked += 1
        answer = asyncio.ensure_future(self.answer())
        answer.add_done_callback(self._done)
        return answer

    def _done(self, answer):
        self.cancelled += answer.cancelled()


async def never():
    await asyncio.sleep(600)


async def dies():
    raise RayActorError()


def front_of(replicas, most_rows=256, most_waiting=1024, timeout=60):
    limits = most_rows, most_waiting, timeout, server_script.Takes()
    return server_script.Front(replicas, "dogs", "1", *limits)


async def asked(front, rows):
    """What a front says to so many sentences: an answer, or why there is none."""
    return await front._counted(front.ask("", {"text": [b"a"] * rows}))


@pytest.mark.parametrize("make", [list, lambda x: np.array(x, object)])
def test_no_replica_is_asked_for_more_than_the_export_takes(make):
    replicas = Replicas(never)
    front = front_of(replicas, most_rows=4)
    with pytest.raises(Refused, match="5 are too many") as found:
        asyncio.run(front.ask("", {"text": make([b"a"] * 5), "x": make(b"a")}))
    assert found.value.status == 400 and replicas.asked == 0


def test_what_is_waiting_is_counted_in_sentences():
    async def several():
        front = front_of(Replicas(never), most_waiting=250, timeout=0.2)
        return await asyncio.gather(*(asked(front, rows) for rows in [100, 100, 100]))

    *waited, no = asyncio.run(several())
    assert [x.status for x in waited] == [504, 504] and no.status == 503
    assert no.why == "The server is busy: 200 sentences are waiting"


def test_what_takes_too_long_is_given_up():
    replicas = Replicas(never)
    no = asyncio.run(asked(front_of(replicas, timeout=0.1), 1))
    assert (no.status, no.code) == (504, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert replicas.cancelled == 1


def test_what_replicas_die_of_is_not_asked_for_ever():
    replicas = Replicas(dies)
    no = asyncio.run(asked(front_of(replicas), 1))
    assert (no.status, no.code) == (500, grpc.StatusCode.INTERNAL)
    assert replicas.asked == server_script.TRIES == 3


@pytest.mark.parametrize("answer", [never, dies])
def test_without_a_replica_it_is_not_healthy(answer, monkeypatch):
    monkeypatch.setattr(server_script, "ALIVE", 0.1)
    response = asyncio.run(front_of(Replicas(answer))._state())
    (state,) = json.loads(response.body)["model_version_status"]
    assert (response.status_code, state["state"]) == (503, "LOADING")


def test_s2_who_watches_costs_one_question_a_second(monkeypatch):
    async def alive():
        return None

    async def states(front):
        async def first():
            async for state in front.watch(b"", None):
                return state

        asked = [first() for _ in range(500)]
        return await asyncio.gather(*asked, front.check(b"", None))

    replicas = Replicas(alive)
    front = front_of(replicas)
    assert {*asyncio.run(states(front))} == {server_script.SERVING}
    assert replicas.asked == 1
    monkeypatch.setattr(server_script, "STATE", 0.0)
    front.state_until = 0.0  # a second later
    replicas.answer = dies
    assert asyncio.run(front.check(b"", None)) == server_script.NOT_SERVING
