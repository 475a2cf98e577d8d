import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

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


PACKAGE = Path(keras_luong.__file__).parent

#: A central file, and how many of the library's own it may lean on, directly or not.
LEANS_ON = {"layers/input_feeding_cell": 99, "decoding/beam": 99}


def imported_by(path):
    """The files of this package that a file imports."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(
            "keras_luong"
        ):
            module = PACKAGE.parent / node.module.replace(".", "/")
            names = [f"{module / alias.name}.py" for alias in node.names]
            for name in (f"{module}.py", *names):
                if Path(name).exists():
                    yield Path(name)


def lines_of_code(path):
    """How many lines have code: no comments, docstrings, blanks."""
    text = path.read_text("utf-8")
    nothing = ast.Module, ast.ClassDef, ast.FunctionDef
    documented = [x for x in ast.walk(ast.parse(text)) if isinstance(x, nothing)]
    docstrings = {
        line
        for node in documented
        if ast.get_docstring(node) is not None
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.string.strip() and token.type != tokenize.COMMENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


@pytest.mark.parametrize("name", LEANS_ON)
def test_a_central_file_leans_on_few(name):
    start = PACKAGE / f"{name}.py"
    found, left = set(), [start]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += imported_by(path)
    assert len(found - {start}) <= LEANS_ON[name], sorted(map(str, found))
