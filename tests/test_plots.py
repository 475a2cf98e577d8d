from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from keras_luong.evaluation.plots import attention_figure, save_attention

SOURCE, TARGET = ["▁A", "▁dog", ".", "</s>"], ["▁Ein", "▁", "$ x_{"]
WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(4), 3)


@pytest.fixture(autouse=True)
def _needs_matplotlib(request):
    if "without" not in request.node.name:
        pytest.importorskip("matplotlib")


def test_shows_the_weights_and_the_tokens():
    figure = attention_figure(WEIGHTS, SOURCE, TARGET, title="$ t")
    figure.canvas.draw()
    axes = figure.axes[0]
    image = axes.get_images()[0]
    np.testing.assert_allclose(image.get_array(), WEIGHTS, 1e-6)
    assert image.get_clim() == (0.0, 1.0)
    labels = [label.get_text().strip() for label in axes.get_xticklabels()]
    assert labels == ["A", "dog", ".", "</s>"]
    assert [label.get_text().strip() for label in axes.get_yticklabels()] == [
        "Ein",
        "␣",
        "$ x_{",
    ]


def test_size_follows_the_tokens():
    small = attention_figure(np.ones((2, 3)) / 3, "abc", "de").get_size_inches()
    large = attention_figure(np.ones((40, 30)) / 30, "a" * 30, "b" * 40)
    assert (large.get_size_inches() > 3 * small).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (60, 2)])
def test_saves_any_shape(shape, tmp_path):
    path = tmp_path / "picture.png"
    save_attention(path, np.zeros(shape), ["x"] * shape[1], ["y"] * shape[0])
    assert path.read_bytes().startswith(b"\x89PNG")


def test_leaves_pyplot_alone():
    attention_figure(WEIGHTS, SOURCE, TARGET)
    import matplotlib.pyplot

    assert matplotlib.pyplot.get_fignums() == []


@pytest.mark.parametrize(
    "weights, source, target, message",
    [
        (WEIGHTS.T, SOURCE, TARGET, r"\[3, 4\].*\[4, 3\]"),
        (np.zeros((0, 2)), ["a", "b"], [], "nothing to draw"),
        ([[np.nan]], ["a"], ["b"], "finite"),
    ],
)
def test_refuses(weights, source, target, message):
    with pytest.raises(ValueError, match=message):
        attention_figure(weights, source, target)


def test_without_matplotlib():
    code = """
        import sys
        sys.modules["matplotlib"] = None
        import importlib.util
        spec = importlib.util.spec_from_file_location("plots", sys.argv[1])
        plots = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plots)
        try:
            plots.attention_figure([[1.0]], ["a"], ["b"])
        except ImportError as error:
            print(error)
    """
    from keras_luong.evaluation import plots

    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), plots.__file__],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "keras_luong[plots]" in run.stdout
