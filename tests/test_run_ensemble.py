"""Several runs as one translator."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from small_translator import sentencepiece_translator, word_translator, written_run

from keras_luong import BeamSearch, Ensemble, Translator
from keras_luong.runs.load_save import load_ensemble
from keras_luong.runs.run import RunDirectory
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

TEXTS = ["the red dog", "the cat is red", ""]


@pytest.fixture
def runs(tmp_path):
    """Two translators with different weights, and their run directories."""
    rng, translators = np.random.default_rng(0), []
    for width in (3, 2):
        translator = word_translator(BeamSearch(width, max_length=6))
        translator.max_source_length = 5 + width
        for weight in translator.model.trainable_weights:
            weight.assign(rng.normal(size=weight.shape))
        translators.append(translator)
    pairs = enumerate(translators)
    return translators, [written_run(tmp_path / str(i), x).path for i, x in pairs]


@pytest.mark.slow
def test_translates_together(runs):
    (first, second), paths = runs
    found = load_ensemble(paths, "float32")
    ensemble = Ensemble([first.model, second.model])
    expected = Translator(ensemble, first.tokenizers, first.search).translate(TEXTS)
    scores = [t.score for t in found.translate(TEXTS)]
    np.testing.assert_allclose(scores, [t.score for t in expected], rtol=1e-5)
    assert found.search.beam_width == 3  # the first one's
    assert found.max_source_length == 7  # the least


def test_all_of_them_compute_in_another_precision(runs):
    models = load_ensemble(runs[1], "mixed_bfloat16").model.models
    assert {model.dtype_policy.name for model in models} == {"mixed_bfloat16"}


def test_one_run_is_itself(runs):
    (_, second), (_, path) = runs
    alone = load_ensemble([path], "mixed_bfloat16")
    assert alone.search == second.search and not isinstance(alone.model, Ensemble)
    assert alone.model.dtype_policy.name == "mixed_bfloat16"


def test_other_tokenizers_are_refused(runs):
    _, (first, second) = runs
    words = WordTokenizer(["the", "red", "dog", "is", "cat"])  # in another order
    target = WordTokenizer(["der", "Hund", "ist"])
    TokenizerPair(words, target).save(RunDirectory(second).tokenizer)
    with pytest.raises(ValueError, match=f"same tokenizers.*{first}, {second}"):
        load_ensemble([first, second])


@pytest.mark.parametrize("side", ["source", "target"])
def test_t1_another_normalization_is_named(tmp_path, side):
    """The pieces are the same, and the runs' options look alike."""
    translator = sentencepiece_translator()
    first, second = (written_run(tmp_path / x, translator) for x in "ab")
    sides = {x: translator.tokenizers for x in ("source", "target")}
    sides[side] = sides[side].with_normalization("nmt_nfkc")
    TokenizerPair(**sides).save(second.tokenizer)
    message = f"Received: .*a, .*b, which differ in {side}_normalization 'identity' and"
    with pytest.raises(ValueError, match=f"{message} 'nmt_nfkc'$"):
        load_ensemble([first.path, second.path])


@pytest.mark.parametrize("run_dirs", [[], "runs/a"])
def test_no_list_of_runs_is_refused(run_dirs):
    with pytest.raises(ValueError, match=f"Received: {re.escape(repr(run_dirs))}"):
        load_ensemble(run_dirs)


def test_a_run_without_tokenizers_is_incomplete(runs):
    _, (first, second) = runs
    shutil.rmtree(RunDirectory(second).tokenizer)
    with pytest.raises(FileNotFoundError, match="the run is incomplete"):
        load_ensemble([first, second])


def test_a_run_that_is_not_there_is_named(runs):
    _, (first, _) = runs
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_ensemble([first, "nowhere"])
