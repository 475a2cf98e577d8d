"""Every test starts from the same seeds, and TensorFlow keeps quiet."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import pytest


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy("float32")
