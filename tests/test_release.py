"""What a release says of itself is so everywhere, and its packages are reproducible."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import keras_luong
import keras_luong_edge

tomllib = pytest.importorskip("tomllib")  # Python 3.11

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BADGE = r"img\.shields\.io/badge/(\S+?)-blue\)"


def requirement(name):
    (found,) = (x for x in PROJECT["dependencies"] if re.match(rf"{name}\W", x))
    return found


def test_there_is_one_version():
    """It is written in the package; what must repeat it says the same."""
    version = keras_luong.__version__
    assert "version" not in PROJECT and "version" in PROJECT["dynamic"]
    cited = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^version: (.*)$", cited, re.M) == [version]
    web = json.loads((ROOT / "export" / "web" / "package.json").read_text("utf-8"))
    assert web["version"] == keras_luong_edge.__version__ == version
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_badges_are_true():
    licence, python, keras = re.findall(BADGE, README)
    assert licence.replace("--", "-") == f"licence-{PROJECT['license']}"
    tags = [x.rpartition(" ")[2] for x in PROJECT["classifiers"] if ":: 3." in x]
    assert python == f"python-{tags[0]}_to_{tags[-1]}"
    assert PROJECT["requires-python"] == f">={tags[0]}"
    least, most = re.search(r">=3\.(\d+),<3\.(\d+)", requirement("keras")).groups()
    assert keras == f"keras-3.{least}_to_3.{int(most) - 1}"


def test_what_is_needed_is_said_with_a_range():
    """And with a reason beside it."""
    extras = PROJECT["optional-dependencies"].values()
    for name in [*PROJECT["dependencies"], *(x for extra in extras for x in extra)]:
        assert name.startswith("keras_luong[") or re.search(r">=.*<", name), name


def test_make_has_the_commands_of_the_readme():
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
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    pages = list(tmp_path.rglob("index.html"))
    assert len(pages) > 40
    page = (tmp_path / "attention" / "index.html").read_text("utf-8")
    assert page.count("<math") > 10 and "\\frac" not in re.sub(
        "<math.*?</math>", "", page
    )
    for path in pages:
        loaded = re.findall(
            r'(?:src|rel="stylesheet" href)="([^"]+)"', path.read_text()
        )
        assert not [x for x in loaded if "//" in x], path  # nothing from elsewhere
    assert (tmp_path / "search" / "search_index.json").stat().st_size > 100_000


@pytest.mark.slow
def test_pictures_of_attentions_are_drawn(tmp_path, monkeypatch):
    """As they are in docs/images: the same files, in number and name."""
    pytest.importorskip("matplotlib").use("agg")
    path = ROOT / "docs" / "site" / "draw_attentions.py"
    spec = importlib.util.spec_from_file_location("draw_attentions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(tmp_path)
    drawn = {x.name for x in tmp_path.iterdir()}
    assert drawn == {x.name for x in (ROOT / "docs/images").glob("attention_*.png")}


@pytest.mark.slow
def test_packages_are_the_same_each_time(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        command = [sys.executable, ROOT / "export" / "packages.py", folder]
        done = subprocess.run(command, capture_output=True, text=True)
        if "No matching distribution" in done.stderr + done.stdout:
            pytest.skip("pip reaches no index")
        assert done.returncode == 0, done.stderr[-2000:]
    one, two = ({x.name: x.read_bytes() for x in f.iterdir()} for f in folders)
    assert len(one) == 4 and one == two
    for name in one:
        assert licences(folders[0] / name), name


def licences(path):
    """The files of licences in a package."""
    if path.suffix == ".whl":
        names = zipfile.ZipFile(path).namelist()
    else:
        names = tarfile.open(path).getnames()
    return [name for name in names if name.endswith("/LICENSE")]
