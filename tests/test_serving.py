"""What operators meet: strangers' requests and files, settings, loads, a C program.

The clients of REST and gRPC are tested with the server, in `test_server.py`; what the C
program reads, in `test_odd_text.py`.
"""

import asyncio
import inspect
import json
import re
import subprocess
import sys

import h5py
import pytest
from export_scripts import EXPORT, export_script
from processes import free_ports
from small_translator import SENTENCES, to_bytes, word_translator, written_run

from keras_luong import TokenizerPair, export_saved_model, load

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")
slow = pytest.mark.slow
c_client = export_script("serving.c_client")
load_script = export_script("load")
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
        (port,) = free_ports(1)
        server = connections.http_server(refuses, "127.0.0.1", port, 60)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(flood(port), 5)
        server.should_exit = True
        await serving

    asyncio.run(served())


def settings(name):
    return (EXPORT / "serving" / name).read_text()


def test_s5_the_compose_file_publishes_at_home_what_was_chosen():
    text = settings("docker-compose.yml")
    ports = re.findall(r'- "(.*)" #', text)
    assert len(ports) == 2 and all(x.startswith("127.0.0.1:") for x in ports)
    assert re.search(r"serving:\$\{SERVING_VERSION:-\d+\.\d+\.\d+\}\n", text)


def test_s10_serving_takes_what_the_export_takes():
    """TensorFlow Serving refuses to join what is larger than a batch."""
    text = settings("batching.config")
    rows = dict(re.findall(r"^(\w+) \{ value: (\d+) \}$", text, re.M))
    names = "max_batch_size batch_timeout_micros num_batch_threads max_enqueued_batches"
    assert {*rows} == {*names.split()}
    default = inspect.signature(export_saved_model).parameters["max_batch_size"].default
    assert rows["max_batch_size"] == str(default) == "256"


def test_the_models_configuration_is_one_that_serving_reads():
    pytest.importorskip("tensorflow_serving.apis")
    from google.protobuf import text_format
    from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

    config = text_format.Parse(settings("models.config"), ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path) == ("mine", "/models/mine")
    assert model.model_platform == "tensorflow"


@pytest.fixture
def stranger(tmp_path):
    """A run whose tokenizer can be led elsewhere, and a file beside the run."""
    run_dir = written_run(tmp_path / "run", word_translator()).path
    words = (run_dir / "tokenizer" / "source.txt").read_text()
    secret = tmp_path / "secret.txt"
    secret.write_text(words.replace("cat", "password"))
    return run_dir, secret


@pytest.mark.parametrize("name", ["../../secret.txt", "/etc/x.txt", "a/b.txt", "", 3])
def test_s6_a_runs_tokenizer_is_a_file_of_its_own(stranger, name):
    """As the manifest may name another file for the source."""
    run_dir, _ = stranger
    path = run_dir / "tokenizer" / "tokenizer.json"
    about = json.loads(path.read_text())
    about["source"] = {"file": name, "vocab_size": about["source"]["vocab_size"]}
    path.write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"tokenizer\.json is damaged") as no:
        load(run_dir)
    assert name == 3 or " is no name of a file in" in str(no.value)


def test_s6_links_are_followed_within_the_run(stranger, tmp_path):
    run_dir, secret = stranger
    folder, elsewhere = run_dir / "tokenizer", tmp_path / "elsewhere"
    file, blob = folder / "source.txt", run_dir / "blobs" / "1.txt"
    blob.parent.mkdir()
    file.rename(blob)
    file.symlink_to("../blobs/1.txt")
    assert "cat" in load(run_dir).tokenizers.source.words
    with pytest.raises(ValueError, match="leads out of .*tokenizer: put a copy"):
        TokenizerPair.load(folder)
    file.unlink()
    file.symlink_to(secret)
    with pytest.raises(ValueError, match=r"source\.txt is a link that leads out") as no:
        load(run_dir)
    assert "damaged" not in str(no.value)
    file.unlink()
    blob.rename(file)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)  # but this is nobody else's
    assert "cat" in TokenizerPair.load(folder).source.words


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


