from __future__ import annotations

import pytest

from keras_luong.runs import directory
from keras_luong.runs.directory import RunDirectory, read_history, read_results


def test_takes_paths_and_strings(tmp_path):
    assert RunDirectory(str(tmp_path)).record == tmp_path / "run.json"
    with pytest.raises(TypeError, match="run_dir must be a path. Received: 3"):
        RunDirectory(3)


def test_what_has_moved_is_still_found():
    from keras_luong.runs import loading, record

    with pytest.warns(DeprecationWarning, match="directory.load is .*loading.load now"):
        assert directory.load is loading.load
    with pytest.warns(DeprecationWarning):
        from keras_luong.training.run_directory import read_record
    assert read_record is record.read_record
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        directory.magic  # noqa: B018


def test_history(tmp_path):
    assert read_history(tmp_path) == []
    path = RunDirectory(tmp_path).history
    path.write_text('{"epoch": 1}\n{"epoch": 2}\n')
    assert read_history(tmp_path) == [{"epoch": 1}, {"epoch": 2}]
    path.write_text('{"epoch": 1}\n{"epo')
    with pytest.raises(ValueError, match="line 2 is damaged"):
        read_history(tmp_path)


def test_results(tmp_path):
    assert read_results(tmp_path) is None
    RunDirectory(tmp_path).results.write_text('{"test": {"bleu": 1.5}}')
    assert read_results(tmp_path) == {"test": {"bleu": 1.5}}
    RunDirectory(tmp_path).results.write_text('{"test"')
    with pytest.raises(ValueError, match="results.json is damaged"):
        read_results(tmp_path)
