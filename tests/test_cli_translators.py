"""The translator and the corpus that a command's options name."""

from __future__ import annotations

import dataclasses
import re
import warnings

import numpy as np
import pytest
from commands import options
from small_training import write_corpus
from small_translator import word_translator, written_run

from keras_luong import BeamSearch, Ensemble, GreedySearch, Translator
from keras_luong.cli.translators import corpus_of, load_translator, with_options
from keras_luong.decoding.shortlist import Shortlist
from keras_luong.files import write_json
from keras_luong.runs.opening import describe_corpus
from keras_luong.runs.run import read_record
from keras_luong.runs.start import training_corpus

TEXTS = ["the red dog", "the cat is red", ""]


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
    words = [word for other in others for word in ("--ensemble", other)]
    found = load_translator(options("translate", *words, first))
    for one, other in zip(found.translate(TEXTS), expected, strict=True):
        assert one.text == other.text
        np.testing.assert_allclose(one.score, other.score, rtol=1e-5)
    assert found.max_source_length == 4  # the least
    alone = load_translator(options("translate", first)).translate(TEXTS)
    assert [t.score for t in alone] != [t.score for t in expected]


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "float32"])
def test_another_precision(runs, precision):
    """What a command needs comes before what is asked for."""
    _, (first, *others) = runs
    words = ["--precision", "mixed_bfloat16"]
    words += [word for other in others for word in ("--ensemble", other)]
    asked = options("score", first, "a", "b", *words)
    found = load_translator(asked, precision if precision == "float32" else None)
    policies = {model.dtype_policy.name for model in found.model.models}
    assert policies == {precision}


def searched(translator, *words):
    """The translator with the search of a command line."""
    return with_options(translator, options("translate", "x", *words))


def test_the_search_is_the_runs_with_what_options_change(tmp_path):
    search = BeamSearch(4, n_best=3, max_length=6, length_penalty=0.6, forbidden=(5,))
    translator = word_translator(search)
    assert searched(translator).search == search
    assert searched(translator).max_source_length == 10
    words = "--beam_width 2 --average 0.7 --no_unknown --coverage_penalty 0.2"
    words += " --max_length 9 --min_length 2 --no_repeat_ngram 3 --max_source_length 7"
    found = searched(translator, *words.split())
    assert found.search.length_penalty.kind == "average"
    assert set(found.search.forbidden) == {1, 5}
    assert found.max_source_length == 7
    assert found.search == dataclasses.replace(
        search,
        beam_width=2,
        n_best=2,  # no more than there are
        length_penalty=found.search.length_penalty,
        coverage_penalty=0.2,
        max_length=9,
        min_length=2,
        no_repeat_ngram=3,
        forbidden=found.search.forbidden,
    )
    assert searched(translator, "--length_penalty", "0").search.length_penalty == 0


def test_a_shortlist(tmp_path):
    translator = word_translator(BeamSearch(2))
    Shortlist([4, 5], [[0]] * 9, 7).save(tmp_path / "s.npz")
    search = searched(translator, "--shortlist", tmp_path / "s.npz").search
    assert set(search.shortlist.frequent) == {4, 5}
    with pytest.raises(FileNotFoundError, match="nowhere.npz"):
        searched(translator, "--shortlist", "nowhere.npz")


def test_a_greedy_search_is_a_beam_of_one():
    translator = word_translator(GreedySearch(max_length=8))
    assert searched(translator).search == BeamSearch(1, max_length=8)
    found = searched(translator, "--beam_width", "4").search
    assert found == BeamSearch(4, max_length=8)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--beam_width 0", "beam_width must be at least 1.*0"),
        ("--max_source_length 0", "max_source_length must be at least 1.*0"),
        ("--length_penalty -1", "length_penalty must be finite and not negative.*-1"),
        ("--average nan", "average must be finite and not negative.*nan"),
    ],
)
def test_a_search_that_cannot_be(words, message, capsys):
    with pytest.raises((SystemExit, ValueError)) as stopped:
        searched(word_translator(BeamSearch(2)), *words.split())
    assert re.search(message, f"{stopped.value} {capsys.readouterr().err}")


class TestCorpus:
    @pytest.fixture
    def data(self, tmp_path):
        data = tmp_path / "data"
        data.mkdir()
        write_corpus(data, train=3, val=2)
        return data

    def corpus_of(self, path, settings, *words):
        """What a command sees as the corpus of a run of these settings."""
        run = written_run(path / "run", word_translator(), settings).path
        return corpus_of(options("tune", run, *words), run)

    def test_is_the_runs_own(self, data, tmp_path):
        settings = {"data": str(data), "source": "xx", "target": "yy"}
        corpus = self.corpus_of(tmp_path, settings)
        assert corpus.splits == ("train", "validation")
        assert (corpus.source_language, corpus.target_language) == ("xx", "yy")

    def test_options_come_first(self, data, tmp_path):
        settings = {"data": str(data), "source": "xx", "target": "yy"}
        words = ["--source", "yy", "--target", "xx"]
        turned = self.corpus_of(tmp_path, settings, *words)
        pair = next(turned.pairs("train").as_numpy_iterator())
        assert pair["source"].isupper() and not pair["target"].isupper()

    @pytest.mark.parametrize(
        "tag", [None, pytest.param("news", marks=pytest.mark.slow)]
    )
    def test_text_that_was_not_there_is_told(self, tag, tmp_path):
        """Pairs that are held out now may have been trained on."""
        data = tmp_path / "data"
        data.mkdir()
        write_corpus(data, train=30)
        settings = {"data": str(data), "source": "xx", "target": "yy", "tag": tag}
        run = written_run(tmp_path / "run", word_translator(), settings).path
        texts = describe_corpus(training_corpus(settings), None)
        write_json(run / "run.json", {**read_record(run), "corpus": texts})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for with_tag in (True, False):
                corpus_of(options("tune", run), run, with_tag)
            write_corpus(data, train=300)  # it begins as before
            corpus_of(options("tune", run, "--data", data), run)
            turned = options("tune", run, "--source", "yy", "--target", "xx")
            corpus_of(turned, run)
        with pytest.warns(UserWarning, match="validation text of .*data is another"):
            corpus_of(options("tune", run), run)

    def test_a_run_that_does_not_say(self, data, tmp_path):
        with pytest.raises(
            ValueError, match="not name its data: give --data, --target"
        ):
            self.corpus_of(tmp_path, {"source": "xx"})
        words = ["--data", data, "--target", "yy"]
        assert self.corpus_of(tmp_path, {"source": "xx"}, *words).name == "data"

    def test_no_run_at_all(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            corpus_of(options("tune", "x"), tmp_path / "nowhere")
