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

# Scores to model: what somebody reads who wants to know how it all works ...
READ_THROUGH = (
    "layers/scores layers/attention layers/local_attention layers/cells "
    "layers/decoder_cell layers/stacked_cell layers/attentional_output "
    "layers/input_feeding_cell layers/decoder layers/encoder models/seq2seq"
).split()

# ... and what these import that nobody need open on the way, and why.
NEED_NOT_BE_OPENED = {
    "layers/fast_recurrence": "computes what plain_scan does, faster, on TensorFlow",
    "layers/cudnn": "computes what RecurrentLayers.scan_layer does, faster, on a GPU",
    "layers/sources": "what a decoder asks of one source or several: shapes alone",
    "layers/monotonic_attention": "an option, off by default: made, not built upon",
    "layers/attention_call": "the call as Keras has it; decoders call attend instead",
    "layers/attention_inputs": "likewise: what a layer is called with",
    "layers/checked_layer": "likewise: sentences for what is no tensor",
    "layers/memory": "four tensors by name",
    "layers/normalizers": "functions such as masked_softmax, which say what they do",
    "layers/nested": "how from_config rebuilds what a layer was given",
    "layers/score_modes": "a table: the scores by name",
    "layers/quantization": "an option, off by default: how weights are stored",
    "layers/pointer_generator": "an option, off by default: made, not built upon",
    "layers/coverage_loss": "an option, off by default: made, not built upon",
    "layers/feeding": "an option, off by default: what the next input is",
    "layers/feeding_loop": "likewise: the loop of a decoder that has a feeding",
    "models/restricted": "an option of searches: made, not built upon",
    "models/cast_weights": "for searches in mixed precision: called, not built upon",
    "training/fused_model": "what fit does; to its subclasses it is a keras.Model",
    "config/presets": "the papers' figures, a table",
    "config/fields": "types such as Rate, which say what they check",
    "checks": "functions such as check_rate, likewise",
    "compat": "functions such as get_keras_mask, which say what they do",
    "special_ids": "four numbers",
    "types": "names for Any",
}


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


def test_the_way_from_scores_to_model_is_short():
    """At most 17 files and 2,450 lines of code, with all that one must open."""
    skipped = {PACKAGE / f"{name}.py" for name in NEED_NOT_BE_OPENED}
    assert all(path.exists() for path in skipped)
    found, left = set(), [PACKAGE / f"{name}.py" for name in READ_THROUGH]
    while left:
        path = left.pop()
        if path not in found | skipped:
            found.add(path)
            left += imported_by(path)
    lines = {str(path.relative_to(PACKAGE)): lines_of_code(path) for path in found}
    assert len(lines) <= 17 and sum(lines.values()) <= 2450, lines
