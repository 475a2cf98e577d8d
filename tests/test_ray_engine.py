"""Ray's engine says what the local one says, whoever is killed while it works."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from commands import options, run
from odd_rows import ROWS
from odd_text import odd_translator
from small_translator import sentencepiece_translator, written_run

from keras_luong import progress
from keras_luong.cli import translate_ray, translators
from keras_luong.files import write_lines
from keras_luong.runs import ray_engine
from keras_luong.runs import synthetic as pooled_translator
from keras_luong.runs.ray_engine import Pool, check_ray
from keras_luong.runs.shards import Shards
from keras_luong.runs.synthetic import Rereadable

ROOT = Path(__file__).parents[1]
ODD = (
    b"\xef\xbb\xbfthe red dog\r\n\n  \nthe\rblue \xff\xfe cat\n"
    b"in\xe2\x80\xa8the house\n"
    b"\xef\xbb\xbfa byte order mark, later\n\x1f\x8bthe dog\nthe\0cat\n" + b"the " * 99
)
WORDS = ["--window", "16", "--batch_size", "4", "--workers", "2", "--engine", "ray"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A run whose translations differ."""
    return written_run(tmp_path_factory.mktemp("run"), sentencepiece_translator()).path


@pytest.fixture
def source(tmp_path):
    lines = [f"the {a} {b} is {i}" for i in range(20) for a in ("red", "blue")
             for b in ("dog", "cat")]  # fmt: skip
    file = tmp_path / "in.en"
    file.write_bytes(ODD + b"\n" + "\n".join(lines).encode())
    return file


def locally(path, source, *words):
    """What the local engine writes, a window at a time as Ray's."""
    out = source.with_name("local")
    sizes = [*WORDS[:4], "--input", source]
    run("translate", path, *sizes, *words, "--output", out)
    return out.read_bytes()


def command(path, source, out, *words):
    """The command in a process of its own, which can be killed."""
    code = "from keras_luong.cli.main import main; main()"
    argv = ["translate", path, "--input", source, "--output", out, *WORDS, *words]
    python_path = os.pathsep.join([str(ROOT), str(ROOT / "export" / "edge")])
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, argv)],
        env={**os.environ, "PYTHONPATH": python_path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=source.parent,
    )


def finished(process):
    """What it has told, which is ours: Ray itself says nothing."""
    said, told = process.communicate()
    assert process.returncode == 0, told
    ours = re.compile(r"note: |[\d,]+ of [\d,]+ lines in ")  # a line a minute
    assert said == "" and all(map(ours.match, told.splitlines())), told
    return told


def wait_for(condition, process, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)


def in_this_process(shards, todo, make, pool):
    """What the pool does, by one worker and without Ray."""
    worker = ray_engine._Worker(make, shards)
    for number in todo:
        row = worker({"shard": [number]})
        if row["error"][0]:
            raise RuntimeError(row["error"][0])


@pytest.fixture
def without_ray(monkeypatch):
    for module in (translate_ray, pooled_translator):
        monkeypatch.setattr(module, "check_ray", lambda pool: None)
        monkeypatch.setattr(module, "work_on", in_this_process)


@pytest.fixture(scope="module")
def ray():
    """Ray, started as the command does, for several tests."""
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    ray_engine._before_ray()
    ray_engine._start(Pool(workers=2))
    yield ray
    ray.shutdown()


