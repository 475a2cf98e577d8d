"""The package: what importing it does, what it says of itself, and how it is built."""

import importlib.util
import json
import os
import re

import keras
import numpy as np
import pytest
from processes import ROOT, python

import keras_luong as kl
import keras_luong_edge
from keras_luong.progress import quietly

PACKAGE = ROOT / "keras_luong"
README = (ROOT / "README.md").read_text("utf-8")
SOME_NEED = set(
    "tensorflow_text tensorflow_datasets sentencepiece sacrebleu babel num2words "
    "tensorboard ai_edge_litert".split()
)


def test_importing_does_not_wait_for_tensorflow():
    code = "import sys, keras_luong, keras_luong.text; print(*sys.modules)"
    loaded = set(python("-c", code).stdout.split())
    assert "keras_luong.text" in loaded
    assert not loaded & {"tensorflow", "keras", "numpy"}


LOADING = """
import sys, tensorflow, keras
before = {*sys.modules}
import keras_luong as kl
kl.LuongAttention
print(*{*sys.modules} - before)
for path in sys.argv[1:]:
    print(type(keras.saving.load_model(path)).__name__)
"""


@pytest.mark.slow
def test_the_package_alone_loads_what_keras_looks_up_and_no_more(tmp_path):
    """All classes that a saved model may name, and nothing that only some need."""
    layer = keras.Sequential([keras.Input([4, 3]), kl.RecurrentEncoder(2)])
    cell = kl.InputFeedingDecoderCell(4, kl.LuongAttention("dot"))
    inputs, memory = keras.Input([None, 3]), keras.Input([None, 4])
    decoder = kl.InputFeedingDecoder(cell)(inputs, memory)
    functional = keras.Model([inputs, memory], decoder)
    functional.compile(loss=kl.SequenceCrossentropy())
    models = [layer, functional, kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))]
    paths = [tmp_path / f"{number}.keras" for number in range(len(models))]
    for path, model in zip(paths, models, strict=True):
        model.save(path)
    done = python("-c", LOADING, *paths, check=False)
    loaded, *found = done.stdout.splitlines()
    assert found == ["Sequential", "Functional", "Seq2Seq"], done.stderr
    loaded = set(loaded.split())
    assert not loaded & SOME_NEED
    for path in PACKAGE.rglob("*.py"):
        if "\n@keras.saving.register_keras_serializable(" in path.read_text("utf-8"):
            assert ".".join(path.relative_to(ROOT).with_suffix("").parts) in loaded
    plain = python("-c", "import tensorflow, keras").stderr  # it is as quiet as these
    ours = python("-c", "import tensorflow, keras, keras_luong").stderr
    assert ours.count("\n") <= plain.count("\n")


@pytest.mark.slow
def test_what_loads_runs_knows_the_models_by_itself():
    """As `keras-luong average` needs, which imports no more."""
    code = "import keras, keras_luong.runs.load_save\n"
    code += "print(keras.saving.get_registered_object('keras_luong>Seq2Seq'))"
    assert "Seq2Seq" in python("-c", code).stdout


@pytest.mark.parametrize("name", ["layers.input_feeding_cell", "decoding.beam"])
def test_a_central_file_leans_on_few(name):
    grimp = pytest.importorskip("grimp")  # import-linter's
    graph = grimp.build_graph("keras_luong", cache_dir=None)
    assert 0 < len(graph.find_upstream_modules(f"keras_luong.{name}")) <= 10


