"""Teachers and their student by one call."""

from __future__ import annotations

import pytest
from small_corpus import Backwards
from small_training import write_corpus

import keras_luong as kl
from keras_luong.config.auto import AutoTraining
from keras_luong.config.training import TrainingConfig
from keras_luong.files import count_lines, read_lines, write_json
from keras_luong.runs import synthetic as distilled_training
from keras_luong.runs.load_save import load
from keras_luong.runs.opening import describe_corpus
from keras_luong.runs.run import (
    RunDirectory,
    read_record,
    write_record,
)
from keras_luong.runs.start import training_corpus
from keras_luong.runs.synthetic import train_distilled

TINY = {"units": 8, "tokenizer": "word", "batch_tokens": 200, "epochs": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    write_corpus(directory, train=20, val=5)
    return directory


@pytest.mark.slow
def test_a_student_learns_from_its_teachers(data, tmp_path, monkeypatch):
    training = AutoTraining(str(data), "xx", "yy", given={**TINY, "max_length": 12})
    results = train_distilled(training, tmp_path / "run", teachers=2)
    assert results["validation"]["sentences"] == 5
    seeds = [
        read_record(tmp_path / "run-teachers" / name)["settings"]["seed"]
        for name in "12"
    ]
    assert seeds == [1, 2]
    assert count_lines(tmp_path / "run-teachers" / "corpus" / "train.yy") == 40
    assert read_record(tmp_path / "run")["corpus"]["train"]["pairs"] == 40
    assert load(tmp_path / "run").translate(["a b"])[0].text is not None

    # The same again trains no teacher and translates nothing.
    trained = []

    def note(training, run_dir):
        trained.append(run_dir)

    monkeypatch.setattr(distilled_training, "train", note)
    train_distilled(training, tmp_path / "run", teachers=2)
    assert trained == [tmp_path / "run"]


def trained_teacher(run_dir, config):
    """A run as a finished training leaves it, with an untrained model."""
    corpus = training_corpus(config.settings())
    texts = describe_corpus(corpus, config.limit_examples)
    model = kl.Seq2Seq(config.model_config(20, 20))
    settings = config.settings()
    write_record(run_dir, model, kl.BeamSearch(2), 50, settings, corpus=texts)
    write_json(RunDirectory(run_dir).results, {})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"data": "other"}, "its train split had 20 pairs"),
        ({"source": "yy", "target": "xx"}, "They differ in source: 'xx' there"),
        ({"units": 10}, "They differ in .*units: 8 there, 10 now"),
    ],
)
def test_a_teacher_of_something_else_is_refused(data, tmp_path, changes, message):
    settings = {"data": str(data), "source": "xx", "target": "yy", **TINY}
    of_teacher = TrainingConfig.from_preset("small", **settings)
    trained_teacher(tmp_path / "run-teachers" / "1", of_teacher)
    other = tmp_path / "other"
    other.mkdir()
    write_corpus(other, train=21, val=5)
    if "data" in changes:
        changes = {"data": str(other)}
    training = TrainingConfig.from_preset("small", **{**settings, **changes})
    with pytest.raises(ValueError, match=message):
        train_distilled(training, tmp_path / "run", teachers=1)
    assert not (tmp_path / "run-teachers" / "corpus").exists()


def test_teachers_read_the_tag_and_their_student_adds_it(data, tmp_path, monkeypatch):
    training = TrainingConfig.from_preset(
        "small", data=str(data), source="xx", target="yy", tag="news", **TINY
    )
    trained_teacher(tmp_path / "run-teachers" / "1", training)
    teacher, trained = Backwards(), []
    monkeypatch.setattr(distilled_training, "load_ensemble", lambda runs: teacher)
    monkeypatch.setattr(
        distilled_training, "train", lambda training, run_dir: trained.append(training)
    )
    train_distilled(training, tmp_path / "run", teachers=1)
    written = tmp_path / "run-teachers" / "corpus"
    twice = [line for line in read_lines(data / "train.xx") for _ in range(2)]
    assert list(read_lines(written / "train.xx")) == twice
    said = list(read_lines(written / "train.yy"))[1]
    assert said == f"<news> {twice[0]}"[::-1]  # by a teacher who has read the tag
    assert trained[0].tag == "news" and trained[0].data == str(written)


def test_a_corpus_of_former_teachers_is_refused(data, tmp_path):
    (tmp_path / "run-teachers" / "corpus").mkdir(parents=True)
    training = AutoTraining(str(data), "xx", "yy", given=TINY)
    with pytest.raises(ValueError, match="corpus was written by other teachers.*Remov"):
        train_distilled(training, tmp_path / "run", teachers=1)


@pytest.mark.parametrize(
    "training",
    [
        AutoTraining("x", given={"limit_examples": 9}),
        TrainingConfig(limit_examples=9),
    ],
)
def test_a_part_of_a_corpus_is_refused(training, tmp_path):
    with pytest.raises(ValueError, match="Received: limit_examples=9"):
        train_distilled(training, tmp_path / "run")
    assert not list(tmp_path.iterdir())
