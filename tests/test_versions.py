"""Whether a SavedModel answers the same elsewhere (export/serving/versions.py).

No environment is made here: this one's Python stands for another's.
"""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest
import tensorflow as tf
from export_scripts import export_script
from small_translator import sentencepiece_translator

from keras_luong import export_saved_model

versions = export_script("versions")
SAID = {"align": {"score": [-1.0, -2.0], "tokens": [["a", "b"]], "truncated": [False]}}


def other(**changes):
    return {"align": {**SAID["align"], **changes}}


@pytest.mark.parametrize(
    ("said", "same", "apart"),
    [
        (SAID, 3, 0.0),
        (other(score=[-1.0, -2.5]), 3, 0.5),
        (other(score=[-1.0, math.nan]), 3, math.inf),
        (other(tokens=[["a", "c"]]), 2, 0.0),
        (other(truncated=[True]), 2, 0.0),
    ],
)
def test_it_counts_what_differs(said, same, apart):
    assert versions.compare(SAID, said) == (3, same, apart)


@pytest.mark.parametrize(
    "said", [{}, {"others": {}}, other(tokens=[["a"]]), other(score=-1.0)]
)
def test_other_names_or_shapes_are_an_error(said):
    with pytest.raises(ValueError, match="differ in names or shape"):
        versions.compare(SAID, said)


@pytest.mark.slow
def test_it_asks_every_signature_in_another_process(tmp_path, monkeypatch):
    path = export_saved_model(sentencepiece_translator(), tmp_path / "model")
    lines = tmp_path / "in.txt"
    lines.write_text("the red dog\nЖ\n\nthe cat is in the house\n")
    found = versions.ask(sys.executable, path, lines)
    assert found["versions"][0] == tf.__version__
    signatures = {"serving_default", "n_best", "align", "score", "ids", "constrain"}
    assert found["said"].keys() == signatures
    assert all(len(x) == 4 for said in found["said"].values() for x in said.values())
    here = versions.answer(str(path), lines)["said"]
    count, same, apart = versions.compare(found["said"], here)
    assert count == same > 100 and apart < versions.TOLERANCE

    monkeypatch.setattr(versions, "venv", SimpleNamespace(create=lambda *_, **__: None))
    args = SimpleNamespace(work=tmp_path, version_dir=path, lines=lines)
    row = versions.try_version("2.0", args, found["said"])  # there is no Python in it
    assert row == "| 2.0 | | no | |"
