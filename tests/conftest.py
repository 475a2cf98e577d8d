"""Every test starts from the same seeds, and TensorFlow keeps quiet."""

import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # machines are slow at times
settings.load_profile("untimed")


def pytest_collection_modifyitems(items):
    """On another backend, what is about TensorFlow is skipped."""
    if keras.backend.backend() != "tensorflow":
        skip = pytest.mark.skip(reason="is about TensorFlow")
        for item in items:
            if item.get_closest_marker("tensorflow"):
                item.add_marker(skip)
    if keras.backend.backend() == "jax":  # which makes float32 of it, unless asked
        for item in items:
            given = item.callspec.params.values() if hasattr(item, "callspec") else ()
            if any(isinstance(x, str) and x == "float64" for x in given):
                item.add_marker(pytest.mark.skip(reason="JAX has no float64"))


@pytest.fixture(autouse=True, scope="module")
def seeded_module():
    """Modules' own fixtures come before what each test starts from."""
    keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def seeded():
    """But TensorFlow's own, whose seeding forgets how every function was optimized."""
    random.seed(0)
    np.random.seed(0)
    yield
    keras.config.set_dtype_policy("float32")
