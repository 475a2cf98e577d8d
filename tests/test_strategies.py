"""Training on several devices and machines is training on one; and fills each."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from processes import free_ports, start

import keras_luong as kl
from keras_luong.training import batch_size, strategies
from keras_luong.training.batch_size import largest_batch_tokens
from keras_luong.training.optimizers import make_optimizer

# Trains a small model on batches of uneven lengths, prints weights and logs.
TRAIN = """
import itertools, json, os, sys, tempfile, types
import keras, tensorflow as tf, keras_luong as kl
from keras_luong.runs import callbacks
from keras_luong.text.batches import evaluation_batches
from keras_luong.training.metrics import Perplexity, TokenAccuracy
from keras_luong.training.optimizers import make_optimizer
from keras_luong.training.strategies import make_strategy

callbacks.time = types.SimpleNamespace(perf_counter=itertools.count().__next__)
name, devices = sys.argv[1], int(sys.argv[2])
if name == "mirrored":
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, logical)
strategy = make_strategy(name)
lines = ["edcba"[i % 4 : i % 4 + i % 3 + 1] for i in range(25)]
sides = {"source": map(" ".join, lines), "target": map(" ".join, lines[::-1])}
pairs = tf.data.Dataset.from_tensor_slices({k: list(x) for k, x in sides.items()})
tokenizers = kl.TokenizerPair(kl.WordTokenizer([*"abcde"]))
data = evaluation_batches(pairs, tokenizers, batch_tokens=15).repeat(2)
options, shard = tf.data.Options(), tf.data.experimental.AutoShardPolicy
policy = shard.OFF if devices == 1 else shard.DATA
options.experimental_distribute.auto_shard_policy = policy
with strategy.scope():
    keras.utils.set_random_seed(0)
    # A GRU's bias has two axes, and does not decay.
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4, dropout=0.0, cell_type="gru"))
    metrics = perplexity, _ = [Perplexity(), TokenAccuracy()]
    optimizer = make_optimizer("sgd", 0.5, 0.1, weight_decay=0.2)
    model.compile(optimizer, kl.SequenceCrossentropy(0.1), metrics=metrics)
