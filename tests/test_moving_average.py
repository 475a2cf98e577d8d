from __future__ import annotations

import pytest
from small_training import small_data, small_model

from keras_luong.training.optimizers import MovingAverage, make_optimizer

# What it does to the weights is in test_callbacks.py, among the callbacks it is for.


@pytest.mark.parametrize("loss_scaling", [False, True])
def test_needs_an_average(loss_scaling):
    model = small_model(make_optimizer("adam", 0.1, loss_scaling=loss_scaling))
    with pytest.raises(ValueError, match="ema_momentum.*use_ema=False"):
        model.fit(small_data(), verbose=0, callbacks=[MovingAverage()])


@pytest.mark.slow
def test_needs_a_validation():
    model = small_model(make_optimizer("adam", 0.1, ema_momentum=0.9))
    with pytest.raises(ValueError, match="validation_data"):
        model.fit(small_data(), verbose=0, callbacks=[MovingAverage()])
