"""The reference server on Ray Serve: right under load, and when parts of it die."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest import mock

import numpy as np
import psutil
import pytest
import tensorflow as tf
from export_scripts import EXPORT, export_script
from processes import children, free_ports, wait_for
from small_translator import word_translator
from test_serving import assert_a_table, run

import keras_luong as kl

RayActorError = pytest.importorskip("ray.exceptions").RayActorError
pytest.importorskip("ray.serve")
grpc = pytest.importorskip("grpc")
predict_pb2 = pytest.importorskip("tensorflow_serving.apis.predict_pb2")

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")
rest_client = export_script("rest_client")
grpc_client = export_script("grpc_client")
with mock.patch.dict(os.environ):  # what it sets there is for its own process
    server_script = export_script("server")

slow = pytest.mark.slow
WORDS = "the red dog is the cat".split()
TEXTS = [" ".join(WORDS[i % 5 :] + WORDS[: i % 3]) for i in range(15)] + ["", "Ж"]


@pytest.fixture(scope="module")
def translator():
    return word_translator(kl.BeamSearch(2, max_length=6))


@pytest.fixture(scope="module")
def version(translator, tmp_path_factory):
    return kl.export_saved_model(translator, tmp_path_factory.mktemp("models") / "dogs")


@pytest.fixture(scope="module")
def expected(translator):
    return {t: x.text for t, x in zip(TEXTS, translator.translate(TEXTS), strict=True)}


class Server(SimpleNamespace):
    """The server's process and addresses."""

    def replicas(self):
        """Those that are alive."""
        return children(self.process, "ray::ServeReplica:default:Model")

    def get(self, path="/v1/models/dogs"):
        address = path if "//" in path else self.rest + path
        with urllib.request.urlopen(address, timeout=60) as response:
            return response.read().decode()


@contextlib.contextmanager
def running(version, folder, *options):
    rest, by_grpc, metrics = free_ports(3)
    command = [sys.executable, EXPORT / "serving" / "server.py", version, *options]
    command += ["--rest", rest, "--grpc", by_grpc, "--metrics", metrics]
    log = folder / "log"
    given = {"text": True, "env": {**os.environ, "HOME": str(folder)}}
    given |= {"stdout": subprocess.PIPE, "stderr": log.open("wb")}
    process = subprocess.Popen([*map(str, command)], **given)
    if not any(line.startswith("ready") for line in process.stdout):
        raise RuntimeError(log.read_text())
    try:
        places = {"rest": f"http://localhost:{rest}", "grpc": f"localhost:{by_grpc}"}
        places |= {"metrics": f"http://localhost:{metrics}/metrics"}
        yield Server(process=process, home=folder, log=log, **places)
    finally:
        process.terminate()
        process.wait(60)


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


@slow
@pytest.mark.parametrize("way", [by_rest, by_grpc])
def test_every_client_is_answered_and_rightly(server, expected, way):
    for clients in (1, 32):
        pairs = asked_by(clients, way(server))
        assert len(pairs) == 10 * clients and right(pairs, expected)


def predicted(server, body=b'{"inputs": ["the dog"]}'):
    address = f"{server.rest}/v1/models/dogs:predict"
    with urllib.request.urlopen(address, body, timeout=60) as response:
        return json.load(response)


INPUTS = {
    **{"n_best": ["text"], "align": ["text"]},
    "score": ["text", "target"],
    "constrain": ["text", "phrases"],
    "ids": ["ids", "length"],
}


@slow
@pytest.mark.parametrize("signature", INPUTS)
def test_every_signature_by_rest_and_grpc(server, translator, signature):
    client, texts = grpc_client.Client(server.grpc, "dogs"), ["the red dog", "cat"]
    values = {"ids": [[4, 5, 6], [7, 0, 0]], "length": [3, 1], "phrases": ["", ""]}
    given = {key: values.get(key, texts) for key in INPUTS[signature]}
    rest = rest_client.predict(server.rest, "dogs", given, signature)
    also = client.predict(given, signature)
    assert rest.keys() == also.keys()
    name, found = "score", translator.translate(texts)
    if signature == "score":
        name, found = "log_prob", translator.score(texts, texts)
    for said in (rest, also):
        scores = [np.ravel(x)[0] for x in said[name]]  # of several the best
        np.testing.assert_allclose(scores, [t.score for t in found], rtol=1e-4)
    none = {key: [] for key in given}  # S9
    for asked in ({"instances": []}, {"inputs": none}):
        body = json.dumps({"signature_name": signature, **asked}).encode()
        said = predicted(server, body)
        assert not any(said.get("outputs", said).values())


