"""Pictures of the benchmark that compares the attentions of the paper."""

import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
curves = importlib.import_module("curves")
bleu_by_length_figure = curves.bleu_by_length_figure
learning_curves_figure = curves.learning_curves_figure


def test_learning_curves_have_a_line_a_system(tmp_path):
    figure = learning_curves_figure({"dot": [90.0, 40, 30], "none": [95.0, 60]})
    axes = figure.axes[0]
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines == {"dot": [[1, 90], [2, 40], [3, 30]], "none": [[1, 95], [2, 60]]}
    assert axes.get_yscale() == "log"
    figure.savefig(tmp_path / "curves.png")
    few = learning_curves_figure({str(i): [1.0] for i in range(5)}).axes[0].lines
    assert len({(x.get_color(), x.get_marker()) for x in few}) == len(few) == 5


def test_many_systems_have_a_panel_each():
    figure = learning_curves_figure({f"${i}": [9.0, 1 + i] for i in range(6)})
    assert [axes.get_title() for axes in figure.axes] == [f"${i}" for i in range(6)]
    for i, axes in enumerate(figure.axes):
        grey, [own] = axes.lines[:5], axes.lines[5:]
        assert {line.get_color() for line in grey} == {"0.8"}
        assert own.get_color() != "0.8" and own.get_ydata().tolist() == [9, 1 + i]
        assert axes.get_ylim() == figure.axes[0].get_ylim()


@pytest.mark.parametrize("systems", [1, 6])
def test_lengths_of_few_sentences_are_marked(systems):
    groups = {"10": 40.0, "inf": 9.0, "20": 35.0}
    counts = {"10": 300, "20": 30, "inf": 29}
    figure = bleu_by_length_figure({str(i): groups for i in range(systems)}, counts)
    labels = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert labels == ["10\n(300)", "20\n(30)", "longer\n(29)"]
    for axes in figure.axes:
        points = [[0, 40], [2, 9], [1, 35]]
        assert points in [line.get_xydata().tolist() for line in axes.lines]
        [shade] = axes.patches
        assert shade.get_x() == 1.5 and shade.get_width() == 1
    said = figure.get_supxlabel() or figure.axes[0].get_xlabel()
    assert said == "source words, at most (sentences); shaded: fewer than 30 sentences"


def test_nothing_to_draw_is_refused():
    for draw in (learning_curves_figure, bleu_by_length_figure):
        with pytest.raises(ValueError, match="a system to draw"):
            draw({})
