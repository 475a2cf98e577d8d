"""Pictures of attention: what they say, in any script, with whatever fonts."""

import io
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from leave_slow import slow_but

from keras_luong.evaluation import plots
from keras_luong.evaluation.plots import attention_figure, save_attention

SOURCE, TARGET = ["▁A", "▁dog", ".", "</s>"], ["▁Ein", "▁", "$ x_{"]
WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(4), 3)
SPLIT = ["▁Hun", "de", "▁runs", ".", "</s>"], ["▁do", "gs", "</s>"]

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.filterwarnings("ignore:No installed font")


def labels(figure):
    return [label.get_text() for label in figure.axes[0].get_xticklabels()]


def names(figure):
    """What the picture says: title, names of axes, columns and rows."""
    axes, bar = figure.axes
    rows = [label.get_text() for label in axes.get_yticklabels()]
    sides = axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()
    return figure.get_suptitle(), *sides, labels(figure), rows


def drawn(figure):
    return figure.axes[0].get_images()[0].get_array()


def draw(tokens, title=None, format="png"):
    """The figure of one row of tokens, and the picture; it warns of no boxes."""
    figure = attention_figure(np.zeros((1, len(tokens))), tokens, ["x"], title)
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # as matplotlib does where it must draw a box
        figure.savefig(picture, format=format)
    return figure, picture.getvalue()


def test_shows_the_weights_and_the_tokens():
    """A "$" is a letter, and starts no formula; pyplot is left alone."""
    import matplotlib.pyplot

    before = matplotlib.pyplot.get_fignums()  # other tests' own
    figure = attention_figure(WEIGHTS, SOURCE, TARGET, title="$ t", pieces=True)
    figure.canvas.draw()
    np.testing.assert_allclose(drawn(figure), WEIGHTS, 1e-6)
    assert figure.axes[0].get_images()[0].get_clim() == (0.0, 1.0)
    columns, rows = ["A", "dog", ".", "</s>"], ["Ein", "␣", "$ x_{"]
    sides = "source pieces", "target pieces", "attention"
    assert names(figure) == ("$ t", *sides, columns, rows)
    assert matplotlib.pyplot.get_fignums() == before


def test_pieces_are_merged_to_words():
    weights = [[0.5, 0.3, 0.2, 0, 0], [0.1, 0.1, 0.5, 0.3, 0], [0, 0, 0, 0, 1]]
    figure = attention_figure(weights, *SPLIT, "line 3")
    merged = [[0.5, 0.5, 0], [0, 0, 1]]  # columns are summed, rows averaged
    np.testing.assert_allclose(drawn(figure), merged, atol=1e-7)
    columns, rows = ["Hunde", "runs.", "</s>"], ["dogs", "</s>"]
    words = "source words", "target words", "attention"
    assert names(figure) == ("line 3", *words, columns, rows)
    assert len(figure.axes[0].lines) == 0


def test_pieces_are_drawn_on_request_with_the_words_bounds():
    lines = attention_figure(np.eye(5)[:3], *SPLIT, pieces=True).axes[0].lines
    down = [line.get_xdata()[0] for line in lines if len(set(line.get_xdata())) == 1]
    across = [line.get_ydata()[0] for line in lines if len(set(line.get_ydata())) == 1]
    assert (down, across) == ([1.5, 3.5], [1.5])


def test_scripts_without_spaces_stay_in_pieces(bundled):
    source, target = ["▁", "我", "爱", "▁New", "▁Y", "ork", "</s>"], ["x", "y", "</s>"]
    figure = attention_figure(np.eye(7)[:3], source, target)
    columns = ["<U+6211>", "<U+7231>", "New", "York", "</s>"]
    sides = "source pieces", "target tokens", "attention"
    assert names(figure) == ("", *sides, columns, target)  # words already, without "▁"
    np.testing.assert_array_equal(drawn(figure)[:, 0], [1, 1, 0])  # "▁" is of the next


