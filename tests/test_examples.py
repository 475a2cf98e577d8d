"""The examples of layers and models of one's own run, and end as they say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from leave_slow import slow_but

pytest.importorskip("matplotlib").use("agg")

FOLDER = Path(__file__).parent.parent / "examples"
MOST_LINES = 80

#: Arguments of `main` for a run of seconds; and, of a whole one, the least numbers.
QUICK = {
    "captions": {"size": 64, "epochs": 1},
    "custom_score": {"steps": 2},
    "dates": {"examples": 64, "epochs": 1},
    "forecast": {"series": 64, "epochs": 1},
    "pooling": {"examples": 64, "epochs": 1},
    "sorting": {"size": 64, "epochs": 1},
    "speech": {"size": 64, "epochs": 1},
}


def example(name):
    """An example's module; it is no package."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where Keras looks for its classes
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", slow_but(QUICK, "custom_score"))
def test_runs_and_draws(name, tmp_path):
    example(name).main(**QUICK[name])
    (picture,) = tmp_path.iterdir()
    assert picture.name == f"{name}.png" and picture.stat().st_size > 5000


@pytest.mark.parametrize("name", QUICK)
def test_is_short(name):
    lines = (FOLDER / f"{name}.py").read_text("utf-8").splitlines()
    assert len(lines) <= MOST_LINES


def test_none_is_forgotten():
    others = {"demo", "train_wmt"}  # with tests of their own
    assert {path.stem for path in FOLDER.glob("*.py")} == {*QUICK, *others}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["captions", "dates", "pooling", "sorting"])
def test_learns(name):
    assert example(name).main() > 0.8


@pytest.mark.slow
def test_attention_by_distance_finds_what_a_product_does_not():
    right = example("custom_score").main()
    assert right["distance_score"] > 0.95 > 0.8 > right["general"]


@pytest.mark.slow
def test_location_aware_attention_moves_on():
    right = example("speech").main()
    assert right["LocationAwareAttention"] > 0.95 > 0.7 > right["LuongAttention"]


@pytest.mark.slow
def test_attention_forecasts_almost_as_well_as_can_be():
    error = example("forecast").main()
    for horizon in (1, 6, 12):
        assert error["attention"][horizon] < 0.5 * error["plain LSTM"][horizon]
    best = example("forecast").NOISE ** 2 * 4 / 3
    assert max(error["attention"].values()) < 2 * best
