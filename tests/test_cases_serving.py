"""What operators meet: strangers' requests and files, and what listens where."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import psutil
import pytest
import tensorflow as tf
from commands import run
from export_scripts import EXPORT, export_script
from small_translator import word_translator, written_run

from keras_luong import TokenizerPair, export_saved_model, load
from keras_luong.decoding import BeamSearch

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")
BEGIN = b"POST /v1/models/dogs:predict HTTP/1.1\r\nHost"
SOON = 1.0  # seconds that a neighbour may wait


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    translator = word_translator(BeamSearch(2, max_length=6))
    return export_saved_model(translator, tmp_path_factory.mktemp("models") / "dogs")


@pytest.fixture(scope="module")
def server(version, tmp_path_factory):
    test_server = pytest.importorskip("test_server")
    with test_server.running(version, tmp_path_factory.mktemp("server")) as found:
        yield found


def connected(server, address=None):
    port = (address or server.rest).rsplit(":", 1)[1]
    return socket.create_connection(("127.0.0.1", int(port)))


def predicted(server, body=b'{"inputs": ["the dog"]}'):
    address = f"{server.rest}/v1/models/dogs:predict"
    with urllib.request.urlopen(address, body, timeout=60) as response:
        return json.load(response)


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


@pytest.mark.slow
@pytest.mark.parametrize("attackers", [1, 8])
def test_s1_a_header_without_an_end_is_cut_off(server, attackers):
    def endless(_):
        with connected(server) as client, contextlib.suppress(OSError):
            client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nX-A: ")
            for _ in range(1 << 12):
                client.sendall(b"a" * (1 << 12))
                time.sleep(0)
            return "never"
        return "cut off"

    with neighbour(server) as seconds, ThreadPoolExecutor(attackers) as pool:
        assert {*pool.map(endless, range(attackers))} == {"cut off"}
        time.sleep(1)
    assert max(seconds) < SOON


@pytest.mark.slow
@pytest.mark.parametrize(
    "begin",
    [
        BEGIN + b": a\r\nContent-Length: 99\r\n\r\n{",
        BEGIN,
        b"",
    ],
    ids=["body", "header", "nothing"],
)
def test_s2_those_who_send_slowly_take_one_anothers_places(server, begin):
    with neighbour(server) as seconds, contextlib.ExitStack() as stack:
        for _ in range(900):  # a test may have so many files, as most processes
            stack.enter_context(connected(server)).sendall(begin)
        time.sleep(2)
        assert len(seconds) > 5
    assert max(seconds) < SOON
    assert "Traceback" not in server.log.read_text()


@pytest.mark.slow
def test_s2_by_grpc_too(server):
    client = export_script("grpc_client").Client(server.grpc, "dogs")
    client.predict({"text": ["the dog"]})
    with contextlib.ExitStack() as stack:
        for _ in range(900):
            stack.enter_context(connected(server, server.grpc)).sendall(b"PRI * HTT")
        seconds = []
        for _ in range(5):
            start = time.monotonic()
            client.predict({"text": ["the dog"]})
            predicted(server)
            seconds.append(time.monotonic() - start)
    assert max(seconds) < SOON


@pytest.mark.slow
def test_s2_a_slow_body_ends_and_pieces_of_a_byte_are_refused(server):
    for length, status in ((b"Content-Length: 9", b"408"), (b"A: b", b"411")):
        with connected(server) as client:
            client.settimeout(30)
            start = BEGIN + b": a\r\n"
            chunked = b"" if status == b"408" else b"\r\nTransfer-Encoding: chunked"
            client.sendall(start + length + chunked + b"\r\n\r\n")
            assert client.recv(99).startswith(b"HTTP/1.1 " + status)
            while client.recv(999):  # until it is closed
                pass


@pytest.mark.slow
def test_s2_a_request_of_two_lengths_is_closed(server):
    lengths = b": a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connected(server) as client:
        client.settimeout(30)
        client.sendall(BEGIN + lengths + b"2\r\n{}\r\n0\r\n\r\n")
        with client.makefile("rb") as said:
            assert said.read().startswith(b"HTTP/1.1 411")  # and its end


LENGTHS = [b"Transfer-Encoding: chunked", b"Content-Length: 99999999"]


@pytest.mark.parametrize("length", LENGTHS, ids=["chunked", "long"])
def test_s2_who_is_answered_before_the_body_has_come_is_closed(length, monkeypatch):
    pytest.importorskip("uvicorn")
    connections = export_script("connections")
    monkeypatch.setattr(connections, "SETTLE", 0.2)

    async def refuses(scope, receive, send):
        await send({"type": "http.response.start", "status": 404})
        await send({"type": "http.response.body", "body": b"no"})

    async def flood(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(BEGIN + b": a\r\n" + length + b"\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 404")
        while True:
            writer.write(b"1\r\n \r\n" * 999)
            await writer.drain()

    async def served():
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = connections.http_server(refuses, "127.0.0.1", port, 60)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(flood(port), 5)
        server.should_exit = True
        await serving

    asyncio.run(served())


@pytest.mark.slow
def test_s4_a_refused_request_is_a_line_of_the_log(server):
    before = len(server.log.read_text().splitlines())
    for body in (b"{", b'{"inputs": [1]}', b'{"inputs": [["a\\nb"]]}'):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            predicted(server, body)
    lines = server.log.read_text().splitlines()[before:]
    assert len(lines) == 3 and all("refused (400): " in x for x in lines)


@pytest.mark.slow
def test_s5_rest_and_grpc_listen_at_home(server):
    ports = {int(x.rsplit(":", 1)[1]) for x in (server.rest, server.grpc)}
    listening = {
        (x.laddr.ip.removeprefix("::ffff:"), x.laddr.port)
        for x in psutil.Process(server.process.pid).net_connections("inet")
        if x.status == psutil.CONN_LISTEN and x.laddr.port in ports
    }
    assert listening == {("127.0.0.1", port) for port in ports}


def test_s5_the_compose_file_publishes_at_home_what_was_chosen():
    text = (EXPORT / "serving" / "docker-compose.yml").read_text()
    ports = re.findall(r'- "(.*)" #', text)
    assert len(ports) == 2 and all(x.startswith("127.0.0.1:") for x in ports)
    (tag,) = re.findall(r"image: tensorflow/serving:\$\{SERVING_VERSION:-(.*)\}", text)
    assert re.fullmatch(r"\d+\.\d+\.\d+", tag)


@pytest.fixture
def stranger(tmp_path):
    """A run whose tokenizer can be led elsewhere, and a file beside the run."""
    run_dir = written_run(tmp_path / "run", word_translator()).path
    words = (run_dir / "tokenizer" / "source.txt").read_text()
    secret = tmp_path / "secret.txt"
    secret.write_text(words.replace("cat", "password"))
    return run_dir, secret


def named(run_dir, name):
    """Has the manifest name another file for the source."""
    path = run_dir / "tokenizer" / "tokenizer.json"
    about = json.loads(path.read_text())
    about["source"] = {"file": name, "vocab_size": about["source"]["vocab_size"]}
    path.write_text(json.dumps(about))


@pytest.mark.parametrize("name", ["../../secret.txt", "/etc/x.txt", "a/b.txt", "", 3])
def test_s6_a_runs_tokenizer_is_a_file_of_its_own(stranger, name):
    run_dir, _ = stranger
    named(run_dir, name)
    with pytest.raises(ValueError, match=r"tokenizer\.json is damaged"):
        load(run_dir)


def test_s6_nor_does_an_absolute_name_or_a_link_lead_out(stranger, tmp_path):
    run_dir, secret = stranger
    named(run_dir, str(secret))
    with pytest.raises(ValueError, match=r"is no name of a file in"):
        run("export", run_dir, tmp_path / "models", "--check", "the dog")
    named(run_dir, "source.txt")
    (run_dir / "tokenizer" / "source.txt").unlink()
    (run_dir / "tokenizer" / "source.txt").symlink_to(secret)
    with pytest.raises(
        ValueError, match=r"source\.txt is a link that leads out of"
    ) as no:
        load(run_dir)
    assert "damaged" not in str(no.value)
    (run_dir / "tokenizer").rename(tmp_path / "elsewhere")  # but this is nobody else's
    (run_dir / "tokenizer").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "source.txt").unlink()
    secret.rename(tmp_path / "elsewhere" / "source.txt")
    assert "password" in TokenizerPair.load(run_dir / "tokenizer").source.words


def test_s6_but_links_within_the_run_are_followed(stranger):
    run_dir, _ = stranger
    (run_dir / "blobs").mkdir()
    (run_dir / "tokenizer" / "source.txt").rename(run_dir / "blobs" / "1.txt")
    (run_dir / "tokenizer" / "source.txt").symlink_to("../blobs/1.txt")
    assert "cat" in load(run_dir).tokenizers.source.words
    with pytest.raises(ValueError, match="leads out of .*tokenizer: put a copy"):
        TokenizerPair.load(run_dir / "tokenizer")


@pytest.mark.parametrize("kind", ["external", "link", "virtual"])
def test_s6_weights_are_in_the_file_itself(stranger, kind, tmp_path):
    run_dir, secret = stranger
    path = run_dir / "model.weights.h5"
    with h5py.File(path) as old, h5py.File(tmp_path / "x.h5", "w") as new:
        for name in old:
            old.copy(name, new)
        group = new["layers/dense/vars"]
        shape = group["0"].shape
        del group["0"]
        if kind == "external":
            group.create_dataset("0", shape, "f4", external=[(str(secret), 0, 9999)])
        elif kind == "link":
            group["0"] = h5py.ExternalLink(str(path), "layers/dense/vars/0")
        else:
            layout = h5py.VirtualLayout(shape, "f4")
            layout[...] = h5py.VirtualSource(str(path), "layers/dense/vars/0", shape)
            group.create_virtual_dataset("0", layout)
    (tmp_path / "x.h5").rename(path)
    with pytest.raises(ValueError, match=r"model\.weights\.h5 .* it has \d+ weights"):
        load(run_dir)


def test_s9_no_instances_are_no_inputs():
    pytest.importorskip("starlette")
    requests = export_script("predict_requests")
    none = {"instances": []}
    takes = requests.Takes()
    assert requests.columns(none, takes) == requests.columns({"inputs": []}, takes)
    said = {"translation": np.array([], object), "score": np.array([], "float32")}
    assert json.loads(requests.as_json(none, said)) == {"predictions": []}


@pytest.mark.slow
def test_s9_by_rest(server):
    assert predicted(server, b'{"instances": []}') == {"predictions": []}
    assert predicted(server, b'{"inputs": []}')["outputs"]["translation"] == []
    for name, inputs in (
        ("score", ["text", "target"]),
        ("constrain", ["text", "phrases"]),
        ("ids", ["ids", "length"]),
    ):
        for given in ({"instances": []}, {"inputs": {key: [] for key in inputs}}):
            said = predicted(
                server, json.dumps({"signature_name": name, **given}).encode()
            )
            assert not any(said.get("outputs", said).values())


def batching_config():
    """What the file sets: its names, with the values that Serving reads."""
    text = (EXPORT / "serving" / "batching.config").read_text()
    lines = [x for x in text.splitlines() if not x.startswith("#")]
    rows = [re.fullmatch(r"(\w+) \{ value: (\d+) \}", x) for x in lines]
    return {row[1]: int(row[2]) for row in rows}


def joined_by_serving(signature, requests, limit):
    """Answers as TensorFlow Serving 2.20 does that joins requests.

    `Queue::ValidateBatchTaskQueueCapacity` refuses what is larger than a batch,
    `BatchingSession::MergeInputTensors` what differs in shape, and the answers are cut
    along the first axis.
    """
    names, sizes = [*requests[0]], [len(x[[*x][0]]) for x in requests]
    assert max(sizes) <= limit, "Task size is larger than maximum input batch size"
    assert sum(sizes) <= limit  # else it is another batch
    for name in names:
        shapes = {np.shape(x[name])[1:] for x in requests}
        assert len(shapes) == 1, "different shapes and padding is turned off"
    merged = {k: np.concatenate([np.array(x[k]) for x in requests]) for k in names}
    said = signature(**{k: tf.constant(x) for k, x in merged.items()})
    cuts = np.cumsum(sizes)[:-1]
    parts = {k: np.split(x.numpy(), cuts) for k, x in said.items()}
    return [{k: x[i] for k, x in parts.items()} for i in range(len(requests))]


@pytest.mark.slow
def test_s10_serving_takes_what_the_export_takes(version):
    config = batching_config()
    about = json.loads((version / "assets.extra" / "keras_luong.json").read_text())
    assert config.keys() == {
        "max_batch_size",
        "batch_timeout_micros",
        "num_batch_threads",
        "max_enqueued_batches",
    }
    assert config["max_batch_size"] == about["max_batch_size"] == 256
    signatures = tf.saved_model.load(str(version)).signatures
    width = about["max_source_length"]
    many = {"ids": np.full([200, width], 4, "int32"), "length": [2] * 200}
    few = {"ids": np.full([3, width], 5, "int32"), "length": [1, width, 0]}
    many["length"] = np.array(many["length"], "int32")
    few["length"] = np.array(few["length"], "int32")
    found = joined_by_serving(signatures["ids"], [many, few], config["max_batch_size"])
    for request, said in zip([many, few], found, strict=True):
        alone = signatures["ids"](**{k: tf.constant(x) for k, x in request.items()})
        assert said["length"].tolist() == alone["length"].numpy().tolist()
        np.testing.assert_allclose(said["score"], alone["score"], rtol=1e-4)
    text = {"text": ["the dog"] * 256}
    (said,) = joined_by_serving(signatures["serving_default"], [text], 256)
    assert len(said["translation"]) == 256