def workers_of(process):
    """The processes of the pool that a command has started."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [x for x in children if is_worker(x)]


def is_worker(child):
    try:
        return "MapWorker" in "".join(child.cmdline())
    except psutil.Error:  # it has just ended
        return False


def test_without_ray_it_says_what_to_install(path, source, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(ImportError, match=r"pip install 'keras_luong\[ray\]'"):
        check_ray(Pool())
    with pytest.raises(ImportError, match="--engine ray needs Ray Data"):
        run("translate", path, "--input", source, "--output", "out", *WORDS)
    assert not source.with_name("out.parts").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        (["--engine", "ray"], "needs --input and --output"),
        (["--engine", "ray", "--input", "a", "--output", "b", "--pictures", "p"],
         "--pictures are drawn by --engine local only"),
        (["--workers", "2"], "--workers needs --engine ray"),
        (["--address", "auto"], "--address needs --engine ray"),
        (["--column", "text"], "--column needs --engine ray"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        options("translate", "run", *words)
    assert message in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
@pytest.mark.usefixtures("without_ray")
def test_a_pipe_is_refused_as_it_is_read_twice(path, tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    words = ["--input", pipe, "--output", tmp_path / "out", *WORDS]
    with pytest.raises(ValueError, match="reads a text twice.*pipe"):
        run("translate", path, *words)


def test_parquet_is_not_overwritten(path, tmp_path):
    (parquet := tmp_path / "a.parquet").write_bytes(b"PAR1")
    words = ["--input", parquet, "--output", parquet, *WORDS]
    with pytest.raises(ValueError, match="overwrite the input"):
        run("translate", path, *words)
    assert parquet.read_bytes() == b"PAR1"


def same_by_both(path, source, capsys, *words):
    """Runs both engines, and compares what they write and what they tell."""
    said = locally(path, source, *words)
    told = capsys.readouterr().err
    out = source.with_name("out")
    run("translate", path, "--input", source, "--output", out, *WORDS, *words)
    assert out.read_bytes() == said and said.count(b"\n") > 80
    assert capsys.readouterr().err == told
    assert not source.with_name("out.parts").exists()


CASES = [
    ("--scores", "--alignments"),
    ("--n_best", "2", "--constraints", "must.tsv", "--terms", "terms.tsv"),
    ("--beam_width", "1", "--max_source_length", "3"),
]


@pytest.fixture
def phrases(source, monkeypatch):
    monkeypatch.chdir(source.parent)
    write_lines("must.tsv", ["cat", "", "dog\tred", *[""] * 86])
    write_lines("terms.tsv", ["dog\tcat"])


@pytest.mark.parametrize(
    "words", [CASES[0], *(pytest.param(x, marks=pytest.mark.slow) for x in CASES[1:])]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("without_ray", "phrases")
def test_shards_say_what_the_whole_says(path, source, capsys, words):
    same_by_both(path, source, capsys, *words)


@pytest.mark.slow
@pytest.mark.parametrize("words", CASES[:2])
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("ray", "phrases")
def test_the_pool_says_what_one_says(path, source, capsys, words, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", float("inf"))  # however slow a machine is
    same_by_both(path, source, capsys, *words)


@pytest.mark.slow
@pytest.mark.usefixtures("without_ray")
def test_gzip_in_and_out(path, source):
    packed, out = source.with_name("in.en.gz"), source.with_name("out.gz")
    packed.write_bytes(gzip.compress(source.read_bytes()))
    run("translate", path, "--input", packed, "--output", out, *WORDS)
    assert gzip.decompress(out.read_bytes()) == locally(path, source)


@pytest.mark.slow
@pytest.mark.usefixtures("without_ray")
@pytest.mark.parametrize("content, lines", [(b"", 0), (b"a", 1), (b"\n\n", 2)])
def test_ends_of_files(path, tmp_path, content, lines):
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_bytes(content)
    run("translate", path, "--input", source, "--output", out, *WORDS)
    assert out.read_bytes().count(b"\n") == lines


@pytest.mark.slow
@pytest.mark.usefixtures("without_ray")
def test_parquet(path, source, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    texts = ["the red dog", None, "the blue cat"] * 10
    table = pa.table({"id": [*range(30)], "text": texts})
    pq.write_table(table, tmp_path / "in.parquet")
    words = ["--input", tmp_path / "in.parquet", *WORDS, "--scores", "--alignments"]
    run("translate", path, *words, "--output", tmp_path / "out.parquet")
    out = pq.read_table(tmp_path / "out.parquet")
    names = ["id", "text", "translation", "score", "alignment"]
    assert out.column_names == names
    assert out.select(["id", "text"]).equals(table)
    source.write_text("".join(f"{text or ''}\n" for text in texts))
    for row, line in zip(
        out.to_pylist(),
        locally(path, source, *words[-2:]).decode().splitlines(),
        strict=True,
    ):
        fields = [row["translation"], f"{row['score'] or 0:.4f}", row["alignment"]]
        assert row["text"] is None or fields == line.split(" ||| ")
        assert (row["text"] is None) == (row["translation"] is None)
    with pytest.raises(ValueError, match="--output must be Parquet"):
        run("translate", path, *words, "--output", tmp_path / "out.en")
    with pytest.raises(SystemExit):
        run("translate", path, *words[:2], "--output", tmp_path / "out.en")


@pytest.mark.usefixtures("without_ray", "phrases")
@pytest.mark.parametrize("name", ["in.en", "must.tsv"])
def test_text_that_changes_before_it_is_cut_is_refused(path, source, name, monkeypatch):
    plan = translate_ray._plan

    def changing(*arguments):
        planned = plan(*arguments)
        file = source.with_name(name)
        file.write_bytes(b"\n".join(reversed(file.read_bytes().splitlines())))
        return planned

    monkeypatch.setattr(translate_ray, "_plan", changing)
    source.write_text("the red dog\n" * 88 + "a cat")
    out = source.with_name("out")
    words = ["--input", source, "--output", out, *WORDS, "--constraints", "must.tsv"]
    with pytest.raises(OSError, match="was changed meanwhile"):
        run("translate", path, *words)
    assert not [*source.parent.glob("out.parts/0*")]


def test_texts_that_change_before_a_pool_has_them_are_refused(without_ray, tmp_path):
    read = iter([["a", "b"], ["b", "a"]])
    pool = pooled_translator.pooled(None, None, tmp_path / "parts", {}, Pool())
    with pytest.raises(OSError, match="was changed meanwhile"), pool as translator:
        list(translator.stream(Rereadable(lambda: iter(next(read)))))


def written_parquet(path, texts):
    """A Parquet file of these texts."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"text": texts}), path)
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("without_ray")
def test_parquet_that_changes_meanwhile_is_refused(path, tmp_path, monkeypatch):
    """The texts are read again when their translations are written."""
    source = written_parquet(tmp_path / "in.parquet", ["the red dog", "a cat"])

    def changing(*arguments):
        in_this_process(*arguments)
        written_parquet(source, ["a cat", "the red dog"])

    monkeypatch.setattr(translate_ray, "work_on", changing)
    words = ["--input", source, "--output", tmp_path / "out.parquet", *WORDS]
    with pytest.raises(OSError, match="was changed meanwhile"):
        run("translate", path, *words)
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("without_ray")
def test_who_is_killed_while_parts_are_joined_leaves_nothing(
    path, tmp_path, monkeypatch
):
    def killed(*arguments):
        raise KeyboardInterrupt

    source = written_parquet(tmp_path / "in" / "a.parquet", ["the red dog", "a cat"])
    out = tmp_path / "out"
    words = ["--input", source.parent, "--output", out, *WORDS]
    (tmp_path / ".9-0123abcd.out").mkdir()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Shards, "remove", killed)
        run("translate", path, *words)
    said = (out / "a.parquet").read_bytes()
    with pytest.raises(ValueError, match="differs in beam_width"):
        run("translate", path, *words, "--beam_width", "2")
    monkeypatch.setattr(translate_ray, "work_on", killed)  # all is done
    (out / "b.parquet").write_bytes(said)
    with pytest.raises(FileExistsError, match="must be new for a folder: .*out exists"):
        run("translate", path, *words)  # it is not what was written
    (out / "b.parquet").unlink()
    run("translate", path, *words)
    assert (out / "a.parquet").read_bytes() == said
    assert {x.name for x in tmp_path.iterdir()} == {"in", "out"}
    with pytest.raises(FileExistsError, match="must be new for a folder: .*out exists"):
        run("translate", path, *words)


