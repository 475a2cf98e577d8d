"""What the export scripts have in common."""

import argparse

import numpy as np
import pytest
from small_translator import word_translator, written_run

from keras_luong import BeamSearch, Ensemble, Translator
from keras_luong.cli import command_line
from keras_luong.files import write_json
from keras_luong.runs.directory import RunDirectory

TEXTS = ["the red dog", "the cat is red", ""]


def parse(*argv):
    parser = argparse.ArgumentParser()
    command_line.add_options(parser)
    parser.add_argument("out_dir")
    return parser.parse_args([str(text) for text in (*argv, "out")])


def together(*others):
    return [text for other in others for text in ("--ensemble", other)]


@pytest.fixture
def runs(tmp_path):
    """Three translators with different weights, and their run directories."""
    rng, translators = np.random.default_rng(0), []
    for _ in range(3):
        translators.append(word_translator(BeamSearch(3, max_length=6)))
        translators[-1].max_source_length -= len(translators) * 2
        for weight in translators[-1].model.trainable_weights:
            weight.assign(rng.normal(size=weight.shape))
    pairs = enumerate(translators)
    return translators, [written_run(tmp_path / str(i), x).path for i, x in pairs]


@pytest.mark.slow
def test_an_ensemble_of_runs(runs):
    translators, (first, *others) = runs
    expected = Translator(
        Ensemble([x.model for x in translators]),
        translators[0].tokenizers,
        translators[0].search,
    ).translate(TEXTS)
    found = command_line.translator_of(parse(*together(*others), first))
    for one, other in zip(found.translate(TEXTS), expected, strict=True):
        assert one.text == other.text
        np.testing.assert_allclose(one.score, other.score, rtol=1e-5)
    assert found.max_source_length == 4  # the least
    alone = command_line.translator_of(parse(first)).translate(TEXTS)
    assert [t.score for t in alone] != [t.score for t in expected]


def test_another_precision(runs):
    _, (first, *others) = runs
    found = command_line.translator_of(
        parse(*together(*others), first), "mixed_bfloat16"
    )
    policies = {model.dtype_policy.name for model in found.model.models}
    assert policies == {"mixed_bfloat16"}


def test_the_origin_names_all_runs(runs):
    _, (first, second, third) = runs
    write_json(RunDirectory(third).results, {"test": {"bleu": 41.0}})
    about = command_line.origin(parse(first, *together(second, third)))
    assert all(run["settings"] == {"epochs": 3} for run in about["ensemble"])
    results = [run["results"] for run in about["ensemble"]]
    assert results == [None, {"test": {"bleu": 41.0}}]
    alone = command_line.origin(parse(first), "mixed_bfloat16")
    assert alone.keys() == {"precision", "run"}
    assert [about["precision"], alone["precision"]] == ["float32", "mixed_bfloat16"]
