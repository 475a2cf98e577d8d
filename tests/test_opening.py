"""A run directory that is opened for one training."""

from __future__ import annotations

import pytest
from small_training import write_corpus

from keras_luong.config.training import TrainingConfig
from keras_luong.runs.opening import opened


def test_a_corpus_that_changes_meanwhile_is_told(tmp_path):
    """Not as an error of tf.data's, with a traceback of its own."""
    write_corpus(tmp_path, train=100)
    languages = {"source": "xx", "target": "yy"}
    config = TrainingConfig.from_preset("small", data=str(tmp_path), **languages)
    with (
        pytest.raises(
            OSError, match=r"train.xx and .* changed since it was read first"
        ),
        opened(config, tmp_path / "run") as run,
    ):
        pairs = run.training_pairs
        assert len(list(pairs)) == len(list(pairs)) > 50
        path = tmp_path / "train.xx"
        path.write_text("".join(sorted(path.read_text().splitlines(keepends=True))))
        list(pairs)
