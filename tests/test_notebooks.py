"""The notebooks run from top to bottom, and are small."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 200_000


def cells(path, kind):
    found = json.loads(path.read_text("utf-8"))["cells"]
    return [x for x in found if x["cell_type"] == kind]


def test_there_are_two():
    assert [x.stem for x in NOTEBOOKS] == ["attention_tour", "forecasting"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_small_and_readable_on_its_own(path):
    """Its outputs are stored, without warnings and without names of folders."""
    assert path.stat().st_size < LARGEST
    outputs = [x for cell in cells(path, "code") for x in cell["outputs"]]
    assert any("image/png" in x.get("data", {}) for x in outputs)
    assert not [x for x in outputs if x.get("name") == "stderr"]
    assert not re.search(r"/(home|root|tmp|work|usr)/", json.dumps(outputs))
    words = " ".join("".join(cell["source"]) for cell in cells(path, "markdown"))
    assert words.startswith("# ") and "Where to go on" in words
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", words):
        assert (FOLDER / link).exists(), link


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_code_is_python(path):
    for cell in cells(path, "code"):
        ast.parse("".join(cell["source"]))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path, tmp_path):
    for name in ("nbmake", "ipykernel", "matplotlib", "babel"):
        pytest.importorskip(name)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "pytest", "--nbmake", "--nbmake-timeout=1200"]
    done = subprocess.run(
        [*command, "-q", "-p", "no:cacheprovider", "-c", "/dev/null", path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