@slow
def test_a_version_by_a_label_is_not_found(server):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "dogs"
    request.model_spec.version_label = "stable"
    with pytest.raises(grpc.RpcError, match="No version has the label 'stable'"):
        grpc_client.Client(server.grpc, "dogs")._stub.Predict(request, 60)


@slow
def test_health_and_metrics(server):
    (state,) = json.loads(server.get())["model_version_status"]
    assert (state["version"], state["state"]) == ("1", "AVAILABLE")
    service = b"tensorflow.serving.PredictionService"
    asked = b"\x0a%c%s" % (len(service), service)  # {service: "..."}
    with grpc.insecure_channel(server.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        for question in (b"", asked):
            assert check(question, timeout=60) == b"\x08\x01"  # {status: SERVING}
        states = channel.unary_stream("/grpc.health.v1.Health/Watch")(asked)
        assert next(states) == b"\x08\x01"
        states.cancel()
        with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
            check(b"\x0a\x01a", timeout=60)
        with suspended(server.replicas()):
            time.sleep(2)  # what is known is told for a second
            with pytest.raises(urllib.error.HTTPError, match="503") as found:
                server.get()
            assert b"LOADING" in found.value.read()
            assert check(b"", timeout=60) == b"\x08\x02"  # NOT_SERVING
    wait_for(lambda: "AVAILABLE" in server.get())
    predicted(server)
    for name in ("requests_answered", "sentences", "batches"):
        more = re.compile(rf"^ray_translation_{name}\S* 0*[1-9]", re.M)
        wait_for(lambda more=more: more.search(server.get(server.metrics)))


@slow
@pytest.mark.parametrize("way", ["rest", "grpc"])
def test_command_lines_of_clients_and_loads(server, translator, way, tmp_path):
    where, texts = getattr(server, way), [b"the red dog", b"", b"cat \xff"]
    said = run(f"{way}_client.py", where, "dogs", input=b"\n".join(texts))
    assert said.split("\n") == [*(t.text for t in translator.translate(texts)), ""]
    (tmp_path / "in.txt").write_text("the red dog\ncat\n")
    flags = [f"--{way}", where, "--model", "dogs", "--requests", 20]
    flags += ["--threads", 1, 3, "--beside", 2, "--beside_size", 8]
    said = run("load.py", tmp_path / "in.txt", *flags)
    assert_a_table(said, [(1, 1), (3, 1)])
    assert said.count("\nbeside 2 of 8 texts: ") == 2  # S3


@contextlib.contextmanager
def suspended(processes):
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


INVALID = "INVALID_ARGUMENT"


REFUSED = [
    ("cats", ["a"], 404, "NOT_FOUND", "Not found"),
    ("dogs", None, 400, INVALID, r"takes \['text'\], and not \['words'\]"),
    ("dogs", [["a"]], 400, INVALID, "shape"),
    ("dogs", [1], 400, INVALID, "takes string, and not int"),
    ("dogs", ["a"] * 257, 400, INVALID, "257 are too many sentences"),
    ("dogs", ["a" * (1 << 20)], 413, "RESOURCE_EXHAUSTED", "more than 1048576 byt"),
    ("dogs", ["a", {"b64": "!"}], 400, None, "Neither a value nor base64"),
]


@slow
@pytest.mark.parametrize("model, text, status, code, message", REFUSED)
def test_what_is_wrong_is_refused(server, model, text, status, code, message):
    inputs = {"text": text} if text else {"words": ["a"]}
    with pytest.raises(RuntimeError, match=f"answers {status}: .*{message}"):
        rest_client.predict(server.rest, model, inputs)
    if status == 400:  # S4
        assert "refused (400): " in server.log.read_text().splitlines()[-1]
    if code:
        with pytest.raises(grpc.RpcError) as found:
            grpc_client.Client(server.grpc, model).predict(inputs)
        assert found.value.code() == grpc.StatusCode[code]


@slow
def test_s5_who_listens_where(server):
    """REST and gRPC at home; of Ray's ports the network sees what wants its token."""
    own = {int(x.rsplit(":", 1)[1]) for x in (server.rest, server.grpc)}
    process = psutil.Process(server.process.pid)
    listening = [
        (x.laddr.ip.removeprefix("::ffff:"), x.laddr.port)
        for y in (process, *process.children(recursive=True))
        for x in y.net_connections("inet")
        if x.status == psutil.CONN_LISTEN
    ]
    assert {x for x in listening if x[1] in own} == {("127.0.0.1", x) for x in own}
    seen = {port for ip, port in listening if ip != "127.0.0.1"}
    assert len(seen) == 2  # a replica's each
    for port in seen:
        with grpc.insecure_channel(f"localhost:{port}") as channel:
            ask = channel.unary_unary("/ray.serve.ASGIService/HandleRequest")
            with pytest.raises(grpc.RpcError) as no:
                ask(b"", timeout=60)
        assert no.value.code() == grpc.StatusCode.UNAUTHENTICATED
    token = server.home / ".ray" / "auth_token"
    assert token.read_text() and token.stat().st_mode & 0o077 == 0


BEGIN = b"POST /v1/models/dogs:predict HTTP/1.1\r\nHost"
SOON = 1.0  # seconds that a neighbour may wait


def connected(server):
    host, port = server.split("//")[-1].split(":")
    return socket.create_connection((host.replace("localhost", "127.0.0.1"), int(port)))


@contextlib.contextmanager
def neighbour(server):
    """Somebody who asks all the time; yields how long each answer took."""
    seconds, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            start = time.monotonic()
            predicted(server)
            seconds.append(time.monotonic() - start)

    predicted(server)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            yield seconds
        finally:
            stop.set()
            asking.result()


@slow
def test_s1_a_header_without_an_end_is_cut_off(server):
    def endless(_):
        with connected(server.rest) as client, contextlib.suppress(OSError):
            client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nX-A: ")
            for _ in range(1 << 12):
                client.sendall(b"a" * (1 << 12))
                time.sleep(0)
            return "never"
        return "cut off"

    with neighbour(server) as seconds, ThreadPoolExecutor(8) as pool:
        assert {*pool.map(endless, range(8))} == {"cut off"}
        time.sleep(1)
    assert max(seconds) < SOON


SLOW_ONES = [("rest", b""), ("rest", BEGIN), ("grpc", b"PRI * HTT")]
SLOW_ONES.append(("rest", BEGIN + b": a\r\nContent-Length: 99\r\n\r\n{"))


@slow
@pytest.mark.parametrize("way, begin", SLOW_ONES)
def test_s2_those_who_send_slowly_take_one_anothers_places(server, way, begin):
    client = grpc_client.Client(server.grpc, "dogs")
    client.predict({"text": ["the dog"]})
    with neighbour(server) as seconds, contextlib.ExitStack() as stack:
        for _ in range(900):  # a test may have so many files, as most processes
            stack.enter_context(connected(getattr(server, way))).sendall(begin)
        for _ in range(5):
            time.sleep(0.4)
            start = time.monotonic()
            client.predict({"text": ["the dog"]})
            seconds.append(time.monotonic() - start)
        assert len(seconds) > 10
    assert max(seconds) < SOON
    assert "Traceback" not in server.log.read_text()


@slow
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

    wait_for(restarted)
    assert right(asked_by(8, ask), expected)
    for replica in server.replicas():  # even if it is all of them
        replica.send_signal(signal.SIGKILL)
    assert right(asked_by(8, by_grpc(server), requests=2), expected)


@slow
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
        started = children(server.process, "")
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(asked_by, 8, ask, 12)
            time.sleep(4)
            server.process.terminate()
            ended = time.monotonic()
            pairs = load.result()
        assert server.process.wait(60) == 0
        assert not psutil.wait_procs(started, timeout=30)[1]  # alive
    answered = [pair for pair in pairs if not isinstance(pair[1], Exception)]
    assert len(answered) > 20 and right(answered, expected)
    # None that was sent before; later ones were refused as long as there was a server.
    assert all(start > ended for start in cut_off)
    refused = [said for _, said in pairs if isinstance(said, RuntimeError)]
    assert refused and all("answers 503" in str(said) for said in refused)
    assert all("shutting down" in str(said) for said in refused)


@slow
@pytest.mark.parametrize("signals", [1, 2])
def test_it_ends_though_a_request_is_not_answered(version, tmp_path, signals):
    grace = {1: 5, 2: 600}[signals]
    with running(version, tmp_path, "--grace", grace) as server:
        started = children(server.process, "")
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
        assert not psutil.wait_procs(started, timeout=30)[1]  # alive


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_ports_that_are_in_use_are_refused(host, version, capsys):
    """Ray would take a part of the other server's requests."""
    ports = dict(zip(("--rest", "--grpc", "--metrics"), free_ports(3), strict=True))
    words = [str(x) for option in ports.items() for x in option]
    words = [str(version), "--host", host, *words]
    server_script.check_ports(server_script._parser().parse_args(words), pytest.fail)
    for option, port in ports.items():
        with socket.create_server(("", port)), pytest.raises(SystemExit) as ended:
            server_script.main(words)
        said = f"{option} {port} cannot be had: Address already in use"
        assert ended.value.code == 2 and said in capsys.readouterr().err


@slow
def test_a_model_outside_of_ray(translator, tmp_path, monkeypatch):
    """Of which no more than four are asked at once."""
    path = kl.export_saved_model(translator, tmp_path / "dogs", max_batch_size=4)
    kind, answered = server_script.Model.func_or_class, []
    call = kind._call

    def recorded(self, signature, inputs):
        said = call(self, signature, inputs)
        answered.append((signature, *{len(x) for x in inputs.values()}))
        return said

    monkeypatch.setattr(kind, "_call", recorded)
    model = kind(str(path))
    assert model.batches.most == 4
    names = ["serving_default", *INPUTS]  # warmed up by one row and by two
    assert {*answered} == {(name, rows) for name in names for rows in (1, 2)}
    assert len(answered) == 12
    errors = [tf.errors.ResourceExhaustedError, tf.errors.InternalError]

    def failing(signature, inputs):
        raise errors.pop()(None, None, "no memory")

    monkeypatch.setattr(model, "_call", failing)
    while errors:  # which are not the client's
        (no,) = model.answer([model.read("serving_default", {"text": ["the dog"]})])
        internal = grpc.StatusCode.INTERNAL
        assert (no.status, no.code, no.why) == (500, internal, "no memory")


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


def test_what_is_waiting_is_counted_in_sentences():
    async def several():
        front = front_of(Replicas(never), most_waiting=250, timeout=0.2)
        return await asyncio.gather(*(asked(front, rows) for rows in [100, 100, 100]))

    *waited, no = asyncio.run(several())
    assert [x.status for x in waited] == [504, 504] and no.status == 503
    assert no.why == "The server is busy: 200 sentences are waiting"


GIVEN_UP = [(never, 504, "DEADLINE_EXCEEDED", 1, 1), (dies, 500, "INTERNAL", 3, 0)]


@pytest.mark.parametrize("answer, status, code, times, cancelled", GIVEN_UP)
def test_what_takes_long_or_kills_replicas(answer, status, code, times, cancelled):
    replicas = Replicas(answer)
    no = asyncio.run(asked(front_of(replicas, timeout=0.1), 1))
    assert (no.status, no.code) == (status, grpc.StatusCode[code])
    assert (replicas.asked, replicas.cancelled) == (times, cancelled)


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
