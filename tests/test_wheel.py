"""The packages, and the wheels alone: every command, from training to the edge.

Downloads TensorFlow (600 MB, or from pip's cache) and takes minutes; where pip reaches
no index, it is skipped.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PAIRS = [
    ("It is half past two.", "Es ist halb drei."),
    ("It is July 3, 2019.", "Es ist der 3. Juli 2019."),
    ("The bus leaves at noon.", "Der Bus fährt um zwölf ab."),
    ("Two tickets cost $5.", "Zwei Karten kosten 5 $."),
]
SIZE = """
    --preset small --units 8 --vocab_size 300 --limit_examples 100 --batch_tokens 400
    --optimizer adam --epochs 2 --keep_epochs 2 --eval_sentences 5 --beam_width 2
    --max_length 50
"""


def call(*command, **options):
    """What a command prints: nothing of this repository or its Python is near it."""
    env = {x: y for x, y in os.environ.items() if not x.startswith("PYTHON")}
    command = list(map(str, command))
    done = subprocess.run(command, env=env, capture_output=True, **options)
    out, err = (x.decode(errors="replace") for x in (done.stdout, done.stderr))
    assert done.returncode == 0, f"{command}\n{out[-2000:]}\n{err[-4000:]}"
    return out


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The wheels and source distributions of what is committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    return built(tmp_path_factory.mktemp("dist"))


def built(folder):
    command = [sys.executable, ROOT / "export" / "packages.py", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    if "No matching distribution" in done.stderr + done.stdout:
        pytest.skip("pip reaches no index")
    assert done.returncode == 0, done.stderr[-2000:]
    return sorted(folder.iterdir())


def environment(path, requirement):
    """Makes an environment that holds one wheel and what it needs, and no more."""
    call(sys.executable, "-m", "venv", path, cwd="/")
    pip = [path / "bin" / "python", "-m", "pip"]
    call(*pip, "install", "--quiet", requirement, cwd="/")
    call(*pip, "check", cwd="/")
    return path / "bin"


@pytest.fixture(scope="module")
def environments(tmp_path_factory, packages):
    """The folders of `keras-luong` and `keras-luong-edge`, each alone."""
    main, edge = (path for path in packages if path.suffix == ".whl")
    folder = tmp_path_factory.mktemp("wheel")
    ours = environment(folder / "main", f"{main}[demo]")
    return ours, environment(folder / "edge", edge)


@pytest.fixture
def work(tmp_path):
    """A directory with a small corpus, in which a user works."""
    (tmp_path / "texts").mkdir()
    for side, lines in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
        for split in ("train", "val", "test"):
            path = tmp_path / "texts" / f"{split}.{side}"
            path.write_text("\n".join(lines) + "\n")
    return tmp_path


SOURCE = "\n".join(source for source, _ in PAIRS).encode() + b"\n\n"


def test_packages_are_the_same_each_time(packages, tmp_path):
    again = {path.name: path.read_bytes() for path in built(tmp_path / "again")}
    assert {path.name: path.read_bytes() for path in packages} == again
    assert len(again) == 4


def test_what_the_packages_hold(packages):
    web = ROOT / "export" / "web"
    for path in packages:
        if path.suffix != ".whl":
            names = tarfile.open(path).getnames()
            assert [x for x in names if x.endswith("/LICENSE")], path
            continue
        names = set(zipfile.ZipFile(path).namelist())
        package = path.name.partition("-")[0]
        folder = web.with_name("edge") if package.endswith("edge") else ROOT
        assert {f"{package}/py.typed", f"{package}/__init__.py"} <= names
        *_, info = sorted({name.split("/")[0] for name in names}, key=len)
        assert info.startswith(f"{package}-") and info.endswith(".dist-info")
        assert f"{info}/licenses/LICENSE" in names
        assert {name.split("/")[0] for name in names} == {package, info}
        assert not [name for name in names if "test" in name]
        files = [f for x in ("py", "pyi") for f in folder.glob(f"{package}/**/*.{x}")]
        assert files and {x.relative_to(folder).as_posix() for x in files} <= names
        page = {x.partition("/export/page/")[2] for x in names} - {""}
        if folder == ROOT:
            wanted = {f"src/{x.name}" for x in (web / "src").iterdir()}
            wanted |= {"build.js", "index.html", "package-lock.json", "LICENSE"}
            assert page > wanted
        assert not [x for x in page if x.startswith(("node_modules", "dist", "tests"))]


def test_environments_hold_no_more_than_they_need(environments):
    code = "import importlib.util as u; print(*(x for x in {} if u.find_spec(x)))"
    names = ["tensorflow", "keras", "keras_luong", "keras_luong_edge", "pytest"]
    words = ["-c", code.format(names)]
    found = [call(x / "python", *words, cwd="/").split() for x in environments]
    assert found == [["tensorflow", "keras", "keras_luong"], ["keras_luong_edge"]]


#: What is typed in turn, and what is said.
TEXTS = "--data texts --source en --target de"
TEST = "texts/test.en texts/test.de"
SAID = [
    (f"train --run_dir run --data phrases {SIZE}", "keras-luong translate run"),
    ("translate run", r"\A(.*\n){5}\Z"),
    (f"evaluate run --test {TEST}", "BLEU"),
    (f"score run {TEST}", r"\A(-\d+\.\d{4}\n){4}\Z"),
    ("export run models/run --check noon", "models/run/1: 'noon' -> "),
    ("verify run texts/test.en --saved_model models/run/1", "All agree."),
    ("average run --last 2", "is the average of 2"),
    ("compare run run-average", r"\| run "),
    (f"shortlist run {TEXTS} --out list.npz", ""),
    ("translate run --shortlist list.npz", r"\A(.*\n){5}\Z"),
    (f"distill run run-average {TEXTS} --out distilled", "distilled: every sentence"),
    ("export run run.tflite", "run.tflite, .* not tried out, which needs keras-luong"),
    ("check texts --source en --target de", "train: 4 pairs"),
    (f"tune run {TEXTS} --beam_widths 1 --length_penalties 0 1", "run goes|run transl"),
]


def test_every_command_works(environments, work):
    ours, on_edge = environments
    web = ("export run --web site --check noon", "http.server --bind 127.0.0.1")
    for words, wanted in [*SAID, *[web] * (shutil.which("npm") is not None)]:
        said = call(ours / "keras-luong", *words.split(), cwd=work, input=SOURCE)
        assert re.search(wanted, said), f"{words}: {said}"
        if words == "translate run":
            expected = said
    lines = (work / "distilled" / "train.de").read_text().splitlines()
    assert len(lines) == 2 * len(PAIRS)
    said = call(on_edge / "keras-luong-edge", "run.tflite", cwd=work, input=SOURCE)
    assert said == expected and len(set(said.splitlines())) > 1
