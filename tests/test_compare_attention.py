from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from keras_luong.models.presets import PRESETS
from keras_luong.serving import Translation

pytest.importorskip("matplotlib")
SCRIPT = Path(__file__).parent.parent / "examples" / "compare_attention.py"
SPEC = importlib.util.spec_from_file_location("compare_attention", SCRIPT)
compare = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(compare)


def translation(tokens, source_tokens, alignment, text="?"):
    return Translation(text, 0.0, tokens, source_tokens, np.array(alignment), False, ())


def test_unknown_words_are_replaced_where_words_are_whole():
    t = translation(
        ["<unk>", "rennt", "</s>"],
        ["<unk>", "runs", "</s>"],
        [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]],
        "<unk> rennt",
    )
    assert compare.with_unknowns_replaced(t, "Rex runs") == "Rex rennt"
    pieces = t._replace(source_tokens=["▁Re", "x", "▁runs", "</s>"])
    assert compare.with_unknowns_replaced(pieces, "Rex runs") == "<unk> rennt"


def test_bleu_by_length_groups_by_source_words():
    texts = ["a b c d", "e f g h i", "x"]
    sources = ["w " * 4, "w " * 12, "w " * 60]
    groups = compare.by_length(texts, sources, ["a b c d", "e f g h i", "y"], "none")
    assert groups["10"] == pytest.approx(100) and groups["15"] == pytest.approx(100)
    assert groups["50"] < 100 and set(groups) == {"10", "15", "50"}


def test_alignment_error_is_that_of_the_references():
    example = SimpleNamespace(alignment=((0, 1), (1, 0)))
    corpus = SimpleNamespace(examples=lambda split: [example])
    read = translation(["▁b", "▁a", "</s>"], ["▁a", "▁b", "</s>"], np.eye(3)[[1, 0, 2]])
    translator = SimpleNamespace(score=lambda sources, references: [read])
    error = compare.alignment_error(translator, corpus, "test", ["a b"], ["b a"])
    assert error == 0
    assert compare.alignment_error(translator, object(), "test", [], []) is None


def test_a_table_has_a_row_a_variant():
    row = dict.fromkeys(compare.COLUMNS, 1234.5) | {"variant": "dot", "aer": None}
    row["parameters"] = 1234
    *_, last = compare.table([row])
    assert last == "| dot | 1234.50 | 1234.50 | 1234.50 | – | 1,234 | 1,234 |"


def test_variants_are_presets_and_directories_of_their_own():
    slugs = {compare.slug(name) for name in compare.VARIANTS}
    assert len(slugs) == len(compare.VARIANTS) == 15
    assert "local-p-general-no-feed" in slugs
    for flags in compare.VARIANTS.values():
        assert flags.split()[1] in PRESETS


@pytest.mark.slow
def test_trains_once_and_compares(tmp_path, monkeypatch):
    """Two variants on a tiny corpus; the second time nothing is trained."""
    rng = random.Random(0)
    for split, size in (("train", 30), ("val", 6), ("test", 6)):
        lines = [" ".join(rng.choices("abcde", k=5)) for _ in range(size)]
        (tmp_path / f"{split}.xx").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{split}.yy").write_text("\n".join(lines).upper() + "\n")
    flags = f"--out {tmp_path / 'out'} --data {tmp_path} --source xx --target yy "
    flags += "--units 8 --num_layers 1 --tokenizer word --optimizer adam --epochs 1 "
    flags += "--beam_width 2 --variants"
    argv = [*flags.split(), "none", "local-p (general)"]
    rows = compare.main(argv)
    assert [row["variant"] for row in rows] == ["none", "local-p (general)"]
    assert rows[1]["parameters"] > rows[0]["parameters"]
    assert json.loads((tmp_path / "out" / "table.json").read_text()) == rows
    for picture in ("learning_curves.png", "bleu_by_length.png"):
        assert (tmp_path / "out" / picture).stat().st_size > 1000
    monkeypatch.setattr(compare.subprocess, "run", None)
    assert compare.main(argv) == rows
    with pytest.raises(SystemExit):
        compare.main([*flags.split(), "local-q"])
