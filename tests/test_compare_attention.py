"""The benchmark that compares the attentions of the paper."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from keras_luong import Translation
from keras_luong.config.presets import PRESETS

pytest.importorskip("matplotlib")
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "compare_attention.py"
sys.path.append(str(SCRIPT.parent))
compare = importlib.import_module(SCRIPT.stem)


ERRORS = [
    (np.eye(3)[[1, 0, 2]], 0),
    (np.eye(3)[[2, 2, 2]], 100),  # attention to the end token alone is wrong
    (np.zeros((3, 3)), None),  # none at all has no error
]


@pytest.mark.parametrize("weights, error", ERRORS)
def test_alignment_error_is_that_of_the_references(weights, error):
    example = SimpleNamespace(alignment=((0, 1), (1, 0)))
    corpus = SimpleNamespace(examples=lambda split: [example])
    tokens, source_tokens = ["▁b", "▁a", "</s>"], ["▁a", "▁b", "</s>"]
    read = Translation("?", 0.0, tokens, source_tokens, weights, False, ())
    translator = SimpleNamespace(score=lambda sources, references: [read])
    found = compare.alignment_error(translator, corpus, "test", ["a b"], ["b a"])
    assert found == error
    assert compare.alignment_error(translator, object(), "test", [], []) is None


def test_a_table_has_a_row_a_variant_of_which_each_is_a_preset():
    row = dict.fromkeys(compare.COLUMNS, 1234.5) | {"variant": "dot", "aer": None}
    row["parameters"] = 1234
    *_, last = compare.table([row])
    assert last == "| dot | 1234.50 | 1234.50 | 1234.50 | – | 1,234 | 1,234 |"
    slugs = {compare.slug(name) for name in compare.VARIANTS}
    assert len(slugs) == len(compare.VARIANTS) == 15
    assert "local-p-general-no-feed" in slugs
    assert all(words.split()[1] in PRESETS for words in compare.VARIANTS.values())
