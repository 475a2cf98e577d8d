"""The paths that a run's record names, wherever it is read from."""

from __future__ import annotations

import os
import shutil

import pytest

from keras_luong.config.models import Seq2SeqConfig
from keras_luong.config.training import fields_of_run, paths_from, with_found_paths
from keras_luong.decoding.beam import BeamSearch
from keras_luong.models.seq2seq import Seq2Seq
from keras_luong.runs.run import read_record, write_record


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a corpus, and another folder beside it."""
    for name in ("project/corpus", "elsewhere/deeper"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def record_run(run_dir, **settings):
    model = Seq2Seq(Seq2SeqConfig(8, 9, units=4))
    write_record(run_dir, model, BeamSearch(3), 20, settings)


def data_of(run_dir):
    return read_record(run_dir)["settings"]["data"]


def test_a_run_knows_its_corpus_from_another_folder(project, monkeypatch):
    """One that is called so there is another corpus."""
    record_run("runs/mine", data="corpus")
    monkeypatch.chdir("corpus")
    record_run("../runs/here", data=".")
    (project.parent / "elsewhere/corpus").mkdir()
    for folder, place, expected in (
        (".", "runs/mine", "corpus"),
        ("../elsewhere", "../project/runs/mine", "../project/corpus"),
        ("../elsewhere", "../project/runs/here", "../project/corpus"),
        ("../elsewhere", project / "runs/mine", "../project/corpus"),
        ("runs/mine", ".", "../../corpus"),
    ):
        monkeypatch.chdir(project / folder)
        assert data_of(place) == expected


def test_what_was_moved(project, monkeypatch):
    """A whole path that is there means itself, though `..` leads somewhere else."""
    deeper, whole = project.parent / "elsewhere/deeper", str(project / "corpus")
    for name, data in {
        "runs/one": "corpus",
        "corpus/two": whole,
        "runs/3": whole,
    }.items():
        record_run(name, data=data)
    shutil.move("runs/one", deeper / "one")
    assert data_of(deeper / "one") == "corpus"
    shutil.move("corpus/two", deeper.parent / "two")
    assert data_of(deeper.parent / "two") == whole
    monkeypatch.chdir(project.parent)
    project.rename("moved")  # the folder of both
    assert data_of("moved/runs/3") == "moved/corpus"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_where_one_may_not_look(project, monkeypatch):
    """As of a run that another user has trained, and given away."""
    record_run("runs/mine", data=str(project / "corpus"))
    shutil.move("runs/mine", project.parent / "elsewhere/mine")
    monkeypatch.chdir(project.parent)
    project.chmod(0)
    try:
        assert data_of("elsewhere/mine") == str(project / "corpus")
    finally:
        project.chmod(0o755)


def test_names_that_are_no_paths(project):
    assert paths_from("runs/mine", {"data": "phrases", "init_from": None}) == {}
    assert paths_from("runs/mine", {"data": 3}) == {}
    record_run("phrases", data="phrases")
    assert read_record("phrases")["paths"] == {}


def test_through_a_link(project, monkeypatch):
    real = project.parent / "disk/large/mine"
    real.mkdir(parents=True)
    (project / "linked").symlink_to(real)
    record_run("linked", data="corpus")
    monkeypatch.chdir(project.parent / "elsewhere")
    assert data_of("../project/linked") == "../project/corpus"


def test_what_was_changed_by_hand_or_is_nowhere_stays_as_given(project):
    record_run("runs/mine", data="corpus")
    file = project / "runs/mine/run.json"
    text = file.read_text()
    file.write_text(text.replace('"data": "corpus"', '"data": "other"'))
    assert data_of("runs/mine") == "other"
    file.write_text(text)
    (project / "corpus").rmdir()
    assert data_of("runs/mine") == "corpus"


def test_two_files_with_a_comma_between(project, monkeypatch):
    for name in ("a.en", "b.de"):
        (project / name).touch()
    record_run("runs/mine", data="a.en,b.de")
    monkeypatch.chdir(project.parent / "elsewhere")
    assert data_of("../project/runs/mine") == "../project/a.en,../project/b.de"


def test_a_run_to_start_from_too(project, monkeypatch):
    (project / "runs/base").mkdir(parents=True)
    settings = {"data": "corpus", "init_from": "runs/base"}
    paths = {"corpus": "../../corpus", "runs/base": "../base"}
    assert paths_from("runs/mine", settings) == paths
    assert with_found_paths("runs/mine", settings, paths) == settings
    record_run("runs/mine", **settings)
    monkeypatch.chdir(project.parent / "elsewhere")
    start = fields_of_run("../project/runs/mine")
    assert start["data"] == "../project/corpus"
