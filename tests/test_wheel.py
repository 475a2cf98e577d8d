"""The wheels alone, in empty environments: every command, from training to the edge.

Downloads TensorFlow (600 MB, or from pip's cache) and takes minutes; where pip reaches
no index, it is skipped.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from keras_luong.cli.command_line import COMMANDS

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
""".split()
HELP_SECONDS = 1.5
CHILDREN = ("children_user", "children_system")


def call(*command, cwd, **options):
    """What a command prints: nothing of this repository or its Python is near it."""
    env = {x: y for x, y in os.environ.items() if not x.startswith("PYTHON")}
    env |= options.pop("env", {})
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, **options
    )
    out, err = (x.decode(errors="replace") for x in (done.stdout, done.stderr))
    assert done.returncode == 0, f"{command}\n{out[-2000:]}\n{err[-4000:]}"
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where everything happens; skips all where pip reaches no index."""
    path = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--retries", "1"]
    tried = [*pip, "--no-deps", "--dest", path / "tried", "filelock"]
    if subprocess.run(tried, capture_output=True).returncode:
        pytest.skip("pip reaches no index")
    return path


@pytest.fixture(scope="module")
def wheels(folder):
    """Both wheels, of a copy: a build leaves files behind, and packs what it finds."""
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=not_sources)
    found = []
    for where in (source, source / "export" / "edge"):
        out = folder / f"dist{len(found)}"
        call(sys.executable, "-m", "build", "--wheel", "--outdir", out, where, cwd="/")
        found += out.glob("*.whl")
    return found


def not_sources(folder, names):
    """What git ignores."""
    patterns = (".*", "build", "*.egg-info", "__pycache__", "node_modules")
    found = shutil.ignore_patterns(*patterns)(folder, names)
    return {*found, "dist", "runs", "site"} if Path(folder) == ROOT else found


def environment(path, requirement):
    """Makes an environment that holds one wheel and what it needs, and no more."""
    call(sys.executable, "-m", "venv", path, cwd="/")
    pip = [path / "bin" / "python", "-m", "pip"]
    call(*pip, "install", "--quiet", requirement, cwd="/")
    call(*pip, "check", cwd="/")
    return path / "bin"


@pytest.fixture(scope="module")
def installed(folder, wheels):
    """The folder of `keras-luong`, with what makes the corpus of phrases."""
    return environment(folder / "main", f"{wheels[0]}[demo]")


@pytest.fixture(scope="module")
def on_edge(folder, wheels):
    """The folder of `keras-luong-edge`."""
    return environment(folder / "edge", wheels[1])


@pytest.fixture(scope="module")
def work(folder):
    """A directory with a small corpus, in which a user works."""
    path = folder / "work"
    (path / "texts").mkdir(parents=True)
    for side, lines in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
        for split in ("train", "val", "test"):
            (path / "texts" / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def keras_luong(installed, work):
    """The command, in the user's directory."""

    def run(*arguments, **options):
        return call(installed / "keras-luong", *arguments, cwd=work, **options)

    return run


@pytest.fixture(scope="module")
def trained(keras_luong, work):
    """A run; what the training printed."""
    said = keras_luong("train", "--run_dir", "run", "--data", "phrases", *SIZE)
    assert "keras-luong translate run" in said
    return work / "run"


@pytest.fixture(scope="module")
def tflite(keras_luong, trained):
    """An export for the edge."""
    keras_luong("export", "run", "run.tflite", "--check", PAIRS[0][0])
    return trained.with_name("run.tflite")


TEXTS = ["--data", "texts", "--source", "en", "--target", "de"]
SOURCE = "\n".join(source for source, _ in PAIRS).encode() + b"\n\n"


def test_what_the_wheels_hold(wheels):
    for wheel, folder, package in zip(
        wheels,
        (ROOT, ROOT / "export" / "edge"),
        ("keras_luong", "keras_luong_edge"),
        strict=True,
    ):
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        assert {f"{package}/py.typed", f"{package}/__init__.py"} <= set(names)
        *_, info = sorted({name.split("/")[0] for name in names}, key=len)
        assert info.startswith(f"{package}-") and info.endswith(".dist-info")
        assert f"{info}/licenses/LICENSE" in names
        top = {name.split("/")[0] for name in names} - {info}
        assert top == {package}
        assert not [name for name in names if "test" in name]
        files = [f for x in ("py", "pyi") for f in folder.glob(f"{package}/**/*.{x}")]
        modules = {x.relative_to(folder) for x in files}
        assert modules and {x.as_posix() for x in modules} <= set(names)