def run(script, *arguments, **options):
    """What a script of `export/serving` prints."""
    command = [sys.executable, EXPORT / "serving" / script, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def assert_a_table(said, shapes):
    """Of threads and batch sizes, with nothing that failed or changed."""
    rows = [x.split("|")[1:-1] for x in said.splitlines()[2:] if x.startswith("|")]
    assert [(int(row[0]), int(row[1])) for row in rows] == shapes
    for row in rows:
        p50, p95, p99, rate, failed, changed = map(float, row[2:8])
        assert 0 < p50 <= p95 <= p99 and rate > 0
        assert failed == changed == 0


@slow
def test_the_load_generators_table(pieces_model, pieces_tflite, tmp_path):
    texts = tmp_path / "in.txt"
    texts.write_text("the red dog\ncat\nis is\n")
    flags = ["--requests", 40, "--threads", 1, 3, "--batch_size", 1, 2]
    for kind, path in {"saved_model": pieces_model, "tflite": pieces_tflite}.items():
        said = run("load.py", texts, f"--{kind}", path, *flags)
        assert_a_table(said, [(1, 1), (1, 2), (3, 1), (3, 2)])


def test_load_counts_what_fails_and_what_changes():
    said = iter(range(-load_script.WARM, 1000))

    def unreliable(texts):
        number = next(said)
        if number >= 0 and number % 10 == 9:
            raise RuntimeError("no")
        return [b"other" if number == 35 else texts[0]]

    found = load_script.send(unreliable, [b"a", b"b"], requests=80)
    assert (found.failed, found.changed, len(found.milliseconds)) == (8, 1, 72)


def test_a_single_string_and_no_server_are_refused(monkeypatch):
    rest_client = export_script("rest_client")
    with pytest.raises(TypeError, match="must be lists. Received: 'abc'"):
        rest_client.predict("http://localhost:9", "mine", {"text": "abc"})
    monkeypatch.setattr("sys.argv", ["rest_client.py", "http://localhost:9", "mine"])
    monkeypatch.setattr(rest_client, "read_input", lambda: iter([b"a"]))
    with pytest.raises(SystemExit, match="localhost:9: .*Connection refused"):
        rest_client.main()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The C program."""
    try:
        return c_client.build(tmp_path_factory.mktemp("bin"))
    except FileNotFoundError as error:  # there is no compiler
        pytest.skip(str(error))


@slow
def test_many_threads_of_the_c_program(program, pieces_model, pieces_said):
    """On one session."""
    said = [x[0].text for x in pieces_said] * 25
    texts = [*map(to_bytes, SENTENCES)] * 25
    found, report = c_client.translate(program, pieces_model, texts, threads=16)
    assert [x.decode() for x in found] == said
    assert report.startswith(f"{len(texts)} requests, 0 failed")


def ask_program(program, version, content, *flags, change=None, **options):
    command = c_client.command(program, version, *flags)
    for place, value in (change or {}).items():
        command[place] = value
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    done = subprocess.run(command, input=content, **options)
    return done.returncode, done.stdout, done.stderr.decode()


WRONG = [
    ({1: "nowhere"}, "nowhere"),
    ({2: "nowhere.so"}, "nowhere.so"),
    ({3: "nothing:0"}, "nothing:0: the graph has no such tensor"),
    ({5: "--thread"}, "--thread: no such option"),
]


@slow
@pytest.mark.parametrize("change, message", WRONG)
def test_wrong_arguments_of_the_program(program, pieces_model, change, message):
    code, _, said = ask_program(program, pieces_model, b"", "--framed", change=change)
    assert code == 2 and message in said


@slow
def test_what_the_program_cannot_read_or_write(program, pieces, pieces_model):
    answer = pieces.translate(["the"])[0].text.encode()
    for rest in (b"\3", b"\3\0\0\0t"):
        question = b"\3\0\0\0the" + rest
        flags = ["--framed", "--threads", "2"]
        code, out, said = ask_program(program, pieces_model, question, *flags)
        assert code == 1 and "the input ends early" in said
        assert out == len(answer).to_bytes(4, "little") + answer
    with open("/dev/full", "wb") as full:
        code, _, said = ask_program(program, pieces_model, b"the\n", stdout=full)
    assert code == 1 and "cannot be written" in said
