import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

import keras
import pytest

import keras_luong as kl

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
    for name in kl.__all__:
        assert getattr(kl, name).__doc__.strip(), name


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


PACKAGE = Path(kl.__file__).parent

#: A central file, and how many of the library's own it may lean on, directly or not.
LEANS_ON = {"layers/input_feeding_cell": 10, "decoding/beam": 10}


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


LOADING = """
import sys
import keras
import keras_luong as kl
for path in sys.argv[1:]:
    print(type(keras.saving.load_model(path)).__name__)
"""


def test_saved_models_are_found_by_importing_the_package_alone(tmp_path):
    layer = keras.Sequential([keras.Input([4, 3]), kl.RecurrentEncoder(2)])
    cell = kl.InputFeedingDecoderCell(4, kl.LuongAttention("dot"))
    inputs, memory = keras.Input([None, 3]), keras.Input([None, 4])
    decoder = kl.InputFeedingDecoder(cell)(inputs, memory)
    functional = keras.Model([inputs, memory], decoder)
    functional.compile(loss=kl.SequenceCrossentropy())
    seq2seq = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
    paths = []
    for model in (layer, functional, seq2seq):
        paths.append(tmp_path / f"{len(paths)}.keras")
        model.save(paths[-1])
    done = subprocess.run(
        [sys.executable, "-c", LOADING, *paths], capture_output=True, text=True
    )
    assert done.stdout.split() == ["Sequential", "Functional", "Seq2Seq"], done.stderr


def test_importing_does_not_wait_for_tensorflow():
    code = "import sys, keras_luong, keras_luong.text; print(*sys.modules)"
    code += "; keras_luong.Seq2Seq; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    before, after = (set(line.split()) for line in result.stdout.splitlines())
    assert not before & {"tensorflow", "keras", "numpy"}
    # Then all classes that Keras may look up are there.
    for path in PACKAGE.rglob("*.py"):
        if "\n@keras.saving.register_keras_serializable(" in path.read_text("utf-8"):
            module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
            assert module in after