def test_the_wheel_holds_the_sources_of_the_page(wheels):
    page = "keras_luong/export/page/"
    with zipfile.ZipFile(wheels[0]) as archive:
        names = {x.removeprefix(page) for x in archive.namelist() if page in x}
    web = ROOT / "export" / "web"
    sources = {f"src/{x.name}" for x in (web / "src").iterdir()}
    assert names > {*sources, "build.js", "index.html", "package-lock.json", "LICENSE"}
    assert not [x for x in names if x.startswith(("node_modules", "dist", "tests"))]


def test_environments_hold_no_more_than_they_need(installed, on_edge):
    code = "import importlib.util as u; print(*(x for x in {} if u.find_spec(x)))"
    names = ["tensorflow", "keras", "keras_luong", "keras_luong_edge", "pytest"]
    found = [
        call(bin_ / "python", "-c", code.format(names), cwd="/").split()
        for bin_ in (installed, on_edge)
    ]
    assert found == [["tensorflow", "keras", "keras_luong"], ["keras_luong_edge"]]


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_is_quick(command, installed, work):
    """In the processor's seconds, whatever else the machine has to do."""
    words = [installed / "keras-luong", *([command] if command else []), "--help"]
    seconds = []
    for _ in range(5):
        start = os.times()
        call(*words, cwd=work)
        end = os.times()
        user, system = (getattr(end, x) - getattr(start, x) for x in CHILDREN)
        seconds.append(user + system)
    assert statistics.median(seconds) < HELP_SECONDS, seconds


def test_help_does_not_import_tensorflow(installed, work):
    code = "import sys; from keras_luong.cli.main import main; main(['--help'])"
    code += "; print('heavy:', *{'tensorflow', 'keras', 'numpy'} & sys.modules.keys())"
    said = call(installed / "python", "-c", code, cwd=work)
    assert all(command in said for command in COMMANDS)
    assert said.splitlines()[-1].strip() == "heavy:"


def test_translate_evaluate_score(keras_luong, trained):
    said = keras_luong("translate", "run", input=SOURCE)
    assert said.count("\n") == len(PAIRS) + 1
    test = ["--test", "texts/test.en", "texts/test.de"]
    assert "BLEU" in keras_luong("evaluate", "run", *test)
    scores = keras_luong("score", "run", "texts/test.en", "texts/test.de")
    assert len([float(line) for line in scores.splitlines()]) == len(PAIRS)


def test_saved_model(keras_luong, trained, work):
    keras_luong("export", "run", "models/run", "--check", PAIRS[0][0])
    version = work / "models" / "run" / "1"
    assert (version / "saved_model.pb").exists()
    said = keras_luong("verify", "run", "texts/test.en", "--saved_model", version)
    assert "All agree." in said


def test_average_compare(keras_luong, trained, work):
    assert "is the average of 2" in keras_luong("average", "run", "--last", 2)
    assert (work / "run-average" / "run.json").exists()
    assert "| run " in keras_luong("compare", "run", "run-average")


def test_tune_shortlist_distill(keras_luong, trained, work):
    shutil.copytree(trained, work / "tuned")
    tried = ["--beam_widths", 1, "--length_penalties", 0, 1]
    assert "tuned translates with 1" in keras_luong("tune", "tuned", *TEXTS, *tried)
    keras_luong("shortlist", "run", *TEXTS, "--out", "list.npz")
    short = keras_luong("translate", "run", "--shortlist", "list.npz", input=SOURCE)
    assert short.count("\n") == len(PAIRS) + 1
    keras_luong("distill", "run", "tuned", *TEXTS, "--out", "distilled")
    lines = (work / "distilled" / "train.de").read_text().splitlines()
    assert len(lines) == 2 * len(PAIRS)


def test_a_page(keras_luong, trained, work):
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    keras_luong("export", "run", "--web", "site", "--check", PAIRS[0][0])
    names = {x.name for x in (work / "site").iterdir()}
    assert names > {"index.html", "page.js", "worker.js", "model.tflite"}


def test_the_edge_says_what_the_library_says(keras_luong, tflite, on_edge, folder):
    expected = keras_luong("translate", "run", input=SOURCE)
    said = call(on_edge / "keras-luong-edge", tflite, cwd=folder, input=SOURCE)
    assert said == expected and len(set(said.splitlines())) > 1