def script(path):
    """A script as a module; it is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def project():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_there_is_one_version(project):
    """It is written in the package; what must repeat it says the same."""
    version = kl.__version__
    assert "version" not in project and "version" in project["dynamic"]
    cited = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^version: (.*)$", cited, re.M) == [version]
    web = json.loads((ROOT / "export" / "web" / "package.json").read_text("utf-8"))
    assert web["version"] == keras_luong_edge.__version__ == version
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_what_readme_and_requirements_say(project):
    """The badges, the targets of make; and each requirement has a range."""
    badge = r"img\.shields\.io/badge/(\S+?)-blue\)"
    licence, python_versions, keras_versions = re.findall(badge, README)
    assert licence.replace("--", "-") == f"licence-{project['license']}"
    tags = [x.rpartition(" ")[2] for x in project["classifiers"] if ":: 3." in x]
    assert python_versions == f"python-{tags[0]}_to_{tags[-1]}"
    assert project["requires-python"] == f">={tags[0]}"
    needed = "\n".join(project["dependencies"])
    least, most = re.search(r"^keras>=3\.(\d+),<3\.(\d+)", needed, re.M).groups()
    assert keras_versions == f"keras-3.{least}_to_3.{int(most) - 1}"
    for extra in ([needed], *project["optional-dependencies"].values()):
        for name in "\n".join(extra).splitlines():
            assert name.startswith("keras_luong[") or re.search(r">=.*<", name), name
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"demo", "test", "docs", "dist"} <= targets
    assert set(re.findall(r"(?:^|`)make (\w+)(?:`|  )", README, re.M)) <= targets


def test_notices():
    """What the page embeds is named where it is, and NOTICE leads there."""
    notice = (ROOT / "NOTICE").read_text("utf-8")
    for path in re.findall(r"\b(?:export|keras_luong)/[\w/]+\.\w+", notice):
        assert (ROOT / path).exists(), path
    web = json.loads((ROOT / "export" / "web" / "package.json").read_text("utf-8"))
    named = (ROOT / "export" / "web" / "THIRD_PARTY.txt").read_text("utf-8")
    shipped = set(web["dependencies"]) - {"esbuild"}  # which builds it
    assert all(name in named for name in shipped)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    for name in ("material", "mkdocstrings", "latex2mathml"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"there is no {name}: pip install -e .[docs]")
    words = ["-m", "mkdocs", "build", "--strict", "-d", tmp_path]
    done = python(*words, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    pages = list(tmp_path.rglob("index.html"))
    assert len(pages) > 40
    page = (tmp_path / "attention" / "index.html").read_text("utf-8")
    assert page.count("<math") > 10
    assert "\\frac" not in re.sub("<math.*?</math>", "", page)
    source = re.compile(r'(?:src|rel="stylesheet" href)="([^"]+)"')
    for path in pages:
        loaded = source.findall(path.read_text())
        assert not [x for x in loaded if "//" in x], path  # nothing from elsewhere
    assert (tmp_path / "search" / "search_index.json").stat().st_size > 100_000


@pytest.mark.slow
def test_pictures_of_attentions_are_drawn(tmp_path):
    """As they are in docs/images: the same files, in number and name."""
    pytest.importorskip("matplotlib").use("agg")
    script(ROOT / "docs" / "site" / "draw_attentions.py").main(tmp_path)
    drawn = {x.name for x in tmp_path.iterdir()}
    assert drawn == {x.name for x in (ROOT / "docs/images").glob("attention_*.png")}


def test_other_libraries_are_kept_quiet_unless_they_fail(capfd, monkeypatch):
    with quietly():
        os.write(2, b"noise")
    assert capfd.readouterr().err == ""
    with pytest.raises(ValueError), quietly():
        os.write(2, b"noise")
        raise ValueError
    assert capfd.readouterr().err == "noise"
    monkeypatch.setattr("sys.stderr", None)
    with quietly():
        pass


TRAIN_WMT = ROOT / "examples" / "train_wmt.py"


def test_a_translator_made_of_layers_is_trained_by_the_steps_of_its_search():
    luong = script(TRAIN_WMT).LuongModel(9, 9, units=4, depth=2)
    source, target = np.array([[4, 5, 3], [6, 3, 0]]), np.array([[2, 7], [2, 8]])
    logits = luong.teacher_forced()({"source": source, "target": target})
    memory, states = luong.encode(source)
    for t in range(2):
        step, states, _ = luong.step(target[:, t : t + 1], states, memory)
        np.testing.assert_allclose(step[:, 0], logits[:, t], atol=1e-5)


@pytest.mark.slow
def test_it_learns_translates_and_exports_the_embedded_corpus(tmp_path, capsys):
    pytest.importorskip("babel")
    module = script(TRAIN_WMT)
    module.main("phrases", tmp_path, **module.PHRASES, epochs=4)
    said = capsys.readouterr().out
    (bleu,) = re.findall(r"^BLEU = ([\d.]+)", said, re.M)
    assert float(bleu) > 20 and "→" in said.splitlines()[-1]
    assert (tmp_path / "saved_model" / "1" / "saved_model.pb").is_file()
