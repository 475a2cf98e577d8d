"""A small file of format 1: these tests need neither TensorFlow nor keras_luong.

`format1/model.tflite` is what `export_tflite` of keras_luong 0.1.0 (commit 1176089)
wrote of an untrained model: pieces in, words out, three hypotheses, at most 12 tokens
read. `format1/answers.json` is what its `Translator` said.
"""

import json
import sys
from pathlib import Path

import pytest

from keras_luong_edge import EdgeTranslator

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def model():
    return HERE / "format1" / "model.tflite"


@pytest.fixture(scope="session")
def answers():
    return json.loads((HERE / "format1" / "answers.json").read_text("utf-8"))


@pytest.fixture(scope="session")
def translator(model):
    pytest.importorskip("ai_edge_litert.interpreter")
    return EdgeTranslator(model)


@pytest.fixture
def python(monkeypatch):
    """A Python that finds this package, wherever it starts."""
    monkeypatch.setenv("PYTHONPATH", str(HERE.parent))
    return sys.executable
