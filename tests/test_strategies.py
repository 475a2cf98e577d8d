from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from keras_luong.training import strategies
from keras_luong.training.strategies import make_strategy, together

# Trains a small model on batches of uneven lengths, prints weights and logs.
TRAIN = """
import itertools, json, sys, tempfile, types
import keras, numpy as np, tensorflow as tf
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import Perplexity, TokenAccuracy
from keras_luong.training.optimizers import make_optimizer
from keras_luong.training import strategies
from keras_luong.training.strategies import make_strategy, together

from keras_luong.runs import callbacks
callbacks.time = types.SimpleNamespace(perf_counter=itertools.count().__next__)

name, devices = sys.argv[1], int(sys.argv[2])
if name != "multiworker":
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, logical)
strategy = make_strategy(name)

rng = np.random.default_rng(0)
batches = []
for rows, width in ((5, 3), (6, 5), (1, 2), (5, 4), (3, 3)):
    labels = rng.integers(1, 9, (rows, width)).astype("int32")
    for row in labels[1:]:
        row[rng.integers(1, width + 1):] = 0
    inputs = np.roll(labels, 1, axis=1)
    weights = ((labels != 0) / (labels != 0).sum()).astype("float32")
    batches.append((inputs, labels, weights))
signature = tuple(
    tf.TensorSpec([None, None], dtype) for dtype in ("int32", "int32", "float32")
)
def copies():  # TensorFlow may write into the memory of an array that it was given
    return (tuple(array.copy() for array in batch) for batch in batches)
data = tf.data.Dataset.from_generator(copies, output_signature=signature)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = (
    tf.data.experimental.AutoShardPolicy.OFF
    if devices == 1 else tf.data.experimental.AutoShardPolicy.DATA
)
data = data.with_options(options)
arguments = ("adam", 1e-2, None) if sys.argv[3] == "adam" else ("sgd", 0.5, 0.1)
decay = 0.2 if sys.argv[3] == "weight_decay" else None
changes = {"dropout": 0.0}
if sys.argv[3] == "weight_decay":  # not of a GRU's bias, which has two axes
    changes["cell_type"] = "gru"
with strategy.scope():
    keras.utils.set_random_seed(0)
    if sys.argv[3] != "adam":
        model = Seq2Seq(Seq2SeqConfig(9, 9, units=4, **changes))
        as_pairs = lambda x, y, w: ({"source": y, "target": x}, y, w)
        data = data.map(as_pairs).repeat(2)
    else:
        model = keras.Sequential([
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(9, 4),
            keras.layers.LSTM(4, return_sequences=True),
            keras.layers.Dense(9),
        ])
    perplexity = Perplexity()
    model.compile(
        make_optimizer(*arguments, weight_decay=decay),
        SequenceCrossentropy(0.1),
        metrics=[perplexity, TokenAccuracy()],
    )
log = callbacks.EpochLog(tempfile.mkdtemp(), perplexity)
fit = model.fit(data, validation_data=data, epochs=2, verbose=0, callbacks=[log])
history = fit.history
assert len(set(history["target_tokens_per_second"])) == 1  # tokens in one tick
print(json.dumps({
    "replicas": strategy.num_replicas_in_sync,
    "weights": [v.numpy().ravel().tolist() for v in model.trainable_variables],
    "history": history,
}), flush=True)
import os; os._exit(0)  # TensorFlow's cluster threads may hang at a normal exit
"""


def start(strategy, devices, kind="adam", **environment):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = [root, os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, strategy, str(devices), kind],
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.strip().splitlines()[-1])


def assert_same_training(one, other, losses):
    for a, b in zip(one["weights"], other["weights"], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    for key in (
        *(["loss", "val_loss"] if losses else []),
        "perplexity",
        "token_accuracy",
        "val_perplexity",
        "target_tokens_per_second",
    ):
        np.testing.assert_allclose(
            one["history"][key], other["history"][key], rtol=1e-5, err_msg=key
        )


@pytest.mark.parametrize(
    "kind",
    [
        "adam",
        pytest.param("clip", marks=pytest.mark.slow),
        pytest.param("weight_decay", marks=pytest.mark.slow),
    ],
)
def test_two_replicas_train_like_one(kind):
    """`adam` is of a plain Keras model, the others of a `Seq2Seq`."""
    one, two = map(result, [start("one", 1, kind), start("mirrored", 2, kind)])
    assert (one["replicas"], two["replicas"]) == (1, 2)
    assert_same_training(one, two, losses=kind != "adam")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adam", "clip"])
def test_two_workers_train_like_one(kind):
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            ports.append(probe.getsockname()[1])
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    workers = [
        start(
            "multiworker",
            2,
            kind,
            TF_CONFIG=json.dumps(
                {"cluster": cluster, "task": {"type": "worker", "index": index}}
            ),
        )
        for index in range(2)
    ]
    try:
        first, second = map(result, workers)
    finally:
        for worker in workers:
            worker.kill()
    assert first["replicas"] == 2
    assert_same_training(result(start("one", 1, kind)), first, losses=kind == "clip")
    for a, b in zip(first["weights"], second["weights"], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["auto", "one"])
def test_default_without_gpus(name):
    if len(tf.config.list_logical_devices("GPU")) > 1:
        pytest.skip("this machine has several GPUs")
    assert make_strategy(name) is tf.distribute.get_strategy()


def test_refuses_unknown_names():
    with pytest.raises(ValueError, match="mirrored.*'tpu'"):
        make_strategy("tpu")


class OneOfTwo:
    """As a strategy of two workers tells it; this is the first."""

    class cluster_resolver:
        task_type, task_id = "worker", 0

        def cluster_spec():
            cluster = {"worker": ["one:1", "other:1"]}
            return SimpleNamespace(as_dict=lambda: cluster)


@pytest.mark.parametrize(
    "error, who",
    [
        (
            "from /job:worker/task:1: unhealthy:\n/job:worker/replica:0/task:1",
            "A machine (worker 1) was lost",
        ),
        ("from /job:worker/task:2: /job:worker/replica:0/task:1", "A machine was"),
        ("/job:worker/replica:0/task:0 was refused", "A machine was lost"),
    ],
)
def test_a_lost_machine_is_told(error, who):
    with pytest.raises(RuntimeError) as raised, together(OneOfTwo):
        raise tf.errors.UnavailableError(None, None, error)
    assert who in str(raised.value) and "Start the same command" in str(raised.value)


def test_none_leaves_before_all_are_done(monkeypatch):
    order = []
    monkeypatch.setattr(strategies, "gather_rows", lambda *_: order.append("all"))
    with together(OneOfTwo):
        order.append("this one")
    assert order == ["this one", "all"]
    with pytest.raises(ValueError), together(OneOfTwo):
        raise ValueError
    assert order == ["this one", "all"]  # one that fails does not wait


def test_one_machine_has_nobody_to_lose():
    error = tf.errors.UnavailableError(None, None, "")
    with pytest.raises(tf.errors.UnavailableError), together(make_strategy("one")):
        raise error
