"""Training on several devices and machines is training on one."""

from __future__ import annotations

import functools
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
from keras_luong.training.strategies import (
    Mirrored,
    make_strategy,
    together,
    worker_index,
)

# Trains a small model on batches of uneven lengths, prints weights and logs.
TRAIN = """
import itertools, json, sys, tempfile, types
import keras, numpy as np, tensorflow as tf
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.runs import callbacks
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import Perplexity, TokenAccuracy
from keras_luong.training.optimizers import make_optimizer
from keras_luong.training.strategies import make_strategy

callbacks.time = types.SimpleNamespace(perf_counter=itertools.count().__next__)
name, devices, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
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
    weights = ((labels != 0) / (labels != 0).sum()).astype("float32")
    batches.append((np.roll(labels, 1, axis=1), labels, weights))
def copies():  # TensorFlow may write into the memory of an array that it was given
    return (tuple(array.copy() for array in batch) for batch in batches)
dtypes = "int32", "int32", "float32"
signature = tuple(tf.TensorSpec([None, None], dtype) for dtype in dtypes)
data = tf.data.Dataset.from_generator(copies, output_signature=signature)
options, shard = tf.data.Options(), tf.data.experimental.AutoShardPolicy
policy = shard.OFF if devices == 1 else shard.DATA
options.experimental_distribute.auto_shard_policy = policy
data = data.with_options(options)
with strategy.scope():
    keras.utils.set_random_seed(0)
    if kind == "seq2seq":  # a GRU's bias has two axes, and does not decay
        model = Seq2Seq(Seq2SeqConfig(9, 9, units=4, dropout=0.0, cell_type="gru"))
        data = data.map(lambda x, y, w: ({"source": y, "target": x}, y, w)).repeat(2)
        optimizer = make_optimizer("sgd", 0.5, 0.1, weight_decay=0.2)
    else:
        model = keras.Sequential([
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(9, 4),
            keras.layers.LSTM(4, return_sequences=True),
            keras.layers.Dense(9),
        ])
        optimizer = make_optimizer("adam", 1e-2, None)
    perplexity = Perplexity()
    metrics = [perplexity, TokenAccuracy()]
    model.compile(optimizer, SequenceCrossentropy(0.1), metrics=metrics)
log = callbacks.EpochLog(tempfile.mkdtemp(), perplexity)
fit = model.fit(data, validation_data=data, epochs=2, verbose=0, callbacks=[log])
assert len(set(fit.history["target_tokens_per_second"])) == 1  # tokens in one tick
print(json.dumps({
    "replicas": strategy.num_replicas_in_sync,
    "weights": [v.numpy().ravel().tolist() for v in model.trainable_variables],
    "history": fit.history,
}), flush=True)
import os; os._exit(0)  # TensorFlow's cluster threads may hang at a normal exit
"""


def start(strategy, devices, kind, **environment):
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


@functools.cache
def alone(kind):
    return result(start("one", 1, kind))


def mirrored(kind):
    return [result(start("mirrored", 2, kind))]


def two_workers(kind):
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            ports.append(probe.getsockname()[1])
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    tasks = [{"type": "worker", "index": index} for index in range(2)]
    configs = [json.dumps({"cluster": cluster, "task": task}) for task in tasks]
    workers = [start("multiworker", 2, kind, TF_CONFIG=config) for config in configs]
    try:
        return list(map(result, workers))
    finally:
        for worker in workers:
            worker.kill()


@pytest.mark.slow
@pytest.mark.parametrize("train", [mirrored, two_workers])
@pytest.mark.parametrize("kind", ["adam", "seq2seq"])
def test_two_replicas_train_like_one(kind, train):
    """`adam` is of a plain Keras model, whose loss Keras reports in its own way."""
    one, two, *others = alone(kind), *train(kind)
    assert (one["replicas"], two["replicas"]) == (1, 2)
    for other in others:
        assert two["weights"] == other["weights"]
    for a, b in zip(one["weights"], two["weights"], strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    names = ["perplexity", "token_accuracy", "val_perplexity"]
    names += ["loss", "val_loss"] if kind == "seq2seq" else []
    for name in (*names, "target_tokens_per_second"):
        np.testing.assert_allclose(
            one["history"][name], two["history"][name], rtol=1e-5, err_msg=name
        )


def test_what_keras_reduces_before_training_is_a_replicas():
    strategy, rows = Mirrored(["CPU:0"]), tf.constant([[1, 2]])
    nest = strategy.reduce("SUM", ({"x": rows}, tf.constant(3)), axis=None)
    np.testing.assert_array_equal(nest[0]["x"], rows)
    assert int(nest[1]) == 3
    assert float(strategy.reduce("SUM", tf.constant(2.5), axis=0)) == 2.5
    assert float(strategy.reduce("SUM", tf.constant([2.5, 1.0]), axis=0)) == 3.5


@pytest.mark.parametrize("name", ["auto", "one"])
def test_default_without_gpus(name):
    if len(tf.config.list_logical_devices("GPU")) > 1:
        pytest.skip("this machine has several GPUs")
    assert make_strategy(name) is tf.distribute.get_strategy()


def test_refuses_unknown_names():
    with pytest.raises(ValueError, match="mirrored.*'tpu'"):
        make_strategy("tpu")


def machine(task_type, task_id, **cluster):
    """As a strategy of several workers tells it."""
    spec = SimpleNamespace(as_dict=lambda: cluster)
    resolver = SimpleNamespace(
        task_type=task_type, task_id=task_id, cluster_spec=lambda: spec
    )
    return SimpleNamespace(cluster_resolver=resolver)


ONE_OF_TWO = machine("worker", 0, worker=["one:1", "other:1"])


def test_machines_have_numbers_and_a_chief_is_the_first():
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    assert worker_index(machine("chief", 0, **cluster)) == 0
    assert worker_index(machine("worker", 1, **cluster)) == 2
    assert worker_index(machine("worker", 1, worker=["a:1", "b:1"])) == 1
    assert worker_index(make_strategy("one")) == 0


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
    with pytest.raises(RuntimeError) as raised, together(ONE_OF_TWO):
        raise tf.errors.UnavailableError(None, None, error)
    assert who in str(raised.value) and "Start the same command" in str(raised.value)


def test_none_leaves_before_all_are_done(monkeypatch):
    order = []
    monkeypatch.setattr(strategies, "gather_rows", lambda *_: order.append("all"))
    with together(ONE_OF_TWO):
        order.append("this one")
    assert order == ["this one", "all"]
    with pytest.raises(ValueError), together(ONE_OF_TWO):
        raise ValueError
    assert order == ["this one", "all"]  # one that fails does not wait


def test_one_machine_has_nobody_to_lose():
    error = tf.errors.UnavailableError(None, None, "")
    with pytest.raises(tf.errors.UnavailableError), together(make_strategy("one")):
        raise error