REFUSED = [
    (WEIGHTS.T, SOURCE, TARGET, ValueError, r"\[3, 4\].*\[4, 3\]"),
    (np.zeros((0, 2)), ["a", "b"], [], ValueError, "nothing to draw"),
    ([[np.nan]], ["a"], ["b"], ValueError, "finite"),
    (np.zeros((1, 3)), "abc", ["x"], TypeError, "source tokens must be a list.*abc"),
]


@pytest.mark.parametrize("weights, source, target, error, message", REFUSED)
def test_refuses(weights, source, target, error, message):
    with pytest.raises(error, match=message):
        attention_figure(weights, source, target)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"keras_luong\[plots\]"):
        attention_figure([[1.0]], ["a"], ["b"])


@pytest.fixture
def bundled(monkeypatch):
    """No fonts but matplotlib's own: Latin, Greek, Cyrillic, Arabic, not Chinese."""
    from matplotlib.font_manager import fontManager

    own = [face for face in fontManager.ttflist if "mpl-data" in str(face.fname)]
    monkeypatch.setattr(fontManager, "ttflist", own)
    plots._has.cache_clear()
    yield fontManager
    plots._has.cache_clear()


#: A character that no font has is its code point.
LABELS = dict(
    x.split("=")
    for x in (
        "▁Straße=Straße ▁Привет=Привет السلام=السلام e\u0301=e\u0301 ❤\ufe0f=❤\ufe0f "
        "▁=␣ =␣ ▁中文=<U+4E2D><U+6587> a中b文=a<U+4E2D>b<U+6587> हि=<U+0939><U+093F> "
        "👩\u200d💻=<U+1F469>\u200d<U+1F4BB> نمی\u200cخواهم=نمی\u200cخواهم "
        "a\xad\x07=a<U+00AD><U+0007> \ud800=<U+D800> \ue000=<U+E000>"
    ).split(" ")
)
LABELS |= {"▁New▁York": "New York", " \t\u3000": "␣", "a\n\tb\xa0c": "a b c"}


def test_labels(bundled):
    for token, label in LABELS.items():
        assert labels(attention_figure([[0.0]], [token], ["x"])) == [label]


def test_titles_have_lines_and_no_boxes_and_svg_needs_no_fonts(bundled):
    figure, picture = draw(["Привет", "السلام", "中"], "a\n中 $", format="svg")
    assert figure.get_suptitle() == "a\n<U+4E2D> $"
    assert picture.startswith(b"<?xml") and b"<text" not in picture
    assert b"DejaVuSans" in picture  # outlines, named after the font
    assert b"LastResort" not in picture
    draw(["a"] * 4, "one\x1ftwo\tthree")  # U+001F is no white space to a font


def test_finds_a_font_among_those_installed(monkeypatch):
    import matplotlib
    from matplotlib.font_manager import fontManager

    families = matplotlib.rcParams["font.family"]
    letters = {families[0]: "x", "One": "中", "Two": "中文", "Three": "x"}
    faces = [SimpleNamespace(name=family) for family in letters]
    monkeypatch.setattr(fontManager, "ttflist", faces)
    monkeypatch.setattr(plots, "_has", lambda x, letter: letter in letters.get(x, ""))
    with pytest.warns(UserWarning, match="No installed font"):
        figure = attention_figure(np.zeros((1, 4)), ["中", "文", "字", "x"], ["x"])
    assert labels(figure) == ["中", "文", "<U+5B57>", "x"]
    assert figure.axes[0].get_xticklabels()[0].get_fontfamily() == [*families, "Two"]


@pytest.mark.parametrize("format", slow_but(["png", "svg", "pdf"], "png"))
def test_saves_any_script_in_any_format(format, tmp_path):
    path = tmp_path / f"picture.{format}"
    tokens = ["▁Größe", "▁Привет", "▁Ελλάδα", "中文", "日本語", "السلام", "हिन्दी", "😀"]
    save_attention(path, np.eye(8), tokens, tokens[::-1], title="中 → Ω")
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[format]
    assert path.read_bytes().startswith(start)
