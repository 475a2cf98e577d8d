from __future__ import annotations

import pytest

from keras_luong.runs.run import RunDirectory, read_history, read_results


def test_takes_paths_and_strings(tmp_path):
    assert RunDirectory(str(tmp_path)).record == tmp_path / "run.json"
    with pytest.raises(TypeError, match="run_dir must be a path. Received: 3"):
        RunDirectory(3)


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
