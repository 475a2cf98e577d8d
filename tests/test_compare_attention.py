"""The benchmark that compares the attentions of the paper."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from small_training import write_corpus

from keras_luong import Translation
from keras_luong.config.presets import PRESETS

pytest.importorskip("matplotlib")
SCRIPT = Path(__file__).parents[1] / "benchmarks" / "compare_attention.py"
sys.path.append(str(SCRIPT.parent))
compare = importlib.import_module(SCRIPT.stem)


def translation(tokens, source_tokens, alignment, text="?"):
    return Translation(text, 0.0, tokens, source_tokens, np.array(alignment), False, ())


ERRORS = [
    (np.eye(3)[[1, 0, 2]], 0),
    (np.eye(3)[[2, 2, 2]], 100),  # attention to the end token alone is wrong
    (np.zeros((3, 3)), None),  # none at all has no error
]


@pytest.mark.parametrize("weights, error", ERRORS)
def test_alignment_error_is_that_of_the_references(weights, error):
    example = SimpleNamespace(alignment=((0, 1), (1, 0)))
    corpus = SimpleNamespace(examples=lambda split: [example])
    read = translation(["▁b", "▁a", "</s>"], ["▁a", "▁b", "</s>"], weights)
    translator = SimpleNamespace(score=lambda sources, references: [read])
    found = compare.alignment_error(translator, corpus, "test", ["a b"], ["b a"])
    assert found == error
    assert compare.alignment_error(translator, object(), "test", [], []) is None


@pytest.fixture
def corpus(tmp_path):
    """A directory of text files; flags of it."""
    write_corpus(tmp_path, train=30, val=6, test_1=6)
    return f"--out {tmp_path / 'out'} --data {tmp_path} --source xx --target yy".split()


def test_a_table_has_a_row_a_variant_of_which_each_is_a_preset():
    row = dict.fromkeys(compare.COLUMNS, 1234.5) | {"variant": "dot", "aer": None}
    row["parameters"] = 1234
    *_, last = compare.table([row])
    assert last == "| dot | 1234.50 | 1234.50 | 1234.50 | – | 1,234 | 1,234 |"
    slugs = {compare.slug(name) for name in compare.VARIANTS}
    assert len(slugs) == len(compare.VARIANTS) == 15
    assert "local-p-general-no-feed" in slugs
    assert all(words.split()[1] in PRESETS for words in compare.VARIANTS.values())


@pytest.mark.slow
def test_trains_and_compares(corpus, tmp_path):
    """Two variants on a tiny corpus."""
    words = "--units 8 --epochs 1 --num_layers 1 --tokenizer word --optimizer adam"
    words = [*corpus, *words.split(), "--beam_width", "2"]
    rows = compare.main([*words, "--variants", "none", "local-p (general)"])
    assert [row["variant"] for row in rows] == ["none", "local-p (general)"]
    assert rows[1]["parameters"] > rows[0]["parameters"]
    assert json.loads((tmp_path / "out" / "table.json").read_text()) == rows
    for picture in ("learning_curves.png", "bleu_by_length.png"):
        assert (tmp_path / "out" / picture).stat().st_size > 1000
