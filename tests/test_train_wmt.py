"""The example that makes a translator of layers: short, of public names, and right."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "train_wmt.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("train_wmt", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_steps_are_those_that_are_trained(example):
    luong = example.LuongModel(9, 9, units=4, depth=2)
    source, target = np.array([[4, 5, 3], [6, 3, 0]]), np.array([[2, 7], [2, 8]])
    logits = luong.teacher_forced()({"source": source, "target": target})
    memory, states = luong.encode(source)
    for t in range(2):
        step, states, _ = luong.step(target[:, t : t + 1], states, memory)
        np.testing.assert_allclose(step[:, 0], logits[:, t], atol=1e-5)


def test_is_short_and_of_public_names():
    text = SCRIPT.read_text("utf-8")
    assert len(text.splitlines()) <= 100
    nodes = [*ast.walk(ast.parse(text))]
    modules = {x.module for x in nodes if isinstance(x, ast.ImportFrom)}
    assert not any(str(name).startswith("keras_luong") for name in modules)
    names = [ast.unparse(x) for x in nodes if isinstance(x, ast.Attribute)]
    packages = {x.split(".")[1] for x in names if x.startswith("kl.")}
    functions = {"export_saved_model"}
    assert {x for x in packages if x.islower()} == functions | {"text", "training"}


@pytest.mark.slow
def test_learns_translates_and_exports_the_embedded_corpus(example, tmp_path, capsys):
    pytest.importorskip("babel")
    example.main("phrases", tmp_path, **example.PHRASES)
    said = capsys.readouterr().out
    (bleu,) = re.findall(r"^BLEU = ([\d.]+)", said, re.M)
    assert float(bleu) > 20 and "→" in said.splitlines()[-1]
    assert (tmp_path / "saved_model" / "1" / "saved_model.pb").is_file()