@pytest.mark.slow
@pytest.mark.usefixtures("without_ray")
def test_other_input_or_options_are_refused(path, source, monkeypatch):
    def killed(*arguments):
        raise KeyboardInterrupt

    out = source.with_name("out")
    words = ["--input", source, "--output", out, *WORDS]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(translate_ray, "work_on", killed)
        run("translate", path, *words)
    with pytest.raises(ValueError, match="differs in beam_width. .*rm -r .*out.parts"):
        run("translate", path, *words, "--beam_width", "2")
    text = source.read_bytes()
    source.write_bytes(text + b"\nmore")
    with pytest.raises(ValueError, match="differs in input. "):
        run("translate", path, *words)
    source.write_bytes(text)
    (litter := out.with_name(".9-0123abcd.out")).write_bytes(b"half")
    run("translate", path, *words, "--workers", "1")  # which may change
    assert out.read_bytes() == locally(path, source) and not litter.exists()


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["without_ray", "ray"])
def test_corpora_are_the_same_by_both_engines(pool, tmp_path, monkeypatch, request):
    request.getfixturevalue(pool)
    monkeypatch.chdir(tmp_path)
    for language, lines in {"en": ["the red dog", "a cat"], "de": ["a", "b"]}.items():
        for split in ("train", "validation"):
            write_lines(f"data/{split}.{language}", lines * 4)
    write_lines("mono.en", ["the cat", "the red cat is red", "the blue dog"])
    write_lines("mono.de", ["x", "y"])
    translator = sentencepiece_translator()
    written_run("run", translator, {"source": "en", "target": "de", "data": "data"})
    for out, words in {"local": [], "ray": WORDS[4:]}.items():
        run("distill", "run", "--out", f"{out}/distilled", *words)
        back = ["--data", "data", "--mono", "mono.en", "--sampling"]
        run("backtranslate", "run", *back, "--out", f"{out}/back", *words)
    files = sorted(Path("local").rglob("*.*"))
    assert len(files) == 8
    for file in files:
        other = Path("ray", *file.parts[1:])
        assert file.read_bytes() == other.read_bytes()
    assert len([*Path("ray").iterdir()]) == 2  # and no parts


