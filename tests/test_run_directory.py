"""A run directory: its record and the paths it names, its lock, what is loaded."""

import json
import os
import shutil

import keras
import numpy as np
import pytest

import keras_luong as kl
from keras_luong.config.training import fields_of_run, paths_from, with_found_paths
from keras_luong.files import saved_beside, saved_directory_beside
from keras_luong.runs import run as runs

SETTINGS = {"units": 8, "epochs": 3, "data": "phrases"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with best and last weights, which differ, and its model."""
    run = runs.RunDirectory(tmp_path_factory.mktemp("run") / "m")
    tokenizers = kl.TokenizerPair(*map(kl.WordTokenizer, (list("abcd"), list("ABCDE"))))
    keras.utils.set_random_seed(0)
    model = kl.Seq2Seq(kl.Seq2SeqConfig(8, 9, units=8))
    model.compile("adam", "mse")
    tokenizers.save(run.tokenizer)
    search = kl.BeamSearch(3, max_length=7, length_penalty=0.5)
    runs.write_record(run.path, model, search, 20, SETTINGS)
    run.checkpoints.mkdir()
    model.save_weights(run.last_weights)
    for weight in model.weights:
        weight.assign(weight + 0.5)
    model.optimizer.build(model.trainable_variables)
    model.save_weights(run.best_weights)
    return run, model


@pytest.fixture
def run(finished, tmp_path):
    """A copy to damage."""
    return runs.RunDirectory(shutil.copytree(finished[0].path, tmp_path / "copy"))


def test_history_and_results(tmp_path):
    run = runs.RunDirectory(tmp_path)
    assert runs.read_history(tmp_path) == [] and runs.read_results(tmp_path) is None
    run.history.write_text('{"epoch": 1, "val_loss": null}\n{"epoch": 2}\n')
    assert runs.read_history(tmp_path) == [{"epoch": 1, "val_loss": None}, {"epoch": 2}]
    for line in ('{"epo', '{"epoch": "4"}', '{"epoch": 1, "loss": "a"}', "[]"):
        run.history.write_text('{"epoch": 1}\n' + line)
        with pytest.raises(ValueError, match="line 2 is damaged"):
            runs.read_history(tmp_path)
    run.results.write_text('{"test": {"bleu": 1.5}}')
    assert runs.read_results(tmp_path) == {"test": {"bleu": 1.5}}
    for text in ('{"test"', '{"test": 3}', "[3]"):
        run.results.write_text(text)
        with pytest.raises(ValueError, match="results.json is damaged"):
            runs.read_results(tmp_path)


def test_the_record_says_who_wrote_it_and_what_goes_on(run, tmp_path):
    record = runs.read_record(run.path)
    assert record["format"] == runs.FORMAT and record["settings"] == SETTINGS
    assert record["library"].startswith("keras_luong ")
    assert runs.check_settings(run.path, SETTINGS) is True
    assert runs.check_settings(run.path, {**SETTINGS, "epochs": 9}, ["epochs"]) is True
    for settings, message in (
        ({**SETTINGS, "units": 9}, "units: 8 there, 9 now$"),
        ({**SETTINGS, "dropout": 0.2}, "dropout: None there, 0.2 now"),
        ({"units": 8, "epochs": 3}, "data: 'phrases' there, None now"),
    ):
        with pytest.raises(ValueError, match=message):
            runs.check_settings(run.path, settings, ["epochs"])
    # Its preset may have been changed since.
    runs.check_config(run.path, kl.Seq2SeqConfig(80, 90, units=8))
    with pytest.raises(ValueError, match="other options.*dropout: 0.2 there, 0.5"):
        runs.check_config(run.path, kl.Seq2SeqConfig(8, 9, units=8, dropout=0.5))
    edit(run.record, settings={"sizes": [1, 2]})  # which were a tuple
    assert runs.check_settings(run.path, {"sizes": (1, 2)}) is True


def test_new_directories(tmp_path):
    assert runs.check_settings(tmp_path / "new", SETTINGS) is False
    assert runs.check_settings(tmp_path, SETTINGS) is False  # empty
    (tmp_path / "tokenizer").mkdir()  # of a run that was stopped at once
    for name in (".lock", ".lock.owner", ".12-ab.run.json"):
        (tmp_path / name).touch()
    assert runs.check_settings(tmp_path, SETTINGS) is False
    (tmp_path / "thesis.tex").write_text("")  # what is no run is left alone
    with pytest.raises(ValueError, match="not empty.*thesis.tex"):
        runs.check_settings(tmp_path, SETTINGS)
    with pytest.raises(ValueError, match="is a file"):
        runs.check_settings(tmp_path / "thesis.tex", SETTINGS)


def test_refuses_a_model_that_cannot_be_reloaded(tmp_path):
    class Mine(keras.Model):
        pass

    with pytest.raises(ValueError, match="Mine.*register_keras_serializable"):
        runs.write_record(tmp_path, Mine(), kl.BeamSearch(), 5, {})
    assert list(tmp_path.iterdir()) == []


def test_one_at_a_time_and_what_was_half_written_is_removed(tmp_path, monkeypatch):
    (tmp_path / "epochs").mkdir()
    kept = [tmp_path / "run.json", tmp_path / ".hidden", tmp_path / "epochs" / "a.h5"]
    litter = [tmp_path / ".123.run.json", tmp_path / "epochs" / ".7.a.weights.h5"]
    for path in (*kept, *litter):
        path.touch()
    litter.append(tmp_path / ".123-7.a-distilled")
    (litter[-1] / "tokenizer").mkdir(parents=True)
    with runs.lock_run(tmp_path):
        assert all(path.exists() for path in kept)
        assert not any(path.exists() for path in litter)
        with pytest.raises(OSError, match=f"Another process, {os.getpid()}, trains"):
            with runs.lock_run(tmp_path):
                pass
    assert (tmp_path / ".lock").exists() and not (tmp_path / ".lock.owner").exists()

    def fail(path):
        raise PermissionError("no")

    litter[0].touch()
    monkeypatch.setattr(runs, "remove", fail)
    with pytest.raises(PermissionError), runs.lock_run(tmp_path):
        pass
    assert not (tmp_path / ".lock.owner").exists()
    (tmp_path / "file").touch()
    for name in ("file", "file/run"):
        with pytest.raises(OSError, match=f"run_dir must be .*Received: .*{name}"):
            with runs.lock_run(tmp_path / name):
                pass


def test_what_killed_processes_had_begun_is_removed_and_nothing_else(tmp_path):
    with saved_beside(tmp_path / "d.[x]") as file:
        file.touch()
    with saved_directory_beside(tmp_path / "e.[x]") as folder:
        pass
    file.touch()  # as if both had been killed
    (folder / "a").mkdir(parents=True)
    others = [".d", ".lock.d", f".{os.getpid()}-0123abcd.news.d", ".1-2-0123abcd.d"]
    for name in others:
        (tmp_path / name).touch()
    for name in ("d.[x]", "e.[x]", "d"):
        runs.remove_half_written(tmp_path / name)
    runs.remove_half_written(tmp_path / "none" / "d")
    assert {x.name for x in tmp_path.iterdir()} == {"d.[x]", "e.[x]", *others}


def edit(path, **changes):
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **changes}))


def test_loads_what_was_written(finished):
    run, model = finished
    translator = kl.load(run.path)
    last = kl.load(str(run.path), weights="last", search=kl.GreedySearch(5))
    models = translator.model, model, last.model
    for a, b, c in zip(*(x.get_weights() for x in models), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(c, b - 0.5, atol=1e-6)
    assert translator.model.config == model.config
    assert translator.search == kl.BeamSearch(3, max_length=7, length_penalty=0.5)
    assert last.search == kl.GreedySearch(5)
    assert translator.max_source_length == 20
    assert translator.tokenizers.source.words == list("abcd")


def test_new_weights_and_another_precision(finished, run):
    weights = finished[1].get_weights()
    model = kl.load(run.path, dtype="mixed_bfloat16").model
    assert model.dtype_policy.name == "mixed_bfloat16"
    for one, other in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="float33"):
        kl.load(run.path, dtype="float33")
    with pytest.raises(ValueError, match="one of .'best', 'last'.*'newest'"):
        kl.load(run.path, "newest")
    run.best_weights.unlink()
    new = kl.load(run.path, weights=None).model.get_weights()
    assert new[0].shape == weights[0].shape and not np.array_equal(new[0], weights[0])


PARTS = [
    (["record"], "is no run directory, as it has no run.json"),
    (["tokenizer"], "no directory of tokenizers"),
    (["tokenizer/target.txt"], "target.txt"),
    (["best_weights"], "best weights at .*model.weights.h5; it was removed, or .*last"),
    (["best_weights", "last_weights"], "best weights.*no epoch"),
]


@pytest.mark.parametrize("parts, message", PARTS)
def test_names_the_missing_part(run, parts, message):
    for part in parts:
        path = getattr(run, part, run.path / part)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(FileNotFoundError, match=message):
        kl.load(run.path)


def test_names_the_run_that_may_have_been_meant(run):
    with pytest.raises(FileNotFoundError, match=f"at .*cpy. Did you mean {run.path}?"):
        kl.load(run.path.with_name("cpy"))
    with pytest.raises(FileNotFoundError, match="no run directory at .*nowhere. keras"):
        kl.load(str(run.path / "nowhere"))
    with pytest.raises(TypeError, match="run_dir must be a path. Received: None"):
        kl.load(None)


UNREADABLE = [
    ({"format": runs.FORMAT + 1, "library": "keras_luong 9.9"}, "by keras_luong 9.9"),
    ({"format": None}, "no format version"),
    ({"model": {"class": "other>Model", "config": {}}}, "'other>Model'.*import"),
    ({"model": {"class": "keras_luong>Seq2Seq"}}, "config"),
    ({"model": 3}, "damaged: model must be an object. Received: 3"),
    ({"paths": [4]}, r"damaged: paths must be an object. Received: \[4\]"),
    ({"search": {"beam_width": 5, "magic": 1}}, "magic"),
    ({"search": {"beam_width": 0}}, "beam_width"),
    ({"max_source_length": "long"}, "max_source_length.*'long'"),
    ("", "run.json is damaged"),
    ('{"format": 1}', "run.json is damaged: it lacks model, search, max_source_"),
]


@pytest.mark.parametrize("changes, message", UNREADABLE)
def test_refuses_a_record_that_it_cannot_read(run, changes, message):
    if isinstance(changes, str):
        run.record.write_text(changes)
    else:
        edit(run.record, **changes)
    with pytest.raises(ValueError, match=message):
        kl.load(run.path)


OTHER_MODELS = [{"units": 12}, {"num_layers": 2}, {"tie_embeddings": "target"}]


@pytest.mark.parametrize("changes", OTHER_MODELS)
def test_refuses_weights_of_another_model(run, changes):
    """Of other shapes, more of them, or fewer."""
    other = kl.Seq2Seq(kl.Seq2SeqConfig(8, 9, **{"units": 8, **changes}))
    other.save_weights(run.best_weights)
    with pytest.raises(ValueError, match="model.weights.h5 .*another model"):
        kl.load(run.path)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a corpus, and another folder beside it."""
    for name in ("project/corpus", "project/runs/base", "elsewhere/deeper"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def record_run(run_dir, **settings):
    model = kl.Seq2Seq(kl.Seq2SeqConfig(8, 9, units=4))
    runs.write_record(run_dir, model, kl.BeamSearch(3), 20, settings)


def data_of(run_dir):
    return runs.read_record(run_dir)["settings"]["data"]


def test_a_run_knows_its_corpus_from_another_folder(project, monkeypatch):
    """One that is called so there is another corpus."""
    (project.parent / "elsewhere/corpus").mkdir()
    (project.parent / "disk").mkdir()
    (project / "linked").symlink_to(project.parent / "disk")
    for name in ("a.en", "b.de"):
        (project / name).touch()
    for run_dir, folder, data in (
        ("../runs/here", "corpus", "."),
        ("runs/mine", ".", "corpus"),
        ("runs/two", ".", "a.en,b.de"),
        ("linked", ".", "corpus"),
    ):
        monkeypatch.chdir(project / folder)
        record_run(run_dir, data=data)
    for folder, place, expected in (
        (".", "runs/mine", "corpus"),
        ("../elsewhere", "../project/runs/mine", "../project/corpus"),
        ("../elsewhere", "../project/runs/here", "../project/corpus"),
        ("../elsewhere", "../project/runs/two", "../project/a.en,../project/b.de"),
        ("../elsewhere", "../project/linked", "../project/corpus"),
        ("../elsewhere", project / "runs/mine", "../project/corpus"),
        ("runs/mine", ".", "../../corpus"),
    ):
        monkeypatch.chdir(project / folder)
        assert data_of(place) == fields_of_run(place)["data"] == expected


def test_what_was_moved(project, monkeypatch):
    """A whole path that is there means itself, though `..` leads somewhere else."""
    deeper, whole = project.parent / "elsewhere/deeper", str(project / "corpus")
    for name, data in {"runs/1": "corpus", "corpus/2": whole, "runs/3": whole}.items():
        record_run(name, data=data)
    shutil.move("runs/1", deeper / "1")
    assert data_of(deeper / "1") == "corpus"
    shutil.move("corpus/2", deeper.parent / "2")
    assert data_of(deeper.parent / "2") == whole
    monkeypatch.chdir(project.parent)
    project.rename("moved")  # the folder of both
    assert data_of("moved/runs/3") == "moved/corpus"


def test_which_settings_are_paths_and_when_they_stay_as_given(project):
    """A run to start from is one; a name is none; changed by hand they mean that."""
    settings = {"data": "corpus", "init_from": "runs/base"}
    paths = {"corpus": "../../corpus", "runs/base": "../base"}
    assert paths_from("runs/mine", settings) == paths
    assert with_found_paths("runs/mine", settings, paths) == settings
    assert paths_from("runs/mine", {"data": "phrases", "init_from": None}) == {}
    assert paths_from("runs/mine", {"data": 3}) == {}
    record_run("phrases", data="phrases")
    assert runs.read_record("phrases")["paths"] == {}
    record_run("runs/mine", data="corpus")
    edit(project / "runs/mine/run.json", settings={"data": "other"})
    assert data_of("runs/mine") == "other"
    edit(project / "runs/mine/run.json", settings={"data": "corpus"})
    (project / "corpus").rmdir()
    assert data_of("runs/mine") == "corpus"
