import subprocess
import sys

import pytest

import keras_luong

WHAT_ONLY_SOME_NEED = (
    "tensorflow_text",
    "tensorflow_datasets",
    "sentencepiece",
    "sacrebleu",
    "babel",
    "num2words",
    "tensorboard",
    "ai_edge_litert",
)


def test_every_public_name_is_there_and_documented():
    for name in keras_luong.__all__:
        assert getattr(keras_luong, name).__doc__.strip(), name


def test_importing_loads_nothing_that_only_some_need():
    code = (
        "import sys, tensorflow, keras; before = set(sys.modules); "
        "import keras_luong; print(*(set(sys.modules) - before))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    assert "keras_luong.layers.attention" in loaded
    assert not loaded & set(WHAT_ONLY_SOME_NEED)


@pytest.mark.slow
def test_importing_is_as_quiet_as_tensorflow():
    def lines_of(module):
        result = subprocess.run(
            [sys.executable, "-c", f"import tensorflow, keras, {module}"],
            capture_output=True,
            text=True,
            check=True,
        )
        return len((result.stdout + result.stderr).splitlines())

    assert lines_of("keras_luong") <= lines_of("sys")
