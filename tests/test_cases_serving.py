"""What operators meet: strangers' requests and files, and what listens where."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import socket

import h5py
import pytest
from commands import run
from export_scripts import EXPORT, export_script
from small_translator import word_translator, written_run

from keras_luong import TokenizerPair, export_saved_model, load

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")
BEGIN = b"POST /v1/models/dogs:predict HTTP/1.1\r\nHost"
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


def test_s10_serving_takes_what_the_export_takes():
    """TensorFlow Serving refuses to join what is larger than a batch."""
    text = (EXPORT / "serving" / "batching.config").read_text()
    lines = [x for x in text.splitlines() if not x.startswith("#")]
    rows = [re.fullmatch(r"(\w+) \{ value: (\d+) \}", x) for x in lines]
    assert {row[1] for row in rows} == {
        "max_batch_size",
        "batch_timeout_micros",
        "num_batch_threads",
        "max_enqueued_batches",
    }
    default = inspect.signature(export_saved_model).parameters["max_batch_size"].default
    (most,) = [int(row[2]) for row in rows if row[1] == "max_batch_size"]
    assert most == default == 256
