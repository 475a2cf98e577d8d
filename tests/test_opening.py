"""A run directory that is opened for one training."""

from __future__ import annotations

import pytest
import tensorflow as tf
from small_training import write_corpus

from keras_luong.config.training import TrainingConfig
from keras_luong.runs.opening import open_run


@pytest.fixture(params=[None, "news"])
def config(request, tmp_path):
    write_corpus(tmp_path, train=100, val=10)
    place = {"data": str(tmp_path), "source": "xx", "target": "yy"}
    return TrainingConfig.from_preset("small", **place, tag=request.param)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (sorted, r"^\S+train.xx and \S+, the train split, changed since .* differ\.$"),
        (
            lambda lines: lines[:9],
            r"^\S+train.yy has 100 lines and \S+train.xx has 9: ",
        ),
    ],
)
def test_a_corpus_that_changes_meanwhile_is_told(config, change, told, tmp_path):
    """Not as an error of tf.data's, with a traceback of its own."""
    with pytest.raises(OSError, match=told), open_run(config, tmp_path / "run") as run:
        pairs = run.training_pairs
        assert len(list(pairs)) == len(list(pairs)) == 100
        path = tmp_path / "train.xx"
        path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
        list(pairs)


def test_another_error_stays_what_it_is(config, tmp_path):
    error = tf.errors.ResourceExhaustedError(None, None, "no memory is left")
    with (
        pytest.raises(tf.errors.ResourceExhaustedError),
        open_run(config, tmp_path / "r"),
    ):
        raise error