log = callbacks.EpochLog(tempfile.mkdtemp(), perplexity)
data = data.with_options(options)
fit = model.fit(data, validation_data=data, epochs=2, verbose=0, callbacks=[log])
print(json.dumps({
    "replicas": strategy.num_replicas_in_sync,
    "weights": [v.numpy().ravel().tolist() for v in model.trainable_variables],
    "history": fit.history,
}), flush=True)
os._exit(0)  # TensorFlow's cluster threads may hang at a normal exit
"""


def begun(strategy, devices, **environment):
    quiet = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return start("-c", TRAIN, strategy, devices, environment=quiet | environment)


def result(process):
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.strip().splitlines()[-1])


@pytest.mark.slow
def test_two_replicas_train_like_one():
    """Two devices, and two machines."""
    one = result(begun("one", 1))
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    tasks = [{"type": "worker", "index": index} for index in range(2)]
    configs = [json.dumps({"cluster": cluster, "task": task}) for task in tasks]
    workers = [begun("multiworker", 2, TF_CONFIG=config) for config in configs]
    try:
        others = [result(begun("mirrored", 2)), *map(result, workers)]
    finally:
        for worker in workers:
            worker.kill()
    assert others[1]["weights"] == others[2]["weights"]
    for other in others:
        assert (one["replicas"], other["replicas"]) == (1, 2)
        for a, b in zip(one["weights"], other["weights"], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
        assert one["history"].keys() == other["history"].keys()
        for name, values in one["history"].items():
            found = other["history"][name]
            np.testing.assert_allclose(found, values, rtol=1e-5, err_msg=name)
    # Tokens in one tick.
    assert len(set(one["history"]["target_tokens_per_second"])) == 1


def test_what_keras_reduces_before_training_is_a_replicas():
    strategy, rows = strategies.Mirrored(["CPU:0"]), tf.constant([[1, 2]])
    nest = strategy.reduce("SUM", ({"x": rows}, tf.constant(3)), axis=None)
    np.testing.assert_array_equal(nest[0]["x"], rows)
    assert int(nest[1]) == 3
    assert float(strategy.reduce("SUM", tf.constant(2.5), axis=0)) == 2.5
    assert float(strategy.reduce("SUM", tf.constant([2.5, 1.0]), axis=0)) == 3.5


def test_default_without_gpus():
    if len(tf.config.list_logical_devices("GPU")) > 1:
        pytest.skip("this machine has several GPUs")
    for name in ("auto", "one"):
        assert strategies.make_strategy(name) is tf.distribute.get_strategy()
    with pytest.raises(ValueError, match="mirrored.*'tpu'"):
        strategies.make_strategy("tpu")


def machine(task_type, task_id, **cluster):
    """As a strategy of several workers tells it."""
    spec = SimpleNamespace(as_dict=lambda: cluster)
    task = {"task_type": task_type, "task_id": task_id}
    resolver = SimpleNamespace(**task, cluster_spec=lambda: spec)
    return SimpleNamespace(cluster_resolver=resolver)


ONE_OF_TWO = machine("worker", 0, worker=["one:1", "other:1"])


def test_machines_have_numbers_and_a_chief_is_the_first():
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    assert strategies.worker_index(machine("chief", 0, **cluster)) == 0
    assert strategies.worker_index(machine("worker", 1, **cluster)) == 2
    assert strategies.worker_index(machine("worker", 1, worker=["a:1", "b:1"])) == 1
    assert strategies.worker_index(strategies.make_strategy("one")) == 0


LOST = [
    ("from /job:worker/task:1: bad:\n/job:worker/task:1", "(worker 1) was lost"),
    ("from /job:worker/task:2: /job:worker/replica:0/task:1", "A machine was"),
    ("/job:worker/replica:0/task:0 was refused", "A machine was lost"),
]


@pytest.mark.parametrize("error, who", LOST)
def test_a_lost_machine_is_told(error, who):
    with pytest.raises(RuntimeError) as raised, strategies.together(ONE_OF_TWO):
        raise tf.errors.UnavailableError(None, None, error)
    assert who in str(raised.value) and "Start the same command" in str(raised.value)


def test_none_leaves_before_all_are_done(monkeypatch):
    order = []
    monkeypatch.setattr(strategies, "gather_rows", lambda *_: order.append("all"))
    with strategies.together(ONE_OF_TWO):
        order.append("this one")
    assert order == ["this one", "all"]
    with pytest.raises(ValueError), strategies.together(ONE_OF_TWO):
        raise ValueError
    assert order == ["this one", "all"]  # one that fails does not wait


def test_one_machine_has_nobody_to_lose():
    error = tf.errors.UnavailableError(None, None, "")
    with (
        pytest.raises(tf.errors.UnavailableError),
        strategies.together(strategies.make_strategy("one")),
    ):
        raise error


# Batches as large as a device's memory.


@pytest.fixture(scope="module")
def model():
    model = kl.Seq2Seq(kl.Seq2SeqConfig(20, 20, units=4))
    model.compile(make_optimizer("adam", 0.1), kl.SequenceCrossentropy())
    return model


@pytest.mark.slow
def test_leaves_the_training_as_it_was(model):
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    before = [np.array(variable) for variable in variables]
    assert largest_batch_tokens(model, max_length=9, most=1024) == 1024
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable, value, variable.path)


def test_stops_before_the_memory_is_full(model, monkeypatch):
    """A step takes 100 bytes and 1 a token; 2048 tokens would be too much."""
    tried = []
    monkeypatch.setattr(batch_size, "_train", lambda m, r, n: tried.append(r * n))
    monkeypatch.setattr(batch_size, "_memory_in_use", lambda: 50)
    monkeypatch.setattr(batch_size, "_peak_memory", lambda: 150 + tried[-1])
    assert largest_batch_tokens(model, max_length=7, memory=2200) == 1024
    assert tried == [512, 1024]


def test_a_step_that_fails_has_not_fitted():
    def try_step(tokens):
        if tokens > 1000:
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return 0

    assert batch_size._largest(try_step, 100, 10_000, None) == 800
    assert batch_size._largest(try_step, 100, 300, None) == 200
    assert batch_size._largest(try_step, 2000, 10_000, None) is None


def test_measures_the_memory():
    before = batch_size._memory_in_use()
    taken = np.ones(2**25, np.uint8)
    assert 0.9 * taken.size < batch_size._peak_memory() - before < 2 * taken.size
    assert batch_size._free_memory() > taken.size


WRONG = [
    ({"memory": 1}, ValueError, "smaller model.*1 bytes"),
    ({"memory": 0}, ValueError, "memory.*0"),
    ({"most": 0.5}, TypeError, "most.*0.5"),
    ({"max_length": 0}, ValueError, "max_length.*0"),
]


@pytest.mark.parametrize("options, error, message", WRONG)
def test_refuses(model, options, error, message, monkeypatch):
    # A step may take no more than what tests before it have given back to the process.
    monkeypatch.setattr(batch_size, "_memory_in_use", lambda: 0)
    monkeypatch.setattr(batch_size, "_train", lambda *_: None)
    with pytest.raises(error, match=message):
        largest_batch_tokens(model, **options)
