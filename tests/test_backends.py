"""The layers and `fit` on JAX and PyTorch, where these are installed; weights go over.

A backend is chosen when Keras is imported, so that each has a process of its own.
"""

import importlib.util
import json
import re

import numpy as np
import pytest
from processes import ROOT, python

from keras_luong.models import build

MODELS = {
    "small": {
        **{"num_layers": 2, "cell_type": "layer_norm_lstm"},
        **{"word_dropout": 0.1, "memory_dropout": 0.1, "recurrent_dropout": 0.1},
    },
    "luong2015-local-p-general": {"num_layers": 1, "window": 2},
    "bahdanau2015": {"encoder_units": 8},
    "gnmt": {"num_layers": 2},
    "cho2014": {"cell_type": "gru"},
    "sutskever2014": {"num_layers": 2},
    "vaswani2017-base": {"num_layers": 1, "num_heads": 2, "feedforward_units": 16},
}
LAYERS = (
    "attention attention_call attention_properties cells decoder docstrings encoder "
    "feeding functional_equals_eager layer_inputs losses normalizers pointers "
    "quantization scores"
).split()

# Trains each model, saves its weights, prints losses and what it says of a batch.
TRAIN = """
import json, sys
import keras, numpy as np
import keras_luong as kl
from keras_luong.models import build
from keras_luong.training.optimizers import make_optimizer

source = np.array([[4, 5, 6, 3], [7, 3, 0, 0]])
target = np.array([[2, 4, 5], [2, 6, 0]])
labels = np.array([[4, 5, 3], [6, 3, 0]])
inputs, weights = {"source": source, "target": target}, (labels != 0) / 5.0
results = {}
for name, changes in json.loads(sys.argv[1]).items():
    keras.utils.set_random_seed(1)
    model = build(name, 9, 8, units=8, dropout=0.1, **changes)
    model.compile(
        make_optimizer("adam", 0.01, clip_norm=1.0),
        kl.SequenceCrossentropy(0.1),
        metrics=[kl.Perplexity(), kl.TokenAccuracy()],
    )
    history = model.fit(
        inputs, labels, sample_weight=weights, epochs=8, verbose=0
    ).history
    model.save_weights(f"{sys.argv[2]}/{name}.weights.h5")
    memory, state = model.encode(source)
    logits, _, _ = model.step(target[:, :1], state, memory)
    results[name] = {
        "loss": history["loss"],
        "perplexity": history["perplexity"],
        "logits": keras.ops.convert_to_numpy(model(inputs)).tolist(),
        "first": keras.ops.convert_to_numpy(logits).tolist(),
    }
print(json.dumps(results))
"""


def on(backend, *arguments, cwd=ROOT, timeout=600):
    """What a process prints whose Keras has that backend."""
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    options = {"environment": {"KERAS_BACKEND": backend}, "timeout": timeout}
    return python(*arguments, cwd=cwd, **options).stdout


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_models_train_there_and_their_weights_load_here(backend, tmp_path):
    out = on(backend, "-c", TRAIN, json.dumps(MODELS), str(tmp_path))
    results = json.loads(out.splitlines()[-1])
    source = np.array([[4, 5, 6, 3], [7, 3, 0, 0]])
    target = np.array([[2, 4, 5], [2, 6, 0]])
    for name, changes in MODELS.items():
        said = results[name]
        assert said["loss"][-1] < said["loss"][0]
        assert said["perplexity"][-1] < said["perplexity"][0]
        model = build(name, 9, 8, units=8, dropout=0.1, **changes)
        model.load_weights(tmp_path / f"{name}.weights.h5")
        logits = model({"source": source, "target": target})
        memory, state = model.encode(source)
        first, _, _ = model.step(target[:, :1], state, memory)
        np.testing.assert_allclose(logits, said["logits"], atol=1e-5, err_msg=name)
        np.testing.assert_allclose(first, said["first"], atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_what_is_trained_on_jax_is_exported_from_tensorflow(tmp_path):
    """The page that says so; `test_documents.py` runs it in one process, on one."""
    page = (ROOT / "docs" / "jax.md").read_text("utf-8")
    train, export, serve = re.findall(r"```python\n(.*?)```", page, re.S)
    for backend, code in (("jax", train), ("tensorflow", export + serve)):
        said = on(backend, "-c", code, cwd=tmp_path).splitlines()
        for wanted in re.findall(r"^print\(.*\)  # (.*)$", code, re.M):
            assert wanted in said


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_the_layers_tests_pass_on_jax(name, monkeypatch):
    """JAX compiles each operation for each shape: what it compiled is kept."""
    kept = {"MIN_COMPILE_TIME_SECS": "0", "MIN_ENTRY_SIZE_BYTES": "0"}
    for option, value in kept.items():
        monkeypatch.setenv(f"JAX_PERSISTENT_CACHE_{option}", value)
    folder = ROOT / ".pytest_cache" / "jax"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(folder))
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    on("jax", "-m", "pytest", *options, f"tests/test_{name}.py", timeout=1500)
