"""An environment in which there is nothing else."""

import shutil
import subprocess
import venv
from pathlib import Path

import pytest

EDGE = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_fresh_environment(model, answers, tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    ignored = shutil.ignore_patterns("build", "*.egg-info")
    source = shutil.copytree(EDGE, tmp_path / "source", ignore=ignored)
    pip = [programs / "python", "-m", "pip"]
    done = subprocess.run(
        [*pip, "install", "--quiet", source], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"pip cannot install it: {done.stderr[-300:]}")
    listed = subprocess.run([*pip, "list"], capture_output=True, text=True, check=True)
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    assert "keras-luong-edge" in names
    assert not {"keras", "keras_luong", "tensorflow"} & names
    done = subprocess.run(
        [programs / "keras-luong-edge", model],
        input="".join(x["text"] + "\n" for x in answers),
        capture_output=True,
        cwd=tmp_path,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    expected = "".join(x["hypotheses"][0]["text"] + "\n" for x in answers)
    assert done.stdout == expected