@pytest.mark.slow
def test_a_killed_driver_goes_on_by_the_same_command(path, source):
    pytest.importorskip("ray.data")
    source.write_bytes(source.read_bytes() + b"\nthe red dog" * 3000)
    said = locally(path, source).splitlines()
    out, parts = source.with_name("out"), source.with_name("out.parts")
    process = command(path, source, out)
    wait_for(lambda: len([*parts.glob("0*.json")]) > 2, process)
    workers = workers_of(process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not psutil.wait_procs(workers, timeout=60)[1]  # they go with it
    done = sorted(parts.glob("0*.json"))
    assert 2 < len(done) < len(said) // 16 and not out.exists()
    for part in done:  # whatever is done is taken as it is
        part.with_suffix(".out").write_bytes(b"done before\n" * 16)
        first = 16 * int(part.stem)
        said[first : first + 16] = [b"done before"] * 16
    finished(command(path, source, out))
    assert out.read_bytes().splitlines() == said and not parts.exists()


@pytest.mark.slow
def test_a_killed_worker_loses_nothing(path, source):
    pytest.importorskip("ray.data")
    source.write_bytes(source.read_bytes() + b"\nthe red dog" * 3000)
    out, parts = source.with_name("out"), source.with_name("out.parts")
    process = command(path, source, out)
    wait_for(lambda: any(parts.glob("0*.json")), process)
    workers = workers_of(process)
    assert len(workers) == 2
    workers[0].send_signal(signal.SIGKILL)
    assert len([*parts.glob("0*.json")]) < 100  # of 193

    def replaced():
        now = workers_of(process)
        return len(now) == 2 and workers[0] not in now

    wait_for(replaced, process)
    assert "that are not UTF-8: 2," in finished(process)
    assert out.read_bytes() == locally(path, source)


@pytest.mark.slow
def test_a_lost_machine_loses_nothing(path, source):
    """A cluster of two machines, of which one is killed: here, of two raylets."""
    pytest.importorskip("ray.data")
    from ray.cluster_utils import Cluster

    source.write_bytes(source.read_bytes() + b"\nthe red dog" * 3000)
    out, parts = source.with_name("out"), source.with_name("out.parts")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        other = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        process = command(path, source, out, "--address", cluster.address)
        wait_for(lambda: len([*parts.glob("0*.json")]) > 4, process)
        cluster.remove_node(other, allow_graceful=False)
        assert len([*parts.glob("0*.json")]) < 150  # of 193
        finished(process)
    finally:
        cluster.shutdown()
    assert out.read_bytes() == locally(path, source)


def test_a_cluster_that_is_not_there():
    with pytest.raises(OSError, match="a running Ray cluster. Received: 127.0.0.1:1"):
        ray_engine._check_address("127.0.0.1:1")
    ray_engine._check_address("auto")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_cluster_that_is_there(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"{host} is no address of this machine")
    with server:
        name, port = f"[{host}]" if ":" in host else host, server.getsockname()[1]
        ray_engine._check_address(f"{name}:{port}")
        ray_engine._check_address(f"ray://{name}:{port}")


@pytest.mark.usefixtures("without_ray")
def test_a_run_that_changes_meanwhile_is_refused(path, source, tmp_path, monkeypatch):
    copy = shutil.copytree(path, tmp_path / "copy")

    def changing(shards, todo, make, pool):
        with (copy / "run.json").open("a") as file:
            file.write(" ")
        in_this_process(shards, todo, make, pool)

    monkeypatch.setattr(translate_ray, "work_on", changing)
    with pytest.raises(RuntimeError, match="copy has changed since the work began"):
        run("translate", copy, "--input", source, "--output", tmp_path / "out", *WORDS)
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A run to which each letter counts, and what the commands load of it."""
    translator = odd_translator()
    ready = SimpleNamespace(with_search=lambda n_best: translator)
    return written_run(tmp_path_factory.mktemp("odd"), translator).path, ready


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=[pytest.mark.slow] * (x == "byte order mark"))
        for x in ROWS
        if len(ROWS[x].content) < 9999
    ],
)
@pytest.mark.usefixtures("without_ray")
def test_odd_text(odd, name, tmp_path, monkeypatch):
    path, ready = odd
    for module in (translators, translate_ray):
        monkeypatch.setattr(module, "load_translator", lambda options: ready)
    source, out = tmp_path / "odd", tmp_path / "out"
    source.write_bytes(ROWS[name].content)
    words = ["--input", source, "--output", out, *WORDS, "--window", "2"]
    if ROWS[name].lines is None:
        with pytest.raises(ValueError, match=str(source)):
            run("translate", path, *words)
        assert not out.exists() and not out.with_name("out.parts").exists()
        return
    run("translate", path, *words)
    assert out.read_bytes() == locally(path, source, "--window", "2")
    assert out.read_bytes().count(b"\n") == len(ROWS[name].lines)


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
def test_what_a_worker_cannot_do_is_told(path, source, monkeypatch):
    def damaged(shards, todo, make, pool):
        shards.path(todo[0], "in").unlink()
        ray_engine.work_on(shards, todo, make, pool)

    monkeypatch.setattr(translate_ray, "work_on", damaged)
    out, parts = source.with_name("out"), source.with_name("out.parts")
    words = ["--input", source, "--output", out, *WORDS]
    with pytest.raises(RuntimeError, match="A worker failed. FileNotFoundError: .*in"):
        run("translate", path, *words)
    assert parts.is_dir() and not out.exists()
    monkeypatch.undo()
    run("translate", path, *words)
    assert out.read_bytes() == locally(path, source)


def test_a_shard_that_another_worker_has_done_is_done(tmp_path):
    """Ray gives it again where the first worker only seems to be dead."""
    shards = Shards(tmp_path / "parts", lines=1, size=1)
    shards.folder.mkdir()
    shards.cut([0], **{"in": [b"a"]})

    def meanwhile(shards, number, told):
        shards.finish(number, [b"by the other"], {})
        yield from shards.read(number, "in")

    in_this_process(shards, [0], lambda: meanwhile, Pool())
    assert [*shards.results()] == [b"by the other"]


@pytest.mark.slow
def test_what_ray_cannot_do_is_told(ray, tmp_path, monkeypatch):
    def mapped(*arguments):
        yield ray.get(ray.remote(max_retries=0)(lambda: os.abort()).remote())

    monkeypatch.setattr(ray_engine, "_mapped", mapped)
    with pytest.raises(RuntimeError, match="Ray failed: The worker died"):
        ray_engine.work_on(Shards(tmp_path, 1, 1), [0], None, Pool())
